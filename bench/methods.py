"""The methods under test. Each makes the next state from a learner's state and the shots of a session."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import nn

from core.backbones import Backbone
from core.base_session import BaseConfig
from core.guard import Verdict, judge
from core.incremental_session import IncrementalConfig
from core.progress import Progress, Report
from core.prototypes import mean_prototypes
from core.refinement import SessionImages, refine, teach
from core.state import LearnerState, weights_of, with_weights
from core.views import LabelledViews, as_batch, features_of, trainable_part


@dataclass(frozen=True)
class Setup:
    """All settings that change the result of a run."""

    method: str = "protoquad"
    base: BaseConfig = field(default_factory=BaseConfig)
    incremental: IncrementalConfig = field(default_factory=IncrementalConfig)
    gate: bool = True
    replay: bool = True  # learn from the shots of earlier sessions again
    views: int = 8  # augmented views of every training image, beside the centre view
    guard_per_class: int = 2  # base images held out of training, to measure on

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"there is no method {self.method!r}; there are {', '.join(METHODS)}")


@dataclass(frozen=True, eq=False)
class SessionContext:
    """The input of a method for one session; `backbone` has the weights of `state`."""

    backbone: Backbone
    base: LearnerState  # after the base session
    state: LearnerState
    shots: LabelledViews
    old_shots: LabelledViews | None  # of the sessions before
    guard: LabelledViews | None  # of the base classes
    setup: Setup
    device: torch.device
    report: Report


Outcome = tuple[LearnerState, Verdict | None]


def ncm(session: SessionContext) -> Outcome:
    """Frozen network, plain class means."""
    config = replace(session.setup.incremental, prior_shots=0.0)
    return teach(session.backbone, session.state, session.shots, config), None


def teen(session: SessionContext) -> Outcome:
    """Frozen network, class means moved half-way to similar base classes (Wang et al., NeurIPS 2023, α = 0.5)."""
    as_many = float(session.shots.counts.float().mean())
    config = replace(session.setup.incremental, prior="neighbours", prior_shots=as_many)
    return teach(session.backbone, session.state, session.shots, config), None


def protoquad(session: SessionContext) -> Outcome:
    """The sessions of this project, with or without the gate."""
    setup, parent, start = session.setup, session.state, None
    replay, guard = session.old_shots, session.guard
    if replay is not None and setup.replay:
        parent = replace(parent, scatter=session.base.scatter)
        start = with_weights(session.backbone, session.base.weights)
    elif replay is not None:
        old = replay.centre()
        replay, guard = None, old if guard is None else guard.joined(old)
    images = SessionImages(session.shots, replay, guard)
    refinement = refine(
        session.backbone,
        parent,
        images,
        setup.incremental,
        start=start,
        judge=judge if setup.gate else None,
        device=session.device,
        report=session.report,
    )
    return refinement.state, refinement.verdict if setup.gate else None


FINETUNE_EPOCHS = 20
FINETUNE_RATE = 0.01
LOGIT_SCALE = 16.0


def finetune(session: SessionContext) -> Outcome:
    """Ft-CNN: train tail and classifier by cross-entropy on the new shots only, which forgets old classes.

    The classifier is a cosine layer that starts from the class means; its rows become the prototypes of the bank.
    """
    config, known = session.setup.incremental, len(session.state.bank)
    network = with_weights(session.backbone, session.state.weights).to(session.device)
    part = trainable_part(network, config.scope)
    space = session.state.space.to(session.device)
    embeddings = session.state.space.embed(features_of(part, session.shots, session.device))
    means = mean_prototypes(embeddings, session.shots.owners, len(session.shots.class_ids))
    head = nn.Parameter(torch.cat([session.state.bank.prototypes, means]).to(session.device))
    optimiser = torch.optim.SGD([*part.parameters(), head], lr=FINETUNE_RATE, momentum=0.9)
    generator = torch.Generator().manual_seed(config.seed)
    targets = (known + session.shots.owners).to(session.device)
    for epoch in range(FINETUNE_EPOCHS):
        views = torch.randint(session.shots.views, (len(session.shots),), generator=generator)
        inputs = as_batch(session.shots.inputs[torch.arange(len(session.shots)), views], session.device)
        cosines = F.normalize(space.embed(part(inputs)), dim=1) @ F.normalize(head, dim=1).T
        loss = F.cross_entropy(LOGIT_SCALE * cosines, targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        session.report(Progress(epoch + 1, FINETUNE_EPOCHS, 1, 1, {"cross-entropy": float(loss.detach())}))
    rows = head.detach().cpu()
    bank = session.state.bank.with_copies(rows[:known])
    bank = bank.with_classes(session.shots.class_ids, rows[known:], session.shots.counts.tolist())
    weights = {**session.state.weights, **weights_of(network, config.scope)}
    return replace(session.state, weights=weights, bank=bank), None


METHODS: dict[str, Callable[[SessionContext], Outcome]] = {
    "ncm": ncm,
    "teen": teen,
    "finetune": finetune,
    "protoquad": protoquad,
}
