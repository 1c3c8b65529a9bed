"""What the trained rivals share: the trained part and a cosine classifier ("head") learn together from labelled views.

The head has a row for each class, in the space of the state, and starts from prototypes. Batch-norm keeps its
statistics: a few shots would spoil them. The rows become the prototypes of the bank.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.methods.contract import Outcome, RivalValues, SessionContext
from core.backbones import Backbone
from core.progress import Progress
from core.prototypes import mean_prototypes
from core.selection import Masks, freeze_unselected, mask_gradients
from core.space import Space
from core.state import weights_of_part
from core.views import LabelledViews, as_batch, features_of, shuffled_batches, trainable_part

SCALE = 16.0  # of the cosine logits, as in the base session
TEMPERATURE = 2.0  # of distillation
STEEPEST = 1.0  # norm of a gradient at most: with frozen batch-norm a network that is not yet good would diverge


@dataclass(frozen=True, eq=False)
class Network:
    """The part that is trained, with the rows of its head."""

    part: nn.Module
    rows: Tensor  # (K, M)
    space: Space

    def embed(self, inputs: Tensor) -> Tensor:
        return self.space.embed(self.part(inputs))

    def cosines(self, embeddings: Tensor) -> Tensor:
        return F.normalize(embeddings, dim=1) @ F.normalize(self.rows, dim=1).T


@dataclass(frozen=True, eq=False)
class Batch:
    """One step, as an extra loss sees it."""

    inputs: Tensor
    targets: Tensor  # (n,) rows of the head
    embeddings: Tensor  # (n, M)
    cosines: Tensor  # (n, K)
    before: Network  # at the start of the training
    network: Network
    picked: Tensor  # (n,) which images these are

    def embeddings_before(self) -> Tensor:
        with torch.no_grad():
            return self.before.embed(self.inputs)


Extra = Callable[[Batch], Tensor]


def network_of(session: SessionContext, backbone: Backbone, rows: Tensor) -> Network:
    """A copy on the device of the session, ready to be trained."""
    part = deepcopy(trainable_part(backbone, session.setup.incremental.scope)).to(session.device).eval()
    return Network(part, rows.to(session.device), session.state.space.to(session.device))


def means_of(session: SessionContext, backbone: Backbone, images: LabelledViews) -> Tensor:
    """Class means of the images under this backbone, in the space of the state, (C, M)."""
    part = trainable_part(backbone, session.setup.incremental.scope).to(session.device)
    embeddings = session.state.space.embed(features_of(part, images, session.device))
    return mean_prototypes(embeddings, images.owners, len(images.class_ids))


def starting_network(session: SessionContext) -> Network:
    """The parent's network; its head has the prototypes of old classes, and the means of the new shots."""
    new = means_of(session, session.backbone, session.shots)
    return network_of(session, session.backbone, torch.cat([session.state.bank.prototypes, new]))


def targets_of(session: SessionContext, images: LabelledViews) -> Tensor:
    row = {int(class_id): place for place, class_id in enumerate(session.class_ids)}
    return torch.tensor([row[label] for label in images.labels.tolist()])


def train_head(
    session: SessionContext,
    start: Network,
    images: LabelledViews,
    values: RivalValues,
    *,
    extra: Extra | None = None,
    masks: Masks | None = None,
    restrain: Callable[[nn.Module], None] | None = None,
    classify: bool = True,
) -> Network:
    """A trained copy of `start`, by cross-entropy (unless `classify` is off) and the extra loss.

    `masks`: weights that may change; `restrain`: brings weights back to where they may be, after each step.
    """
    part, head = deepcopy(start.part), nn.Parameter(start.rows.clone())
    network = Network(part, head, start.space)
    optimiser = _optimiser(part, head, values, masks)
    total = values.epochs * sum(1 for _ in shuffled_batches(len(images), values.batch, torch.Generator()))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(1, total))
    generator = torch.Generator().manual_seed(session.setup.incremental.seed)
    targets = targets_of(session, images).to(session.device)
    for epoch in range(values.epochs):
        batches = list(shuffled_batches(len(images), values.batch, generator))
        for number, picked in enumerate(batches):
            views = torch.randint(images.views, (len(picked),), generator=generator)
            inputs = as_batch(images.inputs[picked, views], session.device)
            batch = _batch(inputs, targets[picked], start, network, picked)
            loss = F.cross_entropy(SCALE * batch.cosines, batch.targets) if classify else inputs.new_zeros(()).float()
            if extra is not None:
                loss = loss + extra(batch)
            optimiser.zero_grad()
            loss.backward()
            if masks is not None:
                mask_gradients(part, masks, 0.0)
            nn.utils.clip_grad_norm_(part.parameters(), STEEPEST)
            optimiser.step()
            schedule.step()
            if restrain is not None:
                restrain(part)
            losses = {"loss": float(loss.detach())}
            session.report(Progress(epoch + 1, values.epochs, number + 1, len(batches), losses))
    return Network(part, head.detach(), start.space)


def _batch(inputs: Tensor, targets: Tensor, start: Network, network: Network, picked: Tensor) -> Batch:
    embeddings = network.embed(inputs)
    return Batch(inputs, targets, embeddings, network.cosines(embeddings), start, network, picked)


def distillation(batch: Batch, known: int) -> Tensor:
    """How much the answers over the `known` classes of the start have changed (Hinton et al., 2015)."""
    before = batch.before.cosines(batch.embeddings_before())[:, :known]
    softened = SCALE / TEMPERATURE
    return TEMPERATURE**2 * F.kl_div(
        F.log_softmax(softened * batch.cosines[:, :known], 1),
        F.softmax(softened * before, 1),
        reduction="batchmean",
    )


def outcome_of(session: SessionContext, network: Network, rows: Tensor | None = None) -> Outcome:
    """The trained weights, and the rows of the head or other `rows` (K, M) as prototypes."""
    rows = (network.rows if rows is None else rows).detach().cpu()
    known = len(session.state.bank)
    bank = session.state.bank.with_copies(rows[:known])
    bank = bank.with_classes(session.shots.class_ids, rows[known:], session.shots.counts.tolist())
    trained = weights_of_part(network.part, session.setup.incremental.scope)
    return Outcome(replace(session.state, weights={**session.state.weights, **trained}, bank=bank))


def _optimiser(part: nn.Module, head: nn.Parameter, values: RivalValues, masks: Masks | None) -> torch.optim.Optimizer:
    for parameter in part.parameters():
        parameter.requires_grad_()
    parameters = list(part.parameters()) if masks is None else freeze_unselected(part, masks)
    groups = [{"params": parameters, "lr": values.rate}, {"params": [head], "lr": values.head_rate}]
    return torch.optim.SGD(groups, lr=values.rate, momentum=0.9)
