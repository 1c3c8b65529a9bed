"""The registry of backbones: one name, one network with its trunk/tail cut, framing and normalisation."""

import re
from collections.abc import Callable
from pathlib import Path

import torch

from core.backbones import efficientnet_lite, resnet, timm_models
from core.backbones.backbone import Backbone
from core.errors import UnknownBackbone

__all__ = ["NAMES", "Backbone", "as_it_comes", "build", "require_known"]

_BUILDERS: dict[str, Callable[..., Backbone]] = {
    "efficientnet_lite0": efficientnet_lite.build,
    "efficientnet_lite1": efficientnet_lite.build,
    "efficientnet_lite2": efficientnet_lite.build,
    "resnet18": resnet.build_resnet18,
    "resnet32": resnet.build_resnet32,
}
NAMES = (*_BUILDERS, "timm:<name>")
_TIMM_NAME = re.compile(r"timm:[A-Za-z0-9_.-]{1,100}")  # it becomes part of a file's name and of a command


def build(name: str, *, weights: Path | None = None, pretrained: bool = True) -> Backbone:
    """The backbone of that name with its pretrained weights, those of a local file, or none."""
    require_known(name)
    builder = _BUILDERS.get(name, timm_models.build)
    return builder(name, weights, pretrained=pretrained)


def as_it_comes(name: str) -> Backbone:
    """The backbone with its own weights; one that has none begins with the same ones in every process."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build(name)


def require_known(name: str) -> None:
    """Raises UnknownBackbone at once; whether timm has the model it is asked for, timm says when it builds it."""
    if name not in _BUILDERS and not _TIMM_NAME.fullmatch(name):
        raise UnknownBackbone(f"there is no backbone '{name[:100]}'; there are {', '.join(NAMES)}")
