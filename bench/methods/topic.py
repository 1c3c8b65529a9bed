"""TOPIC (Tao et al., "Few-Shot Class-Incremental Learning", CVPR 2020): a neural gas remembers where features were.

Nodes spread over the base features, each with the image nearest to it. A session adds nodes for the new classes.
Anchor loss: the images of old nodes must stay at their nodes, in units of the nodes' variance. Min-max loss: new shots
go to the node of their class, and away from the nearest node of any other. Simplified: batch neural gas (Cottrell et
al., 2006) instead of an online one, which needs no learning rate; the nearest node instead of the edges of an aged
graph; the gas of the base session is computed again in each session instead of being stored.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.methods.contract import Method, Outcome, RivalValues, SessionContext
from bench.methods.exemplars import base_embeddings
from bench.methods.head_training import Batch, Network, outcome_of, starting_network, targets_of, train_head
from core.views import LabelledViews, features_of

PASSES = 8
APART = 0.5  # squared distance beyond which a shot is far enough from the node of another class


@dataclass(frozen=True, eq=False)
class Gas:
    nodes: Tensor  # (N, M)
    variance: Tensor  # (M,) of vectors around their nearest node, at mean 1
    nearest: Tensor  # (N,) the vector that is nearest to each node


def neural_gas(vectors: Tensor, count: int, seed: int) -> Gas:
    """Nodes among vectors (n, M): each is the mean of all vectors, weighted by its rank among the nodes of a vector."""
    generator = torch.Generator().manual_seed(seed)
    nodes = vectors[torch.randperm(len(vectors), generator=generator)[:count]]
    reach = torch.logspace(0, -2, PASSES) * max(1.0, len(nodes) / 10)
    for sigma in reach.clamp_min(0.1).tolist():
        ranks = torch.cdist(vectors, nodes).argsort(1).argsort(1)  # (n, N)
        weights = torch.exp(-ranks / sigma)
        nodes = weights.T @ vectors / weights.sum(0)[:, None].clamp_min(1e-12)
    apart = torch.cdist(vectors, nodes)
    variance = (vectors - nodes[apart.argmin(1)]).square().mean(0).clamp_min(1e-8)
    return Gas(nodes, variance / variance.mean(), apart.argmin(0))


def learn(session: SessionContext) -> Outcome:
    values, known = session.setup.values, len(session.state.bank)
    base = session.all_base_images
    gas = neural_gas(base_embeddings(session), values.exemplars * len(base.class_ids), session.setup.incremental.seed)
    images = base.select(gas.nearest).joined(session.all_shots)
    start = starting_network(session)
    places = _places(session, start, images, gas)  # (n, M) the node of each image
    owners = targets_of(session, images).to(session.device)

    def extra(batch: Batch) -> Tensor:
        away = F.normalize(batch.embeddings, dim=1) - places[batch.picked]
        old = batch.targets < known
        anchored = _mean((away.square() / gas.variance.to(away.device)).sum(1)[old])
        pulled = _mean(away.square().sum(1)[~old])
        return values.strength * (anchored + pulled + _pushed(batch, places, owners, known))

    return outcome_of(session, train_head(session, start, images, values, extra=extra))


def _places(session: SessionContext, start: Network, images: LabelledViews, gas: Gas) -> Tensor:
    """Nodes of the gas, then the old shots where they are, then the class means of the new shots."""
    shots = images.select(torch.arange(len(gas.nodes), len(images)))
    embeddings = session.state.space.embed(features_of(start.part, shots.centre(), session.device))[:, 0]
    targets = targets_of(session, shots)
    known = len(session.state.bank)
    where = torch.where((targets < known)[:, None], embeddings, start.rows.cpu()[targets])
    return torch.cat([gas.nodes, F.normalize(where, dim=1)]).to(session.device)


def _pushed(batch: Batch, places: Tensor, owners: Tensor, known: int) -> Tensor:
    """New shots away from the nearest node of another class."""
    new = batch.targets >= known
    if not bool(new.any()):
        return places.new_zeros(())
    squares = 2 - 2 * F.normalize(batch.embeddings[new], dim=1) @ F.normalize(places, dim=1).T
    others = squares.masked_fill(owners == batch.targets[new][:, None], torch.inf)
    return torch.relu(APART - others.amin(1)).mean()


def _mean(values: Tensor) -> Tensor:
    return values.mean() if len(values) else values.sum()


TOPIC = Method(learn, defaults=RivalValues(exemplars=4), keeps="nodes")
