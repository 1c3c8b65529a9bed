"""Images as sessions take them: labelled inputs of the network part that is trained, in several views.

Sessions that train the tail take trunk activations, which are computed once for each image. Sessions that train the
whole network take the images themselves.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from core.backbones import Backbone
from core.bank import ClassId
from core.errors import NoImages, WrongShape
from core.progress import Check, unchecked

Scope = Literal["tail", "all"]
CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class LabelledViews:
    """n images in v views each, view 0 the centre view; class ids may be any numbers."""

    inputs: Tensor  # (n, v, …) trunk activations, uint8 images, or features
    labels: Tensor  # (n,) class ids

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.labels):
            raise WrongShape(f"{len(self.inputs)} images have {len(self.labels)} labels")
        if self.inputs.dim() < 3 or self.inputs.shape[1] < 1:
            raise WrongShape(f"inputs of shape (images, views, …) are needed, not {tuple(self.inputs.shape)}")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def views(self) -> int:
        return self.inputs.shape[1]

    @property
    def class_ids(self) -> tuple[ClassId, ...]:
        """The classes present, ascending."""
        return tuple(ClassId(label) for label in self.labels.unique().tolist())

    @property
    def owners(self) -> Tensor:
        """The position of each image's class within `class_ids`, (n,)."""
        owners: Tensor = self.labels.unique(return_inverse=True)[1]
        return owners

    @property
    def counts(self) -> Tensor:
        """How many images each of `class_ids` has."""
        counts: Tensor = self.labels.unique(return_counts=True)[1]
        return counts

    def centre(self) -> "LabelledViews":
        return LabelledViews(self.inputs[:, :1], self.labels)

    def joined(self, other: "LabelledViews") -> "LabelledViews":
        return LabelledViews(torch.cat([self.inputs, other.inputs]), torch.cat([self.labels, other.labels]))

    def select(self, rows: Tensor) -> "LabelledViews":
        return LabelledViews(self.inputs[rows], self.labels[rows])

    def require_images(self) -> None:
        if not len(self):
            raise NoImages("there is no image to learn from")


def trainable_part(backbone: Backbone, scope: Scope) -> nn.Module:
    """The module that a session of this scope trains; `LabelledViews` holds its inputs."""
    return backbone.tail if scope == "tail" else backbone


def prefix_of(scope: Scope) -> str:
    """How the names of that module's weights begin within the backbone."""
    return "tail." if scope == "tail" else ""


@torch.no_grad()
def features_of(
    module: nn.Module, views: LabelledViews, device: torch.device, batch: int = 256, check: Check = unchecked
) -> Tensor:
    """Features of every view, (n, v, M), on the CPU; the module is left in evaluation mode."""
    module.eval()
    flat = views.inputs.flatten(0, 1)
    parts = []
    for start in range(0, len(flat), batch):
        check()
        parts.append(module(as_batch(flat[start : start + batch], device)).float().cpu())
    if not parts:
        raise NoImages("there is no image to embed")
    features: Tensor = torch.cat(parts).unflatten(0, views.inputs.shape[:2])
    return features


def as_batch(inputs: Tensor, device: torch.device) -> Tensor:
    """Inputs as a network takes them: images stay bytes, activations become single precision."""
    moved = inputs.to(device)
    if moved.dtype != torch.uint8:
        moved = moved.float()
    return moved.contiguous(memory_format=torch.channels_last) if moved.dim() == 4 else moved


def shuffled_batches(count: int, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Row numbers of one epoch, in batches of two or more: batch-norm cannot train on one."""
    rows = torch.randperm(count, generator=generator)
    batches = list(rows.split(max(2, size)))
    if len(batches) > 1 and len(batches[-1]) == 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    yield from batches
