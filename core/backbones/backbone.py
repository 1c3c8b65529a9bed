"""A backbone, cut in two: a trunk that keeps its weights and a tail that learns."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from core.images import Framing


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation per channel of the images that the weights were trained on, in 0..1."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


IMAGENET = Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HALF = Normalisation((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


class Normalise(nn.Module):
    """First layer of every trunk: bytes in, normalised floats out.

    It is part of the network, not of the image code, so that an image travels as bytes (a quarter of the memory) and
    the compiled trunk folds it into its first convolution.
    """

    def __init__(self, normalisation: Normalisation) -> None:
        super().__init__()
        mean = torch.tensor(normalisation.mean).view(1, 3, 1, 1)
        std = torch.tensor(normalisation.std).view(1, 3, 1, 1)
        self.register_buffer("scale", 1 / (255 * std), persistent=False)
        self.register_buffer("shift", -mean / std, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        scale, shift = self.get_buffer("scale"), self.get_buffer("shift")
        return images.to(scale.dtype) * scale + shift  # (b, 3, s, s)


class Backbone(nn.Module):
    """f = tail ∘ trunk: uint8 images (b, 3, s, s) → features (b, dim)."""

    def __init__(
        self, name: str, framing: Framing, dim: int, trunk: nn.Module, tail: nn.Module, *, pretrained: bool
    ) -> None:
        super().__init__()
        self.name = name
        self.framing = framing
        self.dim = dim
        self.trunk = trunk
        self.tail = tail
        self.pretrained = pretrained
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.tail(self.trunk(images))
        return features

    @property
    def parameter_count(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())
