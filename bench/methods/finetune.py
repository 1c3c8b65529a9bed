"""Ft-CNN (Tao et al., CVPR 2020): network and classifier learn from the new shots only, and forget old classes."""

from bench.methods.contract import Method, Outcome, RivalValues, SessionContext
from bench.methods.head_training import outcome_of, starting_network, train_head


def learn(session: SessionContext) -> Outcome:
    network = train_head(session, starting_network(session), session.shots, session.setup.values)
    return outcome_of(session, network)


FINETUNE = Method(learn, knobs=("rival.rate", "rival.epochs"), defaults=RivalValues(epochs=20))
