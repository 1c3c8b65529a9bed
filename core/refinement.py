"""A gated session: learn, measure, and keep the result only if it is no worse.

Whatever the verdict, the new classes are there afterwards: refined when promoted, as plain class means when rejected.
"""

from dataclasses import dataclass

import torch

from core.backbones import Backbone
from core.errors import Diverged
from core.guard import TOLERANCE, Measure, Verdict, judge, measure
from core.incremental_session import IncrementalConfig, incremental_session, teach
from core.progress import Report, silent
from core.state import LearnerState, with_weights
from core.views import LabelledViews


@dataclass(frozen=True, eq=False)
class Refinement:
    provisional: LearnerState  # the parent and the new classes, untrained
    candidate: LearnerState | None  # what the session made of it; None where training diverged
    verdict: Verdict

    @property
    def state(self) -> LearnerState:
        """The one to serve."""
        return self.candidate if self.candidate and self.verdict.promoted else self.provisional


def refine(
    backbone: Backbone,
    parent: LearnerState,
    shots: LabelledViews,
    config: IncrementalConfig,
    *,
    guard: LabelledViews | None,
    tolerance: float = TOLERANCE,
    device: torch.device | str = "cpu",
    report: Report = silent,
) -> Refinement:
    """Run one session on `parent`, whose weights `backbone` carries, and judge it on guard pictures and new shots."""
    provisional = teach(backbone, parent, shots, config)

    def measured(network: Backbone, state: LearnerState) -> Measure:
        return measure(network, state, guard=guard, shots=shots, prior_shots=config.prior_shots, scope=config.scope)

    before = measured(backbone, provisional)
    try:
        candidate = incremental_session(backbone, parent, shots, config, device=device, report=report)
    except Diverged as error:
        return Refinement(provisional, None, Verdict(False, str(error), before, Measure(None, None)))
    after = measured(with_weights(backbone, candidate.weights), candidate)
    return Refinement(provisional, candidate, judge(before, after, tolerance))
