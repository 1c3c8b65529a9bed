"""The registry of backbones: one name, one network with its trunk/tail cut, framing and normalisation.

Builds architectures and loads tensors that it is given. Finding pretrained weights is up to `engine.pretrained`.
"""

import re
from collections.abc import Callable, Mapping

from torch import Tensor

from core.backbones import efficientnet_lite, resnet, timm_models
from core.backbones.backbone import Backbone
from core.backbones.image_size import resized
from core.backbones.pair import join
from core.errors import UnknownBackbone

__all__ = [
    "NAMES",
    "SINGLE_NAMES",
    "Backbone",
    "build",
    "is_network",
    "join",
    "network_of",
    "parts_of",
    "require_known",
]

_BUILDERS: dict[str, Callable[[str, Mapping[str, Tensor] | None], Backbone]] = {
    "efficientnet_lite0": efficientnet_lite.build,
    "efficientnet_lite1": efficientnet_lite.build,
    "efficientnet_lite2": efficientnet_lite.build,
    "resnet18": resnet.build_resnet18,
    "resnet32": resnet.build_resnet32,
}
SINGLE_NAMES = tuple(_BUILDERS)  # those that are known without asking timm
NAMES = (*SINGLE_NAMES, "timm:<name>", "<one>@<pixels>", "<one>+<other>")
LONGEST_NAME = 200  # as long as the store has room for
SIZES = range(16, 1025)  # pixels; larger images would take more memory than a service has
_TIMM_NAME = re.compile(r"timm:[A-Za-z0-9_.-]{1,100}")  # it becomes part of a file name and of a command


def build(name: str, weights: Mapping[str, Tensor] | None = None) -> Backbone:
    """Build a backbone with random weights, or with these, named as in the library that the network is from.

    The names of a pair's weights begin with `first.` and `second.`.
    """
    require_known(name)
    parts = parts_of(name)
    if len(parts) == 2:
        first, second = (None if weights is None else _within(weights, half) for half in ("first.", "second."))
        return join(build(parts[0], first), build(parts[1], second))
    network = network_of(name)
    return _sized(_BUILDERS.get(network, timm_models.build)(network, weights), name)


def parts_of(name: str) -> tuple[str, ...]:
    """The names of a pair's two backbones; of any other, its own name."""
    return tuple(name.split("+"))


def network_of(part: str) -> str:
    """The network of a single backbone: its name without the size of the images. Weights belong to networks."""
    return part.partition("@")[0]


def is_network(name: str) -> bool:
    """Whether this has the form of a single network's name; of timm's, whether there is such a model is not asked."""
    return name in _BUILDERS or _TIMM_NAME.fullmatch(name) is not None


def require_known(name: str) -> None:
    """Raise UnknownBackbone; of timm only the form of the name is checked, timm itself checks the model."""
    parts = parts_of(name)
    for part in parts:
        if not is_network(network_of(part)):
            within = f" in '{name[:LONGEST_NAME]}'" if len(parts) > 1 else ""
            raise UnknownBackbone(f"there is no backbone '{part[:100]}'{within}; there are {', '.join(NAMES)}")
        _require_size(part)
    if len(parts) > 2 or len(set(parts)) < len(parts):
        raise UnknownBackbone(f"'{name[:LONGEST_NAME]}' is no backbone: '+' joins two different networks, and not more")
    if len(name) > LONGEST_NAME:
        raise UnknownBackbone(f"the backbone's name has {len(name)} characters; use at most {LONGEST_NAME}")


def _sized(backbone: Backbone, name: str) -> Backbone:
    """The network on images of the size that `name` asks for: its own size unless there is an `@`."""
    _, at, pixels = name.partition("@")
    return resized(backbone, name, int(pixels)) if at else backbone


def _require_size(part: str) -> None:
    """Whole numbers in one spelling only: two names of one backbone would be two backbones everywhere else."""
    _, at, pixels = part.partition("@")
    if at and not (re.fullmatch(r"[1-9][0-9]{0,3}", pixels) and int(pixels) in SIZES):
        raise UnknownBackbone(
            f"'{part[:100]}' asks for images of '{pixels[:20]}' pixels; give a whole number from {SIZES[0]} to "
            f"{SIZES[-1]} after the @"
        )


def _within(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)}
