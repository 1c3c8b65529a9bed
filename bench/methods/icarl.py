"""iCaRL (Rebuffi et al., CVPR 2017): herded exemplars, distillation, nearest mean of exemplars.

The network learns from exemplars of old classes and the new shots together, and is held to its earlier answers about
old classes. An image then belongs to the class whose exemplars have the nearest mean under the new network.
Cross-entropy over cosines stands where the paper has a sigmoid for each class, as later work does.
"""

from torch import Tensor

from bench.methods.contract import Method, Outcome, SessionContext
from bench.methods.exemplars import base_exemplars
from bench.methods.head_training import (
    Batch,
    Network,
    distillation,
    outcome_of,
    starting_network,
    targets_of,
    train_head,
)
from core.prototypes import mean_prototypes
from core.views import LabelledViews, features_of


def learn(session: SessionContext) -> Outcome:
    values, known = session.setup.values, len(session.state.bank)
    images = base_exemplars(session, values.exemplars).joined(session.all_shots)

    def extra(batch: Batch) -> Tensor:
        return values.strength * distillation(batch, known)

    network = train_head(session, starting_network(session), images, values, extra=extra)
    return outcome_of(session, network, _nearest_means(session, network, images))


def _nearest_means(session: SessionContext, network: Network, images: LabelledViews) -> Tensor:
    embeddings = session.state.space.embed(features_of(network.part, images, session.device))
    return mean_prototypes(embeddings, targets_of(session, images), len(session.class_ids))


ICARL = Method(learn, keeps="exemplars")
