"""The registry of backbones: one name, one network with its trunk/tail cut, framing and normalisation.

Builds architectures and loads tensors that it is given. Finding pretrained weights is up to `engine.pretrained`.
"""

import re
from collections.abc import Callable, Mapping

from torch import Tensor

from core.backbones import efficientnet_lite, resnet, timm_models
from core.backbones.backbone import Backbone
from core.backbones.pair import join
from core.errors import UnknownBackbone

__all__ = ["NAMES", "SINGLE_NAMES", "Backbone", "build", "is_network", "join", "parts_of", "require_known"]

_BUILDERS: dict[str, Callable[[str, Mapping[str, Tensor] | None], Backbone]] = {
    "efficientnet_lite0": efficientnet_lite.build,
    "efficientnet_lite1": efficientnet_lite.build,
    "efficientnet_lite2": efficientnet_lite.build,
    "resnet18": resnet.build_resnet18,
    "resnet32": resnet.build_resnet32,
}
SINGLE_NAMES = tuple(_BUILDERS)  # those that are known without asking timm
NAMES = (*SINGLE_NAMES, "timm:<name>", "<one>+<other>")
LONGEST_NAME = 200  # as long as the store has room for
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
    return _BUILDERS.get(name, timm_models.build)(name, weights)


def parts_of(name: str) -> tuple[str, ...]:
    """The names of a pair's two networks; of any other backbone, its own name."""
    return tuple(name.split("+"))


def is_network(name: str) -> bool:
    """Whether this has the form of a single network's name; of timm's, whether there is such a model is not asked."""
    return name in _BUILDERS or _TIMM_NAME.fullmatch(name) is not None


def require_known(name: str) -> None:
    """Raise UnknownBackbone; of timm only the form of the name is checked, timm itself checks the model."""
    parts = parts_of(name)
    for part in parts:
        if not is_network(part):
            within = f" in '{name[:LONGEST_NAME]}'" if len(parts) > 1 else ""
            raise UnknownBackbone(f"there is no backbone '{part[:100]}'{within}; there are {', '.join(NAMES)}")
    if len(parts) > 2 or len(set(parts)) < len(parts):
        raise UnknownBackbone(f"'{name[:LONGEST_NAME]}' is no backbone: '+' joins two different networks, and not more")
    if len(name) > LONGEST_NAME:
        raise UnknownBackbone(f"the backbone's name has {len(name)} characters; use at most {LONGEST_NAME}")


def _within(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)}
