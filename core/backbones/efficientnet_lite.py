"""EfficientNet-Lite 0, 1 and 2: the production backbones."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from core.backbones.backbone import HALF, Backbone, Normalise
from core.backbones.weights import load_by_name, without
from core.images import Framing
from core.torchvision_ops import make_torchvision_importable

INPUT_SIZE = {"efficientnet_lite0": 224, "efficientnet_lite1": 240, "efficientnet_lite2": 260}
LAST_STAGE = 6  # the cut: stages 0..5 are trunk, the last stage and the head convolution are tail


def build(name: str, weights: Mapping[str, Tensor] | None) -> Backbone:
    model = create_network(name)
    if weights is not None:
        load_by_name(without(model, "classifier"), weights)
    trunk = nn.Sequential(Normalise(HALF), model.conv_stem, model.bn1, *model.blocks[:LAST_STAGE])
    tail = nn.Sequential(*model.blocks[LAST_STAGE:], model.conv_head, model.bn2, model.global_pool)
    framing = Framing(size=INPUT_SIZE[name])
    return Backbone(name, framing, model.num_features, trunk, tail, pretrained=weights is not None)


def create_network(name: str) -> Any:
    """timm's network before the cut, with its classifier and random weights."""
    make_torchvision_importable()
    import timm

    return timm.create_model(f"tf_{name}", pretrained=False)
