"""`timm:<name>`: any model of timm, cut where its family has a last stage.

Families whose layers run one after another are cut before the last stage. Any other model is all tail: it works the
same, only nothing of it is shared between versions or computed once.
"""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from core.backbones.backbone import Backbone, Normalisation, Normalise
from core.backbones.weights import load_by_name, read_weights
from core.errors import UnknownBackbone, WeightsMissing
from core.images import Framing
from core.torchvision_ops import make_torchvision_importable


def build(name: str, weights: Path | None, *, pretrained: bool) -> Backbone:
    make_torchvision_importable()
    import timm

    model_name = name.removeprefix("timm:")
    if not timm.is_model(model_name):
        near = ", ".join(timm.list_models(f"*{model_name.split('.')[0][:8]}*")[:5]) or "see timm.list_models()"
        raise UnknownBackbone(f"timm has no model '{model_name}'; names like it: {near}")
    model = _create(timm, model_name, pretrained=pretrained and weights is None)
    if weights is not None:
        load_by_name(model, read_weights(weights), weights.name)
    config = timm.data.resolve_model_data_config(model)
    normalise = Normalise(Normalisation(tuple(config["mean"]), tuple(config["std"])))
    framing = Framing(
        size=config["input_size"][-1],
        crop_ratio=config["crop_pct"],
        resample="bilinear" if config["interpolation"] == "bilinear" else "bicubic",
    )
    trunk, tail = _cut(model)
    dim = _embedding_size(model, framing.size)
    return Backbone(
        name,
        framing,
        dim,
        nn.Sequential(normalise, *trunk),
        nn.Sequential(*tail),
        pretrained=pretrained or weights is not None,
    )


def _create(timm: Any, model_name: str, *, pretrained: bool) -> Any:
    try:
        return timm.create_model(model_name, pretrained=pretrained, num_classes=0)
    except (OSError, RuntimeError) as error:
        if not pretrained:
            raise
        raise WeightsMissing(
            f"the weights of timm's '{model_name}' could not be downloaded; give a local file instead"
        ) from error


def _cut(model: Any) -> tuple[list[nn.Module], list[nn.Module]]:
    children = dict(model.named_children())
    match tuple(children):
        case ("conv1", "bn1", "act1", "maxpool", "layer1", "layer2", "layer3", "layer4", "global_pool", "fc"):
            modules = list(children.values())[:-1]
            return modules[:-2], modules[-2:]
        case ("conv_stem", "bn1", "blocks", "conv_head", "bn2", "global_pool", "classifier"):
            stages = list(model.blocks)
            trunk = [model.conv_stem, model.bn1, *stages[:-1]]
            return trunk, [stages[-1], model.conv_head, model.bn2, model.global_pool]
        case ("stem", "stages", "norm_pre", "head"):
            stages = list(model.stages)
            return [model.stem, *stages[:-1]], [stages[-1], model.norm_pre, model.head]
        case _:
            return [], [model]


@torch.no_grad()
def _embedding_size(model: Any, size: int) -> int:
    """Asked of the network itself: `num_features` is not what every family's pooled output has."""
    return int(model.eval()(torch.zeros(1, 3, size, size)).shape[1])
