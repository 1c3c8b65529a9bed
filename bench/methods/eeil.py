"""EEIL (Castro et al., "End-to-End Incremental Learning", ECCV 2018): distillation, then balanced fine-tuning.

First network and classifier learn from exemplars and new shots, held to the earlier answers about old classes. The
classes that have more images win too often then, so a second, slower phase takes equally many images of each class and
is held to the answers of the first. The classifier itself answers.
"""

from dataclasses import replace

from torch import Tensor

from bench.methods.contract import Method, Outcome, RivalValues, SessionContext
from bench.methods.exemplars import balanced, base_exemplars
from bench.methods.head_training import Batch, distillation, outcome_of, starting_network, train_head

SLOWER = 10.0  # the paper's: the second phase has a tenth of the learning rate


def learn(session: SessionContext) -> Outcome:
    values, known = session.setup.values, len(session.state.bank)
    images = base_exemplars(session, values.exemplars).joined(session.all_shots)

    def extra(batch: Batch) -> Tensor:
        return values.strength * distillation(batch, known)

    first = train_head(session, starting_network(session), images, values, extra=extra)
    gentle = replace(
        values, rate=values.rate / SLOWER, head_rate=values.head_rate / SLOWER, epochs=max(1, values.epochs // 2)
    )
    second = train_head(session, first, balanced(images, int(images.counts.min())), gentle, extra=extra)
    return outcome_of(session, second)


EEIL = Method(learn, defaults=RivalValues(exemplars=10), keeps="exemplars")
