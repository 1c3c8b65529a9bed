"""Makes `import torchvision` work beside a CPU build of torch.

The package index has torchvision only as a CUDA build. Beside a CPU torch its compiled operators cannot load, and
`import torchvision` fails, because it registers shape rules for operators that are not declared. We use none of those
operators, so declaring their signatures is enough. Where torchvision's own operators load, nothing is done.
"""

import importlib.util
from functools import cache
from pathlib import Path

import torch

SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


@cache  # the declarations live as long as the returned library, and may be made only once
def make_torchvision_importable() -> torch.library.Library | None:
    """Declare the missing operators; returns None when torchvision brings its own."""
    if _own_operators_load():
        return None
    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(operator + SIGNATURE)
    return library


def _own_operators_load() -> bool:
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return False
    for extension in Path(spec.origin).parent.glob("_C*"):
        try:
            torch.ops.load_library(str(extension))
        except OSError:
            return False
        return True
    return False
