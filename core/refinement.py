"""A gated session: learn, measure, and keep the result only if it is no worse.

Whatever the verdict, the new classes are in the state to serve: refined when promoted, as plain class means when
rejected.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from core.backbones import Backbone
from core.errors import Diverged
from core.guard import Judge, Measure, Verdict, judge, measure
from core.incremental_session import IncrementalConfig, add_classes, incremental_session
from core.progress import Report, silent
from core.state import LearnerState
from core.views import CPU, LabelledViews, features_of, trainable_part


@dataclass(frozen=True, eq=False)
class Refinement:
    """The outcome of a gated session, with the network and the features of the state to serve."""

    provisional: LearnerState  # the parent and the new classes, untrained
    candidate: LearnerState | None  # the trained state; None where training diverged
    verdict: Verdict
    module: nn.Module  # the part of the backbone that the session trains, in evaluation mode on the CPU
    shot_features: Tensor  # (S, V, M)
    guard_features: Tensor | None  # (G, M)

    @property
    def state(self) -> LearnerState:
        """The state to serve."""
        return self.candidate if self.candidate and self.verdict.promoted else self.provisional


def refine(
    backbone: Backbone,
    parent: LearnerState,
    shots: LabelledViews,
    config: IncrementalConfig,
    *,
    guard: LabelledViews | None,
    judge: Judge = judge,
    device: torch.device | str = "cpu",
    report: Report = silent,
) -> Refinement:
    """Run one session on `parent`, whose weights `backbone` carries, and judge it on guard images and new shots."""
    shots.require_images()
    part = trainable_part(backbone, config.scope)
    before = _Features.of(part, features_of(part, shots, CPU), shots, guard)
    provisional = add_classes(parent, before.shots, config)
    measured = before.measure(provisional, config)
    try:
        session = incremental_session(
            backbone, parent, shots, config, features=before.shots.inputs, device=device, report=report
        )
    except Diverged as error:
        verdict = Verdict(False, str(error), measured, Measure(None, None))
        return Refinement(provisional, None, verdict, *before.served())
    after = _Features.of(session.module, session.features, shots, guard)
    verdict = judge(measured, after.measure(session.state, config))
    served = after if verdict.promoted else before
    return Refinement(provisional, session.state, verdict, *served.served())


@dataclass(frozen=True, eq=False)
class _Features:
    """Features of shots and guard images under one module."""

    module: nn.Module
    shots: LabelledViews  # (S, V, M)
    guard: LabelledViews | None  # (G, 1, M)

    @classmethod
    def of(cls, module: nn.Module, features: Tensor, shots: LabelledViews, guard: LabelledViews | None) -> "_Features":
        """`features` are those of the shots."""
        seen = LabelledViews(features, shots.labels)
        if guard is None or not len(guard):
            return cls(module, seen, None)
        return cls(module, seen, LabelledViews(features_of(module, guard.centre(), CPU), guard.labels))

    def measure(self, state: LearnerState, config: IncrementalConfig) -> Measure:
        return measure(state, guard=self.guard, shots=self.shots, prior_shots=config.prior_shots)

    def served(self) -> tuple[nn.Module, Tensor, Tensor | None]:
        return self.module, self.shots.inputs, None if self.guard is None else self.guard.inputs[:, 0]
