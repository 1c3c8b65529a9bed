"""The training of a base session: cross-entropy with a cosine head, or another objective, over batches of views."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.progress import Check, Progress, Report
from core.prototypes import mean_prototypes
from core.scatter import fit_space
from core.space import Metric, Space
from core.views import LabelledViews, Scope, as_batch, features_of, shuffled_batches

Augment = Literal["views", "shift"]
SHIFT = 8  # an image is moved by up to this fraction of its side: 4 px of 32
FULL_SIZE = 2 / 3  # of the epochs, after which images have their full size
STRIDE = 4  # sides are multiples of it, so that every stage of a network divides them


@dataclass(frozen=True)
class BaseConfig:
    """How the base session learns. The defaults were chosen on base-class data, for a pretrained backbone."""

    epochs: int = 20  # 0: keep the backbone's weights as they are
    batch: int = 64
    learning_rate: float = 0.1
    head_rate: float = 0.03
    weight_decay: float = 5e-4
    scale: float = 16.0  # of the cosine logits
    smoothing: float = 0.1  # of the labels
    augment: Augment = "views"  # shift: the centre view, moved and mirrored at random in every epoch
    smallest: float = 1.0  # share of the images' side in the first epoch, growing to 1; only where the network is whole
    blend: float = 0.5  # how far to go from the pretrained weights to the trained ones
    scope: Scope = "tail"
    metric: Metric = "whitened"
    shrink: float = 1.0  # of the whitening
    copies: int = 5  # B of the bank
    seed: int = 0

    @classmethod
    def from_scratch(cls, epochs: int = 100) -> "BaseConfig":
        """For a backbone without pretrained weights: train all of it, and keep the trained weights as they are."""
        return cls(epochs=epochs, learning_rate=0.1, head_rate=0.1, blend=1.0, scope="all")

    @classmethod
    def small_images(cls, epochs: int = 60) -> "BaseConfig":
        """`from_scratch` for images of about 32 px: the usual augmentation of CIFAR, and cheap early epochs."""
        config = cls.from_scratch(epochs)
        return replace(config, batch=128, learning_rate=0.2, head_rate=0.2, augment="shift", smallest=0.625)


@dataclass(frozen=True, eq=False)
class Step:
    """One batch, as an objective sees it."""

    part: nn.Module
    space: Space
    head: nn.Parameter  # (C, M)
    config: BaseConfig
    inputs: Tensor  # (n, …)
    targets: Tensor  # (n,) rows of the head
    another_view: Callable[[], Tensor]  # of the same images, (n, …)
    generator: torch.Generator

    def cosines(self, features: Tensor) -> Tensor:
        """Of features with every row of the head, (n, M) → (n, C)."""
        return F.normalize(self.space.embed(features), dim=1) @ F.normalize(self.head, dim=1).T

    def cross_entropy(self, features: Tensor) -> Tensor:
        logits = self.config.scale * self.cosines(features)
        return F.cross_entropy(logits, self.targets, label_smoothing=self.config.smoothing)


Objective = Callable[[Step], Tensor]


def cross_entropy(step: Step) -> Tensor:
    """The objective of this project's base session."""
    return step.cross_entropy(step.part(step.inputs))


class Checkpoint(Protocol):
    """Keeps the training after each epoch; what it keeps are tensors, numbers and lists of them."""

    def load(self) -> dict[str, Any] | None: ...

    def save(self, content: dict[str, Any]) -> None: ...


class BaseTraining:
    """Trains `part` in place."""

    def __init__(
        self,
        part: nn.Module,
        training: LabelledViews,
        config: BaseConfig,
        device: torch.device,
        objective: Objective,
        check: Check,
        *,
        pretrained: bool,
    ) -> None:
        self.part, self.training, self.config, self.device, self.objective = part, training, config, device, objective
        self.generator = torch.Generator().manual_seed(config.seed)
        self.start = {name: tensor.clone() for name, tensor in part.state_dict().items()}
        self.space, self.head = _initial_head(
            part, training, config, device, self.generator, check, pretrained=pretrained
        )
        self.optimiser = _optimiser(part, self.head, config)
        self.owners = training.owners.to(device)
        self.batches = sum(1 for _ in shuffled_batches(len(training), config.batch, torch.Generator()))
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimiser,
            [group["lr"] for group in self.optimiser.param_groups],
            total_steps=config.epochs * self.batches,
            pct_start=0.2,
        )

    def train(self, report: Report, checkpoint: Checkpoint | None = None) -> None:
        """All epochs that are left, then the blend with the weights at the start."""
        kept = checkpoint.load() if checkpoint else None
        for epoch in range(self._restore(kept) if kept else 0, self.config.epochs):
            self._epoch(epoch, report)
            if checkpoint:
                checkpoint.save(self._content(epoch + 1))
        self.optimiser.zero_grad()  # frees the gradients: the module outlives the session
        self.part.eval()
        _blend(self.part, self.start, self.config.blend)

    def _epoch(self, epoch: int, report: Report) -> None:
        self.part.train()
        for step, rows in enumerate(shuffled_batches(len(self.training), self.config.batch, self.generator)):
            loss = self.objective(self._step(rows, epoch))
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            self.schedule.step()
            losses = {"cross-entropy": float(loss.detach())}
            report(Progress(epoch + 1, self.config.epochs, step + 1, self.batches, losses))

    def _step(self, rows: Tensor, epoch: int) -> Step:
        def view() -> Tensor:
            return self._inputs(rows, epoch)

        owners = self.owners[rows]
        return Step(self.part, self.space, self.head, self.config, view(), owners, view, self.generator)

    def _inputs(self, rows: Tensor, epoch: int) -> Tensor:
        """A view of each image, in the size of this epoch."""
        if self.config.augment == "shift":
            inputs = shifted(self.training.inputs[rows, 0], self.generator)
        else:
            views = torch.randint(self.training.views, (len(rows),), generator=self.generator)
            inputs = self.training.inputs[rows, views]
        if self.config.scope == "all" and self.config.smallest < 1:
            inputs = scaled(inputs, size_at(inputs.shape[-1], epoch, self.config))
        return as_batch(inputs, self.device)

    def _content(self, epochs: int) -> dict[str, Any]:
        return {
            "epochs": epochs,
            "part": self.part.state_dict(),
            "head": self.head.detach(),
            "optimiser": self.optimiser.state_dict(),
            "schedule": self.schedule.state_dict(),
            "generator": self.generator.get_state(),
        }

    def _restore(self, kept: dict[str, Any]) -> int:
        self.part.load_state_dict(kept["part"])
        self.head.data.copy_(kept["head"])
        self.optimiser.load_state_dict(kept["optimiser"])
        self.schedule.load_state_dict(kept["schedule"])
        self.generator.set_state(kept["generator"])
        return int(kept["epochs"])


