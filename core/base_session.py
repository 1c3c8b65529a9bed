"""The base session: cross-entropy over all base classes, then their prototypes and statistics.

Cross-entropy needs a classifier head. It is used during training only; afterwards images are classified by prototypes.
"""

from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import nn

from core.backbones import Backbone
from core.bank import PrototypeBank
from core.base_training import BaseConfig, BaseTraining, Checkpoint, Objective, cross_entropy
from core.progress import Check, Report, silent, unchecked
from core.prototypes import mean_prototypes
from core.scatter import fit_space, scatter_of
from core.state import LearnerState, weights_of_part
from core.views import LabelledViews, features_of, trainable_part

__all__ = ["BaseConfig", "BaseOutcome", "base_session"]


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
    check: Check = unchecked,
    objective: Objective = cross_entropy,
    checkpoint: Checkpoint | None = None,
) -> BaseOutcome:
    """Version 1: the backbone trained on the base classes, with a bank of them. The given backbone does not change.

    With a `checkpoint`, a training that was stopped goes on after its last finished epoch, to the same result.
    """
    training.require_images()
    device = torch.device(device)
    part = deepcopy(trainable_part(backbone, config.scope)).to(device)
    if config.epochs and len(training.class_ids) > 1:
        run = BaseTraining(part, training, config, device, objective, check, pretrained=backbone.pretrained)
        run.train(report, checkpoint)
    features = features_of(part, training, device, check=check)  # (n, v, M)
    space = fit_space(config.metric, features, training.labels, shrink=config.shrink)
    prototypes = mean_prototypes(space.embed(features), training.owners, len(training.class_ids))
    bank = PrototypeBank.empty(backbone.dim, config.copies).with_classes(
        training.class_ids, prototypes, training.counts.tolist()
    )
    weights = weights_of_part(part, config.scope) if config.epochs else {}
    scatter = scatter_of(features, training.labels)
    return BaseOutcome(LearnerState(backbone.name, weights, space, bank, scatter), part.cpu())
