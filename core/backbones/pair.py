"""`<one>+<other>`: two networks side by side as one backbone, whose feature is both networks' features.

An image travels once, in a framing that shows each network at least what its own would; each trunk cuts and scales its
part of it. Trunk and tail hand over one tensor: both activations, flattened, one after the other.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.backbones.backbone import Backbone
from core.images import Framing

SMALLEST_SUM = 1e-6  # of a half's features: below it a half is as good as zero, and its gradient must stay finite


def join(first: Backbone, second: Backbone) -> Backbone:
    """The pair of two backbones, which shares their modules."""
    framing = shared_framing(first.framing, second.framing)
    trunk = PairTrunk(first, second, framing)
    tail = PairTail(first, second)
    pretrained = first.pretrained and second.pretrained
    return Backbone(f"{first.name}+{second.name}", framing, first.dim + second.dim, trunk, tail, pretrained=pretrained)


def shared_framing(first: Framing, second: Framing) -> Framing:
    """As wide a crop as the wider of the two, at the resolution of the finer one."""
    crop_ratio = max(first.crop_ratio, second.crop_ratio)
    sides = {one: round(one.size * crop_ratio / one.crop_ratio) for one in (first, second)}
    finer = max(sides, key=lambda one: sides[one])
    return replace(finer, size=sides[finer], crop_ratio=crop_ratio)


class Reframe(nn.Module):
    """From the shared framing to a network's own: a centre crop and a resize, as a product with one matrix per side.

    OpenVINO converts no antialiased resize of torch's. Its own takes longer than these products (2.5 to 6.3 ms instead
    of 1.8 from 260 to 224 px, on a core), and without antialiasing another image comes out.
    """

    def __init__(self, shared: Framing, own: Framing) -> None:
        super().__init__()
        seen = round(shared.size * own.crop_ratio / shared.crop_ratio)
        left = (shared.size - seen) // 2
        pixels = torch.eye(shared.size)[None, None, left : left + seen]
        matrix = F.interpolate(pixels, (own.size, shared.size), mode=own.resample, antialias=True)
        self.register_buffer("matrix", matrix[0, 0], persistent=False)  # (own, shared)

    def forward(self, images: Tensor) -> Tensor:
        matrix = self.get_buffer("matrix")
        return matrix @ images.to(matrix.dtype) @ matrix.T  # (b, 3, own, own)


class PairTrunk(nn.Module):
    """Images of the shared framing → both activations as one row, (b, a + b)."""

    def __init__(self, first: Backbone, second: Backbone, framing: Framing) -> None:
        super().__init__()
        self.first, self.second = first.trunk, second.trunk
        self.first_frame, self.second_frame = (_reframe(framing, one.framing) for one in (first, second))

    def forward(self, images: Tensor) -> Tensor:
        first, second = self.first(self.first_frame(images)), self.second(self.second_frame(images))
        return torch.cat([first.flatten(1), second.flatten(1)], dim=1)


class PairTail(nn.Module):
    """Both activations as one row → both features, each half at a sum of one, (b, first's + second's).

    The sum of absolute values and not the Euclidean length: the space takes the root of every feature, and roots of
    features that sum to one have length one. So both halves count alike in the metrics that are used by default.
    """

    def __init__(self, first: Backbone, second: Backbone) -> None:
        super().__init__()
        self.first, self.second = first.tail, second.tail
        self.shapes: Sequence[tuple[int, ...]] = [_activation_shape(one) for one in (first, second)]

    def forward(self, activations: Tensor) -> Tensor:
        first_shape, second_shape = self.shapes
        cut = torch.Size(first_shape).numel()
        first = self.first(activations[:, :cut].unflatten(1, first_shape))
        second = self.second(activations[:, cut:].unflatten(1, second_shape))
        return torch.cat([summing_to_one(first), summing_to_one(second)], dim=1)


def summing_to_one(features: Tensor) -> Tensor:
    """Features (b, M) divided by the sum of their absolute values; zeros stay zeros."""
    return features / features.abs().sum(1, keepdim=True).clamp_min(SMALLEST_SUM)


def _reframe(shared: Framing, own: Framing) -> nn.Module:
    same = (shared.size, shared.crop_ratio) == (own.size, own.crop_ratio)
    return nn.Identity() if same else Reframe(shared, own)


@torch.no_grad()
def _activation_shape(backbone: Backbone) -> tuple[int, ...]:
    return tuple(backbone.trunk(backbone.framing.blank()).shape[1:])
