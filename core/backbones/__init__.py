"""The registry of backbones: one name, one network with its trunk/tail cut, framing and normalisation.

Builds architectures and loads tensors that it is given. Finding pretrained weights is up to `engine.pretrained`.
"""

import re
from collections.abc import Callable, Mapping

from torch import Tensor

from core.backbones import efficientnet_lite, resnet, timm_models
from core.backbones.backbone import Backbone
from core.errors import UnknownBackbone

__all__ = ["NAMES", "Backbone", "build", "require_known"]

_BUILDERS: dict[str, Callable[[str, Mapping[str, Tensor] | None], Backbone]] = {
    "efficientnet_lite0": efficientnet_lite.build,
    "efficientnet_lite1": efficientnet_lite.build,
    "efficientnet_lite2": efficientnet_lite.build,
    "resnet18": resnet.build_resnet18,
    "resnet32": resnet.build_resnet32,
}
NAMES = (*_BUILDERS, "timm:<name>")
_TIMM_NAME = re.compile(r"timm:[A-Za-z0-9_.-]{1,100}")  # it becomes part of a file name and of a command


def build(name: str, weights: Mapping[str, Tensor] | None = None) -> Backbone:
    """Build a backbone with random weights, or with these, named as in the library that the network is from."""
    require_known(name)
    return _BUILDERS.get(name, timm_models.build)(name, weights)


def require_known(name: str) -> None:
    """Raise UnknownBackbone; of timm only the form of the name is checked, timm itself checks the model."""
    if name not in _BUILDERS and not _TIMM_NAME.fullmatch(name):
        raise UnknownBackbone(f"there is no backbone '{name[:100]}'; there are {', '.join(NAMES)}")
