"""The serving engine: networks, batches, and the versions that answer."""

import sys

# OpenVINO would report every import and every conversion to its maker, from forks of this process. Without the package
# that does so, it goes on.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
