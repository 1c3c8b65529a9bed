"""Results with five shots per class on the pretrained network: no base session, no refinement.

Three questions. Does the mean over several views of each shot improve accuracy? Are further images of a few taught
classes accepted, and images of all other classes detected as unknown? If one of five shots shows another class, is it
reported as an outlier? Everything is measured on training images.
"""

from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from bench.datasets import Session
from bench.fscil import RunContext, activations
from bench.methods import Setup
from core.bank import PrototypeBank
from core.classifier import Certainty, NearestClassMean
from core.held_out import held_out_distances, outlying
from core.incremental_session import IncrementalConfig
from core.prototypes import mean_prototypes
from core.space import Space
from core.unknown import threshold_of
from core.views import LabelledViews, features_of

SHOTS = 5
KNOWN_CLASSES = (1, 5, 20)
PRIOR_SHOTS = IncrementalConfig().prior_shots


@dataclass(frozen=True)
class OpenSet:
    """Shares in percent, over all draws."""

    classes: int  # number of known classes
    accepted: float  # of further images of known classes
    unknown: float  # of images of other classes: detected as unknown


@dataclass(frozen=True)
class Outliers:
    """Shares in percent, over all draws."""

    false_alarms: float  # of correct shots, where all five are correct
    found: float  # of wrong shots among four correct ones


def measure_accuracy(space: Space, images: LabelledViews, *, draws: int, seed: int) -> float:
    """Percent of further images that are nearest to their own class, after five shots of every class."""
    generator = torch.Generator().manual_seed(seed)
    right = []
    for _ in range(draws):
        shots, others, _ = _split(images, torch.arange(len(images.class_ids)), generator)
        classifier, _ = taught(space, images.select(shots))
        nearest = torch.tensor(classifier.nearest(images.inputs[others, 0]))
        right.append(share(nearest == images.labels[others]))
    return fmean(right)


def measure_open_set(space: Space, images: LabelledViews, classes: int, *, draws: int, seed: int) -> OpenSet:
    """`images` hold features, (n, v, M)."""
    generator = torch.Generator().manual_seed(seed)
    accepted, unknown = [], []
    for _ in range(draws):
        known = torch.randperm(len(images.class_ids), generator=generator)[:classes]
        shots, others, foreign = _split(images, known, generator)
        classifier, threshold = taught(space, images.select(shots))
        accepted.append(share(classifier.distances(images.inputs[others, 0]).min(1).values <= threshold))
        unknown.append(share(classifier.distances(images.inputs[foreign, 0]).min(1).values > threshold))
    return OpenSet(classes, fmean(accepted), fmean(unknown))


def measure_outliers(space: Space, images: LabelledViews, *, draws: int, seed: int) -> Outliers:
    generator = torch.Generator().manual_seed(seed)
    alarms, found = [], []
    for _ in range(draws):
        own = torch.randperm(len(images.class_ids), generator=generator)[:1]
        shots, _, foreign = _split(images, own, generator)
        alarms.append(share(torch.tensor(_outlying(space, images.inputs[shots]))))
        wrong = foreign[torch.randint(len(foreign), (1,), generator=generator)]
        mixed = torch.cat([shots[:-1], wrong])
        found.append(100.0 * _outlying(space, images.inputs[mixed])[-1])
    return Outliers(fmean(alarms), fmean(found))


def base_features(context: RunContext, session: Session) -> LabelledViews:
    """Features of the base session's training images under the pretrained network, (n, v, M)."""
    views = activations(context, Setup(), session.train, "base images")
    return LabelledViews(features_of(context.backbone.tail, views, context.device), views.labels)


def _split(images: LabelledViews, known: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Row numbers of five shots of each known class, of their other images, and of all other classes."""
    shots, others = [], []
    for owner in known.tolist():
        rows = (images.owners == owner).nonzero()[:, 0]
        rows = rows[torch.randperm(len(rows), generator=generator)]
        shots.append(rows[:SHOTS])
        others.append(rows[SHOTS:])
    foreign = (~torch.isin(images.owners, known)).nonzero()[:, 0]
    return torch.cat(shots), torch.cat(others), foreign


def taught(space: Space, shots: LabelledViews) -> tuple[NearestClassMean, float]:
    """A classifier of the classes after teaching, and the distance above which an image is unknown."""
    embeddings = space.embed(shots.inputs)
    empty_bank = PrototypeBank.empty(embeddings.shape[-1], 1)
    means = mean_prototypes(embeddings, shots.owners, len(shots.class_ids))
    bank = empty_bank.with_classes(shots.class_ids, means, shots.counts.tolist())
    threshold = threshold_of(held_out_distances(space, embeddings, shots, empty_bank, prior_shots=PRIOR_SHOTS))
    assert threshold is not None
    return NearestClassMean(space, bank, Certainty()), threshold


def _outlying(space: Space, features: Tensor) -> list[bool]:
    embeddings = space.embed(features)
    shots = LabelledViews(embeddings, torch.zeros(len(embeddings), dtype=torch.long))
    empty_bank = PrototypeBank.empty(embeddings.shape[-1], 1)
    return outlying(held_out_distances(space, embeddings, shots, empty_bank, prior_shots=PRIOR_SHOTS))


def share(hits: Tensor) -> float:
    return 100.0 * float(hits.float().mean())
