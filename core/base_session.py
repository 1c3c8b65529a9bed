"""The base session: cross-entropy over all base classes, then their prototypes and statistics.

Cross-entropy needs a classifier head. It is used during training only; afterwards images are classified by prototypes.
"""

from copy import deepcopy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.backbones import Backbone
from core.bank import PrototypeBank
from core.progress import Progress, Report, silent
from core.prototypes import mean_prototypes
from core.scatter import fit_space, scatter_of
from core.space import Metric, Space
from core.state import LearnerState, weights_of_part
from core.views import LabelledViews, Scope, as_batch, features_of, shuffled_batches, trainable_part


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


@dataclass(frozen=True, eq=False)
class BaseOutcome:
    state: LearnerState  # without weights after no epochs: the backbone's own are used
    module: nn.Module  # the part of the backbone that was trained, in evaluation mode on the CPU


def base_session(
    backbone: Backbone,
    training: LabelledViews,
    config: BaseConfig,
    *,
    device: torch.device | str = "cpu",
    report: Report = silent,
) -> BaseOutcome:
    """Version 1: the backbone trained on the base classes, with a bank of them. The given backbone does not change."""
    training.require_images()
    device = torch.device(device)
    part = deepcopy(trainable_part(backbone, config.scope)).to(device)
    if config.epochs and len(training.class_ids) > 1:
        _train(part, training, config, device, report, pretrained=backbone.pretrained)
    features = features_of(part, training, device)  # (n, v, M)
    space = fit_space(config.metric, features, training.labels, shrink=config.shrink)
    prototypes = mean_prototypes(space.embed(features), training.owners, len(training.class_ids))
    bank = PrototypeBank.empty(backbone.dim, config.copies).with_classes(
        training.class_ids, prototypes, training.counts.tolist()
    )
    weights = weights_of_part(part, config.scope) if config.epochs else {}
    scatter = scatter_of(features, training.labels)
    return BaseOutcome(LearnerState(backbone.name, weights, space, bank, scatter), part.cpu())


def _train(
    part: nn.Module,
    training: LabelledViews,
    config: BaseConfig,
    device: torch.device,
    report: Report,
    *,
    pretrained: bool,
) -> None:
    generator = torch.Generator().manual_seed(config.seed)
    start = {name: tensor.clone() for name, tensor in part.state_dict().items()}
    space, head = _initial_head(part, training, config, device, generator, pretrained=pretrained)
    optimiser = _optimiser(part, head, config)
    owners = training.owners.to(device)
    batches = sum(1 for _ in shuffled_batches(len(training), config.batch, torch.Generator()))
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser,
        [group["lr"] for group in optimiser.param_groups],
        total_steps=config.epochs * batches,
        pct_start=0.2,
    )
    for epoch in range(config.epochs):
        part.train()
        for step, rows in enumerate(shuffled_batches(len(training), config.batch, generator)):
            views = torch.randint(training.views, (len(rows),), generator=generator)
            features = part(as_batch(training.inputs[rows, views], device))
            cosines = F.normalize(space.embed(features), dim=1) @ F.normalize(head, dim=1).T
            loss = F.cross_entropy(config.scale * cosines, owners[rows], label_smoothing=config.smoothing)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            report(Progress(epoch + 1, config.epochs, step + 1, batches, {"cross-entropy": float(loss.detach())}))
    optimiser.zero_grad()  # frees the gradients: the module outlives the session
    part.eval()
    _blend(part, start, config.blend)


def _initial_head(
    part: nn.Module,
    training: LabelledViews,
    config: BaseConfig,
    device: torch.device,
    generator: torch.Generator,
    *,
    pretrained: bool,
) -> tuple[Space, nn.Parameter]:
    """Start from the class means in whitened space, where a pretrained backbone is already nearly right.

    The first gradients then improve the features instead of destroying them, at the cost of novel classes.
    """
    classes = len(training.class_ids)
    features = features_of(part, training, device)
    if not pretrained:
        random = torch.randn(classes, features.shape[-1], generator=generator)
        return Space("cosine"), nn.Parameter(random.to(device))
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
