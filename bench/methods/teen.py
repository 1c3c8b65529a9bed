"""TEEN (Wang et al., "Few-Shot Class-Incremental Learning via Training-Free Prototype Calibration", NeurIPS 2023).

The network is frozen. The mean of few shots lies too near to other classes, and base classes tell where it should be:
it is moved towards the base classes that are most similar to it, half of the way at strength 1 (its α = 0.5).
"""

from dataclasses import replace

from bench.methods.contract import Method, Outcome, SessionContext
from core.refinement import teach


def learn(session: SessionContext) -> Outcome:
    as_many = float(session.shots.counts.float().mean())
    worth = session.setup.values.strength * as_many
    config = replace(session.setup.incremental, prior="neighbours", prior_shots=worth)
    return Outcome(teach(session.backbone, session.state, session.shots, config))


TEEN = Method(learn, knobs=("rival.strength",))
