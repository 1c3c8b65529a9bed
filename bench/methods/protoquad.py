"""The sessions of this project, with or without the gate: the paper's quadruplets, with what was added since."""

from dataclasses import replace

from bench.methods.contract import Method, Outcome, SessionContext
from core.guard import judge
from core.refinement import refine
from core.state import with_weights
from core.trials import SessionImages


def learn(session: SessionContext) -> Outcome:
    setup, parent, start = session.setup, session.state, None
    replay, guard = session.old_shots, session.guard
    if replay is not None and setup.replay:
        parent = replace(parent, scatter=session.base.scatter)
        start = with_weights(session.pretrained or session.backbone, session.base.weights)
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
    return Outcome(refinement.state, refinement.verdict if setup.gate else None)


PROTOQUAD = Method(learn, knobs=("incremental.learning_rate", "incremental.prior_shots"), keeps="bank")
