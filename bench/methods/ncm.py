"""NCM: nearest class mean (Mensink et al., TPAMI 2013). The network is frozen; a new class is the mean of its shots."""

from dataclasses import replace

from bench.methods.contract import Method, Outcome, SessionContext
from core.refinement import teach


def learn(session: SessionContext) -> Outcome:
    config = replace(session.setup.incremental, prior_shots=0.0)
    return Outcome(teach(session.backbone, session.state, session.shots, config))


NCM = Method(learn, knobs=())