def shifted(images: Tensor, generator: torch.Generator) -> Tensor:
    """Images or activations (n, c, s, s), each moved by up to an eighth of its side and mirrored or not."""
    count, _, side, _ = images.shape
    reach = max(1, side // SHIFT)
    moves = torch.randint(-reach, reach + 1, (2, count, 1), generator=generator)
    lines = torch.arange(side).expand(count, side)
    rows = (lines + moves[0]).clamp(0, side - 1)  # what comes in from outside repeats the edge
    columns = (lines + moves[1]).clamp(0, side - 1)
    mirrored = torch.rand(count, 1, generator=generator) < 0.5
    columns = torch.where(mirrored, columns.flip(1), columns)
    places = torch.arange(count)[:, None, None]
    return images.permute(0, 2, 3, 1)[places, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def size_at(side: int, epoch: int, config: BaseConfig) -> int:
    """The side of the images in an epoch: from the smallest to the whole, in steps of four pixels."""
    grown = min(1.0, epoch / max(1.0, FULL_SIZE * config.epochs))
    size = side * (config.smallest + (1 - config.smallest) * grown)
    return min(side, max(STRIDE, STRIDE * round(size / STRIDE)))


def scaled(images: Tensor, size: int) -> Tensor:
    if images.shape[-1] == size:
        return images
    return F.interpolate(images, (size, size), mode="bilinear", antialias=True)


def _initial_head(
    part: nn.Module,
    training: LabelledViews,
    config: BaseConfig,
    device: torch.device,
    generator: torch.Generator,
    check: Check,
    *,
    pretrained: bool,
) -> tuple[Space, nn.Parameter]:
    """Start from the class means in whitened space, where a pretrained backbone is already nearly right.

    The first gradients then improve the features instead of destroying them, at the cost of novel classes.
    """
    classes = len(training.class_ids)
    if not pretrained:
        dim = features_of(part, training.select(torch.arange(1)).centre(), device).shape[-1]
        random = torch.randn(classes, dim, generator=generator)
        return Space("cosine"), nn.Parameter(random.to(device))
    features = features_of(part, training, device, check=check)
    space = fit_space("whitened", features, training.labels, shrink=config.shrink)
    means = mean_prototypes(space.embed(features), training.owners, classes)
    return space.to(device), nn.Parameter(F.normalize(means, dim=1).to(device))


def _optimiser(part: nn.Module, head: nn.Parameter, config: BaseConfig) -> torch.optim.Optimizer:
    """SGD with weight decay, but not of biases, batch-norm and the head, whose length does not matter."""
    for parameter in part.parameters():
        parameter.requires_grad_()
    decayed = [parameter for parameter in part.parameters() if parameter.dim() > 1]
    plain = [parameter for parameter in part.parameters() if parameter.dim() <= 1]
    return torch.optim.SGD(
        [
            {"params": decayed, "lr": config.learning_rate, "weight_decay": config.weight_decay},
            {"params": plain, "lr": config.learning_rate},
            {"params": [head], "lr": config.head_rate},
        ],
        lr=config.learning_rate,
        momentum=0.9,
        nesterov=True,
    )


def _blend(part: nn.Module, start: dict[str, Tensor], share: float) -> None:
    """Go only `share` of the way from the pretrained weights to the trained ones (Wortsman et al., CVPR 2022).

    Base classes keep most of the gain from training, and later classes keep the general features.
    """
    trained = part.state_dict()
    part.load_state_dict(
        {
            name: torch.lerp(start[name], tensor, share) if tensor.is_floating_point() else tensor
            for name, tensor in trained.items()
        }
    )
