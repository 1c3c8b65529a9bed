"""`timm:<name>`: any model of timm, cut where its family has a last stage.

Families whose layers run one after another are cut before the last stage, vision transformers before the last blocks.
Any other model is all tail: it works the same, but versions share nothing of it and no activation is computed once.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from core.backbones import vision_transformer
from core.backbones.backbone import Backbone, Normalisation, Normalise
from core.backbones.weights import load_by_name
from core.errors import UnknownBackbone
from core.images import Framing
from core.torchvision_ops import make_torchvision_importable


def build(name: str, weights: Mapping[str, Tensor] | None) -> Backbone:
    model_name = require_model(name)
    import timm

    model = timm.create_model(model_name, pretrained=False, num_classes=0)
    if weights is not None:
        load_by_name(model, weights)
    config = timm.data.resolve_model_data_config(model)
    normalise = Normalise(Normalisation(tuple(config["mean"]), tuple(config["std"])))
    framing = Framing(
        size=config["input_size"][-1],
        crop_ratio=config["crop_pct"],
        resample="bilinear" if config["interpolation"] == "bilinear" else "bicubic",
    )
    early, late = _cut(model)
    trunk, tail = nn.Sequential(normalise, *early), nn.Sequential(*late)
    dim = _embedding_size(model, framing.size)
    return Backbone(name, framing, dim, trunk, tail, pretrained=weights is not None)


def require_model(name: str) -> str:
    """The name of the model within timm; raises UnknownBackbone, with similar names, where timm has no such model."""
    make_torchvision_importable()
    import timm

    model_name = name.removeprefix("timm:")
    if not timm.is_model(model_name):
        similar = ", ".join(timm.list_models(f"*{model_name.split('.')[0][:8]}*")[:5]) or "see timm.list_models()"
        raise UnknownBackbone(f"timm has no model '{model_name}'; names like it: {similar}")
    return model_name


def _cut(model: Any) -> tuple[list[nn.Module], list[nn.Module]]:
    if vision_transformer.can_be_cut(model):
        trunk, tail = vision_transformer.cut(model)
        return [trunk], [tail]
    children = dict(model.named_children())
    match tuple(children):
        case ("conv1", "bn1", "act1", "maxpool", "layer1", "layer2", "layer3", "layer4", "global_pool", "fc"):
            modules = list(children.values())[:-1]
            return modules[:-2], modules[-2:]
        case ("conv_stem", "bn1", "blocks", "conv_head", "bn2", "global_pool", "classifier"):
            stages = list(model.blocks)
            return [model.conv_stem, model.bn1, *stages[:-1]], [
                stages[-1],
                model.conv_head,
                model.bn2,
                model.global_pool,
            ]
        case ("stem", "stages", "norm_pre", "head"):
            stages = list(model.stages)
            return [model.stem, *stages[:-1]], [stages[-1], model.norm_pre, model.head]
        case _:
            return [], [model]


@torch.no_grad()
def _embedding_size(model: Any, size: int) -> int:
    """Measured on the network itself: in some families `num_features` is not the size of the pooled output."""
    return int(model.eval()(torch.zeros(1, 3, size, size)).shape[1])
