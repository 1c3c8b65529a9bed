"""LUCIR (Hou et al., "Learning a Unified Classifier Incrementally via Rebalancing", CVPR 2019); the paper's "NCM".

A cosine classifier, so that no class wins by the length of its row. Less-forget: the direction of a feature must stay
where the network had it before, the more so the more old classes there are. Margin ranking: an exemplar of an old
class must be nearer to its class than to the new classes that it resembles most. The optional class-balanced
fine-tuning of the paper is left out.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.methods.contract import Method, Outcome, RivalValues, SessionContext
from bench.methods.exemplars import base_exemplars
from bench.methods.head_training import Batch, outcome_of, starting_network, train_head

MARGIN = 0.5
RIVALS = 2  # new classes that an exemplar is kept apart from


def learn(session: SessionContext) -> Outcome:
    values, known = session.setup.values, len(session.state.bank)
    images = base_exemplars(session, values.exemplars).joined(session.all_shots)
    weight = values.strength * math.sqrt(known / len(session.shots.class_ids))

    def extra(batch: Batch) -> Tensor:
        return weight * less_forget(batch.embeddings, batch.embeddings_before()) + margin_ranking(batch, known)

    return outcome_of(session, train_head(session, starting_network(session), images, values, extra=extra))


def less_forget(embeddings: Tensor, before: Tensor) -> Tensor:
    """Mean of 1 − cosine with the embedding before."""
    return (1 - F.cosine_similarity(embeddings, before, dim=1)).mean()


def margin_ranking(batch: Batch, known: int) -> Tensor:
    """Mean over old images and their most similar new classes of [margin − cos(own) + cos(new)]₊."""
    old = batch.targets < known
    if not bool(old.any()):
        return batch.cosines.new_zeros(())
    cosines = batch.cosines[old]
    own = cosines.gather(1, batch.targets[old][:, None])
    similar = cosines[:, known:].topk(min(RIVALS, cosines.shape[1] - known), dim=1).values
    return torch.relu(MARGIN - own + similar).mean()


LUCIR = Method(learn, defaults=RivalValues(strength=5.0), keeps="exemplars")
