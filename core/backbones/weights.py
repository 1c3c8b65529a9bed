"""Reads weight files: safetensors, or torch files with nothing in them that executes."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from core.errors import WeightsMismatch, WeightsMissing


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a weight file, by name, in file order."""
    if not path.is_file():
        raise WeightsMissing(f"there is no weight file at {path}")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # an unpickler fed with garbage raises whatever its parsing ran into
        raise WeightsMismatch(
            f"{path.name} cannot be read as weights ({error}); give a .safetensors file, or a torch file that holds "
            "tensors only"
        ) from error
    return _state_dict_of(found, path)


def load_by_name(module: nn.Module, weights: Mapping[str, Tensor], source: str) -> None:
    """Load weights whose names are the module's own; a classifier layer the module lacks is ignored."""
    own = module.state_dict()
    missing = [name for name in own if name not in weights and not name.endswith("num_batches_tracked")]
    wrong = [name for name in own if name in weights and own[name].shape != weights[name].shape]
    if missing or wrong:
        raise WeightsMismatch(f"{source} holds weights of another network: {_explain(missing, wrong)}")
    module.load_state_dict({name: weights[name] for name in own if name in weights}, strict=False)


def without(model: nn.Module, classifier: str) -> nn.Module:
    """A view that shares the model's tensors but lacks its classifier, in which files for other classes differ."""
    return nn.ModuleDict({name: child for name, child in model.named_children() if name != classifier})


def load_in_order(module: nn.Module, weights: Mapping[str, Tensor], source: str) -> None:
    """Load weights that carry other names but stand in the same order with the same shapes."""
    own = module.state_dict()
    shapes = [tuple(tensor.shape) for tensor in own.values()]
    given = [tuple(tensor.shape) for tensor in weights.values()]
    if shapes != given:
        raise WeightsMismatch(
            f"{source} holds weights of another network: {len(given)} tensors where {len(shapes)} are needed, or of "
            "other shapes"
        )
    module.load_state_dict(dict(zip(own, weights.values(), strict=True)))


def _state_dict_of(found: object, path: Path) -> dict[str, Tensor]:
    """Training scripts like to wrap the weights once more; unwrap the usual two keys."""
    table = found if isinstance(found, Mapping) else {}
    for wrapper in ("state_dict", "model"):
        if isinstance(table.get(wrapper), Mapping):
            table = table[wrapper]
            break
    if not table or not all(isinstance(value, Tensor) for value in table.values()):
        raise WeightsMismatch(f"{path.name} holds no table of weights")
    return {str(name): tensor for name, tensor in table.items()}


def _explain(missing: list[str], wrong: list[str]) -> str:
    parts = []
    if missing:
        parts.append(f"{len(missing)} tensors are missing ({missing[0]} first)")
    if wrong:
        parts.append(f"{len(wrong)} have another shape ({wrong[0]} first)")
    return ", ".join(parts)
