"""Cuts timm's vision transformers between their blocks: ViT, DeiT, DINOv2, and the image towers of CLIP and SigLIP."""

from copy import copy
from typing import Any

from torch import Tensor, nn

LATE = ("norm", "attn_pool", "fc_norm", "head_drop", "head", "head_dist")  # what follows the blocks
SHARE = 6  # one block in so many is tail: 2 of 12, a sixth of the weights, of which sessions change a tenth


def can_be_cut(model: nn.Module) -> bool:
    """Whether it computes its features in the way that is cut here; a subclass may have a way of its own."""
    from timm.models.vision_transformer import VisionTransformer

    return (
        isinstance(model, VisionTransformer)
        and type(model).forward_features is VisionTransformer.forward_features
        and len(model.blocks) > 1
    )


def cut(model: Any) -> tuple[nn.Module, nn.Module]:
    """Trunk: patches, tokens and the first blocks. Tail: the last blocks, and pooling as the model itself does it."""
    late_blocks = max(1, len(model.blocks) // SHARE)
    early = {name: child for name, child in model._modules.items() if name not in LATE}
    late = {name: child for name, child in model._modules.items() if name in LATE}
    trunk = _part(model, {**early, "blocks": model.blocks[:-late_blocks]}, dict(model._parameters))
    tail = _part(model, {"blocks": model.blocks[-late_blocks:], **late}, {})
    return _Trunk(trunk), _Tail(tail)


def _part(model: nn.Module, children: dict[str, nn.Module | None], parameters: dict[str, Any]) -> Any:
    """A model that has the methods and settings of this one, and of its layers and tokens only these."""
    part = copy(model)
    part._modules, part._parameters = children, parameters
    return part


class _Trunk(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        model: Any = self.model
        tokens: Tensor = model.norm_pre(model.patch_drop(model._pos_embed(model.patch_embed(images))))
        blocks: Tensor = model.blocks(tokens)
        return blocks  # (b, tokens, width)


class _Tail(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        model: Any = self.model
        features: Tensor = model.forward_head(model.norm(model.blocks(tokens)), pre_logits=True)
        return features  # (b, dim)
