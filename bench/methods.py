"""The methods under test. Each turns a learner's state and a session's shots into the next state."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import nn

from core.backbones import Backbone
from core.base_session import BaseConfig
from core.guard import Verdict
from core.incremental_session import IncrementalConfig, incremental_session, teach
from core.progress import Progress, Report
from core.prototypes import mean_prototypes
from core.refinement import refine
from core.state import LearnerState, weights_of, with_weights
from core.views import LabelledViews, as_batch, features_of, trainable_part


@dataclass(frozen=True)
class Setup:
    """Everything that decides what a run computes."""

    method: str = "protoquad"
    base: BaseConfig = field(default_factory=BaseConfig)
    incremental: IncrementalConfig = field(default_factory=IncrementalConfig)
    gate: bool = True
    views: int = 8  # augmented views of every training picture, beside the centre view
    guard_per_class: int = 2  # base pictures held out of training, to measure with

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"there is no method {self.method!r}; there are {', '.join(METHODS)}")


@dataclass(frozen=True, eq=False)
class Situation:
    """What a method is given for one session; `backbone` carries the weights of `state`."""

    backbone: Backbone
    state: LearnerState
    shots: LabelledViews
    guard: LabelledViews | None
    setup: Setup
    device: torch.device
    report: Report


Outcome = tuple[LearnerState, Verdict | None]


def ncm(now: Situation) -> Outcome:
    """Frozen network, plain class means."""
    return teach(now.backbone, now.state, now.shots, replace(now.setup.incremental, prior_shots=0.0)), None


def teen(now: Situation) -> Outcome:
    """Frozen network, class means pulled half-way to similar base classes (Wang et al., NeurIPS 2023, α = 0.5)."""
    as_many = float(now.shots.counts.float().mean())
    config = replace(now.setup.incremental, prior="neighbours", prior_shots=as_many)
    return teach(now.backbone, now.state, now.shots, config), None


def protoquad(now: Situation) -> Outcome:
    """Our sessions, with or without the gate."""
    config = now.setup.incremental
    if not now.setup.gate:
        session = incremental_session(now.backbone, now.state, now.shots, config, device=now.device, report=now.report)
        return session.state, None
    refinement = refine(
        now.backbone, now.state, now.shots, config, guard=now.guard, device=now.device, report=now.report
    )
    return refinement.state, refinement.verdict


FINETUNE_EPOCHS = 20
FINETUNE_RATE = 0.01
LOGIT_SCALE = 16.0


def finetune(now: Situation) -> Outcome:
    """Ft-CNN: train tail and classifier by cross-entropy on the new shots alone, and forget.

    The classifier is a cosine layer that starts from the class means; its rows stand in the bank as prototypes.
    """
    config, known = now.setup.incremental, len(now.state.bank)
    network = with_weights(now.backbone, now.state.weights).to(now.device)
    part = trainable_part(network, config.scope)
    space = now.state.space.to(now.device)
    embeddings = now.state.space.embed(features_of(part, now.shots, now.device))
    means = mean_prototypes(embeddings, now.shots.owners, len(now.shots.class_ids))
    head = nn.Parameter(torch.cat([now.state.bank.prototypes, means]).to(now.device))
    optimiser = torch.optim.SGD([*part.parameters(), head], lr=FINETUNE_RATE, momentum=0.9)
    generator = torch.Generator().manual_seed(config.seed)
    targets = (known + now.shots.owners).to(now.device)
    for epoch in range(FINETUNE_EPOCHS):
        views = torch.randint(now.shots.views, (len(now.shots),), generator=generator)
        inputs = as_batch(now.shots.inputs[torch.arange(len(now.shots)), views], now.device)
        cosines = F.normalize(space.embed(part(inputs)), dim=1) @ F.normalize(head, dim=1).T
        loss = F.cross_entropy(LOGIT_SCALE * cosines, targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        now.report(Progress(epoch + 1, FINETUNE_EPOCHS, 1, 1, {"cross-entropy": float(loss.detach())}))
    rows = head.detach().cpu()
    bank = now.state.bank.with_copies(rows[:known])
    bank = bank.with_classes(now.shots.class_ids, rows[known:], now.shots.counts.tolist())
    weights = {**now.state.weights, **weights_of(network, config.scope)}
    return replace(now.state, weights=weights, bank=bank), None


METHODS: dict[str, Callable[[Situation], Outcome]] = {
    "ncm": ncm,
    "teen": teen,
    "finetune": finetune,
    "protoquad": protoquad,
}
