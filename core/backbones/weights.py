"""Loads tensors into a network, by name: all of them, or none."""

from collections.abc import Mapping

from torch import Tensor, nn

from core.errors import WeightsMismatch


def load_by_name(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Load weights whose names are the module's own; a classifier layer that the module lacks is ignored."""
    own = module.state_dict()
    missing = [name for name in own if name not in weights and not name.endswith("num_batches_tracked")]
    wrong = [name for name in own if name in weights and own[name].shape != weights[name].shape]
    if missing or wrong:
        raise WeightsMismatch(f"weights of another network: {_explain(missing, wrong)}")
    module.load_state_dict({name: weights[name] for name in own if name in weights}, strict=False)


def without(model: nn.Module, classifier: str) -> nn.Module:
    """A view that shares the model's tensors but lacks its classifier, which differs with the number of classes."""
    return nn.ModuleDict({name: child for name, child in model.named_children() if name != classifier})


def _explain(missing: list[str], wrong: list[str]) -> str:
    parts = []
    if missing:
        parts.append(f"{len(missing)} tensors are missing ({missing[0]} first)")
    if wrong:
        parts.append(f"{len(wrong)} have another shape ({wrong[0]} first)")
    return ", ".join(parts)
