"""EEIL (Castro et al., "End-to-End Incremental Learning", ECCV 2018): distillation, then balanced fine-tuning.

First network and classifier learn from exemplars and new shots, held to the earlier answers about old classes. The
classes that have more images win too often then, so a second, slower phase takes equally many images of each class and
is held to the answers of the first. The classifier itself answers.
"""

from dataclasses import replace

from bench.methods.contract import Method, Outcome, RivalValues, SessionContext
from bench.methods.exemplars import balanced, base_exemplars
from bench.methods.head_training import Extra, distillation, outcome_of, starting_network, train_head

SLOWER = 10.0  # the paper's: the second phase has a tenth of the learning rate


def learn(session: SessionContext) -> Outcome:
    values, shots = session.setup.values, session.all_shots
    images = base_exemplars(session, values.exemplars).joined(shots)

    def held_to(classes: int) -> Extra:
        """To the answers over so many classes at the start of the phase."""
        return lambda batch: values.strength * distillation(batch, classes)

    first = train_head(session, starting_network(session), images, values, extra=held_to(len(session.state.bank)))
    gentle = replace(
        values, rate=values.rate / SLOWER, head_rate=values.head_rate / SLOWER, epochs=max(1, values.epochs // 2)
    )
    few = min(max(1, values.exemplars), int(shots.counts.min()))  # a base class of one image does not lower it
    second = train_head(session, first, balanced(images, few), gentle, extra=held_to(len(session.class_ids)))
    return outcome_of(session, second)


EEIL = Method(learn, defaults=RivalValues(exemplars=10), keeps="exemplars")
