"""RanPAC (McDonnell et al., NeurIPS 2023) with the calibrated covariances of its few-shot successors (C-RanPAC).

The network is frozen. Features pass a random projection with a ReLU, and ridge regression from there to the classes
needs only sums: the Gram matrix and a sum for each class. Five shots say nothing about the spread of a class, so a new
class borrows that of the base classes which resemble it: further features are drawn around its shots' mean with the
deviations of images of those classes. The ridge is chosen on held-out ones of them. Everything is computed again from
the images.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.methods.base_features import base_features, features_of_base_images
from bench.methods.contract import Method, Outcome, SessionContext
from bench.methods.ncm import learn as class_means
from core.bank import ClassId
from core.space import power_normalised
from core.views import LabelledViews

RIDGES = tuple(10.0**power for power in range(-3, 6))
HELD_OUT = 5  # every fifth sample of a class is held out to choose the ridge
SHARPNESS = 16.0  # of how much a base class resembles a new one


@dataclass(frozen=True, eq=False)
class Samples:
    vectors: Tensor  # (n, M)
    targets: Tensor  # (n,) columns of the regression


def ridge_weights(inputs: Tensor, targets: Tensor, ridge: float, classes: int) -> Tensor:
    """(G + λI)⁻¹ Xᵀ Y, (L, C), with a column of Y for each class."""
    inputs = inputs.double()
    wanted = F.one_hot(targets, classes).double()
    gram = inputs.T @ inputs
    gram.diagonal().add_(ridge)
    weights: Tensor = torch.linalg.solve(gram, inputs.T @ wanted).float()
    return weights


def learn(session: SessionContext) -> Outcome:
    state = class_means(session).state if len(session.shots) else session.state
    images = session.all_base_images
    base = LabelledViews(power_normalised(features_of_base_images(session))[:, None], images.labels)
    generator = torch.Generator().manual_seed(session.setup.incremental.seed)
    projection = torch.randn(base.inputs.shape[-1], session.setup.values.width, generator=generator)

    def projected(vectors: Tensor) -> Tensor:
        return torch.relu(vectors @ projection)

    samples = _samples(session, base, state.bank.class_ids, generator)
    inputs, classes = projected(samples.vectors), len(state.bank)
    weights = ridge_weights(inputs, samples.targets, best_ridge(inputs, samples.targets, classes), classes)

    def nearest(features: Tensor) -> list[ClassId]:
        columns = (projected(power_normalised(features)) @ weights).argmax(1)
        return [state.bank.class_ids[column] for column in columns.tolist()]

    return Outcome(state, nearest=nearest)


def best_ridge(inputs: Tensor, targets: Tensor, classes: int) -> float:
    """The candidate that is right about most held-out samples, of every class as many."""
    inputs, held = inputs.double(), torch.zeros(len(targets), dtype=torch.bool)
    for target in range(classes):
        held[(targets == target).nonzero()[HELD_OUT - 1 :: HELD_OUT, 0]] = True
    wanted = F.one_hot(targets, classes).double()
    values, vectors = torch.linalg.eigh(inputs[~held].T @ inputs[~held])  # once for all candidates
    sums, tests = vectors.T @ (inputs[~held].T @ wanted[~held]), inputs[held] @ vectors

    def right(ridge: float) -> int:
        answers = (tests @ (sums / (values.clamp_min(0) + ridge)[:, None])).argmax(1)
        return int((answers == targets[held]).sum())

    return max(RIDGES, key=right)


def _samples(
    session: SessionContext, base: LabelledViews, class_ids: tuple[ClassId, ...], generator: torch.Generator
) -> Samples:
    """Base images as they are; of each later class as many drawn features as a base class has images."""
    column = {int(class_id): place for place, class_id in enumerate(class_ids)}
    vectors, targets = [base.inputs[:, 0]], [torch.tensor([column[label] for label in base.labels.tolist()])]
    count = max(1, round(len(base) / len(base.class_ids)))
    means = torch.stack([base.inputs[base.owners == row, 0].mean(0) for row in range(len(base.class_ids))])
    deviations = base.inputs[:, 0] - means[base.owners]
    shots = session.all_shots
    seen = power_normalised(base_features(session, shots)) if len(shots) else base.inputs[:0]
    for label in shots.class_ids:
        mean = seen[shots.labels == label].flatten(0, 1).mean(0)
        drawn = _drawn(mean, means, deviations, base.owners, count, generator)
        vectors.append(drawn)
        targets.append(torch.full((count,), column[label]))
    return Samples(torch.cat(vectors), torch.cat(targets))


def _drawn(
    mean: Tensor, means: Tensor, deviations: Tensor, owners: Tensor, count: int, generator: torch.Generator
) -> Tensor:
    """Gaussian features around a mean, with the covariances of the base classes that resemble it."""
    alike = torch.softmax(SHARPNESS * F.normalize(means, dim=1) @ F.normalize(mean, dim=0), 0)
    kinds = torch.multinomial(alike, count, replacement=True, generator=generator)
    drawn = []
    for kind in kinds.tolist():
        rows = deviations[owners == kind]
        noise = torch.randn(len(rows), generator=generator)
        drawn.append(mean + noise @ rows / max(1, len(rows) - 1) ** 0.5)  # covariance: that of the rows
    return torch.stack(drawn)


RANPAC = Method(learn, knobs=("rival.width",), keeps="gram", answers_at_once=True)
