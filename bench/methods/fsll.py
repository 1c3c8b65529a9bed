"""FSLL (Mazumder, Singh and Rai, "Few-Shot Lifelong Learning", AAAI 2021): few trainable parameters, prototypes.

Of each layer only the weights of smallest size may change. They learn from a triplet loss on the new shots; a second
term keeps them near to where they were (L1), a third turns new shots away from old prototypes. An image belongs to the
nearest prototype. Old prototypes stay as they are, and no old image is kept.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.methods.contract import Method, Outcome, RivalValues, SessionContext
from bench.methods.head_training import Batch, outcome_of, starting_network, targets_of, train_head
from core.prototypes import mean_prototypes
from core.selection import Masks, smallest_weights
from core.views import features_of

MARGIN = 0.2  # of the triplets, in cosines


def learn(session: SessionContext) -> Outcome:
    values, known = session.setup.values, len(session.state.bank)
    start = starting_network(session)
    masks = smallest_weights(start.part, round(values.fraction * session.backbone.parameter_count))

    def extra(batch: Batch) -> Tensor:
        apart = batch.cosines[:, :known].amax(1).relu().mean()
        return triplets(batch.embeddings, batch.targets) + apart + values.strength * moved(batch, masks)

    network = train_head(session, start, session.shots, values, extra=extra, masks=masks, classify=False)
    embeddings = session.state.space.embed(features_of(network.part, session.shots, session.device))
    owners = targets_of(session, session.shots) - known
    means = mean_prototypes(embeddings, owners, len(session.shots.class_ids))
    return outcome_of(session, network, torch.cat([session.state.bank.prototypes, means]))


def triplets(embeddings: Tensor, targets: Tensor) -> Tensor:
    """Mean over images of [margin − cos(least similar of its class) + cos(most similar of another)]₊."""
    unit = F.normalize(embeddings, dim=1)
    cosines, same = unit @ unit.T, targets[:, None] == targets
    if bool(same.all()):
        return cosines.new_zeros(()) * cosines.sum()
    farthest = cosines.masked_fill(~same, torch.inf).amin(1)
    nearest = cosines.masked_fill(same, -torch.inf).amax(1)
    return torch.relu(MARGIN - farthest + nearest).mean()


def moved(batch: Batch, masks: Masks) -> Tensor:
    """How far the weights that may change are from where they were, mean over them (L1)."""
    now, before = (dict(network.part.named_parameters()) for network in (batch.network, batch.before))
    apart = [(now[name] - before[name].detach())[mask].abs().sum() for name, mask in masks.items()]
    return torch.stack(apart).sum() / max(1, sum(int(mask.sum()) for mask in masks.values()))


# The gradient of `moved` has a norm of one over the root of how many weights may change: 0.01 on a small network whose
# other losses have gradients of about 7. At 300 it is half of theirs. The head is fixed: it would take up what is meant
# for the network, and old prototypes stay.
FSLL = Method(learn, defaults=RivalValues(strength=300.0, head_rate=0.0))
