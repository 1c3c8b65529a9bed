"""Where the weights of a network come from, and whether they are on this machine. Downloads nothing."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from core.backbones import timm_models
from core.torchvision_ops import make_torchvision_importable
from engine.weight_files import PACKAGED, find_in, package_of

Kind = Literal["file", "package", "hub", "none"]


@dataclass(frozen=True)
class WeightSource:
    network: str
    kind: Kind
    where: str  # the file, the package to install, or the address
    available: bool  # here, now


def source_of(network: str, folder: Path | None) -> WeightSource:
    """As `engine.pretrained` would look for them: a file in the folder first."""
    found = find_in(folder, network)
    if found is not None:
        return WeightSource(network, "file", str(found), available=True)
    if network in PACKAGED:
        package = package_of(network)
        installed = importlib.util.find_spec(package) is not None
        return WeightSource(network, "package", package.replace("_", "-"), installed)
    if network == "resnet32":  # starts at random, and a base session trains it
        return WeightSource(network, "none", "", available=True)
    return _torchvision_source(network) if network == "resnet18" else _timm_source(network)


def _torchvision_source(network: str) -> WeightSource:
    make_torchvision_importable()
    from torchvision.models import ResNet18_Weights

    url = ResNet18_Weights.IMAGENET1K_V1.url
    return WeightSource(network, "hub", url, _downloaded(url))


def _timm_source(network: str) -> WeightSource:
    model_name = timm_models.require_model(network)
    import timm

    config = timm.get_pretrained_cfg(model_name)
    if config is not None and config.hf_hub_id:
        repository = config.hf_hub_id
        if repository.endswith("/"):  # of timm's own: the model's name follows
            repository += config.architecture + (f".{config.tag}" if config.tag else "")
        return WeightSource(network, "hub", f"https://huggingface.co/{repository}", _in_hub_cache(repository))
    if config is not None and config.url:
        return WeightSource(network, "hub", config.url, _downloaded(config.url))
    return WeightSource(network, "none", "", available=False)


def _downloaded(url: str) -> bool:
    return (Path(torch.hub.get_dir()) / "checkpoints" / url.rsplit("/", 1)[-1]).is_file()


def _in_hub_cache(repository: str) -> bool:
    from huggingface_hub import try_to_load_from_cache

    files = ("model.safetensors", "pytorch_model.bin")
    return any(isinstance(try_to_load_from_cache(repository, file), str) for file in files)
