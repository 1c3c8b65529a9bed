"""Which weights an incremental session may change (paper, section IV-D).

Weights of small magnitude contributed least to the existing prototypes, so only they may change. Biases and batch-norm
parameters never do.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

Masks = Mapping[str, Tensor]


def smallest_weights(module: nn.Module, budget: int) -> Masks:
    """Masks over the module's weight tensors, true on the smallest |w| of each, together about `budget` elements.

    Every layer gives the same share of its weights, as with the paper's per-layer thresholds.
    """
    weights = {name: parameter for name, parameter in module.named_parameters() if parameter.dim() > 1}
    total = sum(weight.numel() for weight in weights.values())
    share = min(1.0, budget / total) if total else 0.0
    return {name: _smallest(weight.detach(), share) for name, weight in weights.items()}


def freeze_unselected(module: nn.Module, masks: Masks) -> list[nn.Parameter]:
    """Require gradients of the selected tensors only; returns them for the optimiser."""
    chosen = []
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in masks and bool(masks[name].any()))
        if parameter.requires_grad:
            chosen.append(parameter)
    return chosen


@torch.no_grad()
def mask_gradients(module: nn.Module, masks: Masks, weight_decay: float) -> None:
    """Add weight decay, then set the gradient of every unselected element to zero.

    The optimiser must not decay by itself, or it would move the unselected weights.
    """
    for name, parameter in module.named_parameters():
        if parameter.grad is not None:
            parameter.grad.add_(parameter, alpha=weight_decay).masked_fill_(~masks[name], 0)


def _smallest(weight: Tensor, share: float) -> Tensor:
    mask = torch.zeros(weight.numel(), dtype=torch.bool, device=weight.device)
    count = round(share * weight.numel())
    mask[weight.abs().flatten().topk(count, largest=False).indices] = True
    return mask.view_as(weight)
