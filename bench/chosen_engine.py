"""The engine that the service would use: its setting is in the environment."""

import os
from typing import cast

from engine.compiled_module import Engine


def chosen_engine() -> Engine:
    return cast(Engine, os.environ.get("PROTOQUAD_ENGINE") or "auto")
