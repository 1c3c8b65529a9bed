"""What five shots a class are worth by themselves, under the pretrained network: no base session, no refinement.

Three questions. Are classes told apart better by means over several views of each shot? Are further pictures of a few
taught classes accepted, and those of all other classes refused? And where one of five shots is swapped for a stranger,
is it found? All of it on training pictures.
"""

from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from bench.datasets import Session
from bench.fscil import Bench, activations
from bench.methods import Setup
from core.bank import PrototypeBank
from core.classifier import Certainty, NearestClassMean, threshold_of
from core.held_out import held_out_distances, outlying
from core.incremental_session import IncrementalConfig
from core.prototypes import mean_prototypes
from core.space import Space
from core.views import LabelledViews, features_of

SHOTS = 5
KNOWN_CLASSES = (1, 5, 20)
PRIOR_SHOTS = IncrementalConfig().prior_shots


@dataclass(frozen=True)
class Openness:
    """Shares in percent, over all draws."""

    classes: int  # that are known
    accepted: float  # of further pictures of known classes
    refused: float  # of pictures of other classes


@dataclass(frozen=True)
class Outliers:
    """Shares in percent, over all draws."""

    false_alarms: float  # of right shots, all five being right
    found: float  # of strangers among four right shots


def measure_accuracy(space: Space, pictures: LabelledViews, *, draws: int, seed: int) -> float:
    """Percent of the further pictures that are nearest to their own class, all classes being taught with five shots."""
    generator = torch.Generator().manual_seed(seed)
    right = []
    for _ in range(draws):
        shots, others, _ = _divided(pictures, torch.arange(len(pictures.class_ids)), generator)
        classifier, _ = _taught(space, pictures.select(shots))
        nearest = torch.tensor(classifier.nearest(pictures.inputs[others, 0]))
        right.append(_share(nearest == pictures.labels[others]))
    return fmean(right)


def measure_openness(space: Space, pictures: LabelledViews, classes: int, *, draws: int, seed: int) -> Openness:
    """`pictures` hold features, (n, v, M)."""
    generator = torch.Generator().manual_seed(seed)
    accepted, refused = [], []
    for _ in range(draws):
        known = torch.randperm(len(pictures.class_ids), generator=generator)[:classes]
        shots, others, strangers = _divided(pictures, known, generator)
        classifier, threshold = _taught(space, pictures.select(shots))
        accepted.append(_share(classifier.distances(pictures.inputs[others, 0]).min(1).values <= threshold))
        refused.append(_share(classifier.distances(pictures.inputs[strangers, 0]).min(1).values > threshold))
    return Openness(classes, fmean(accepted), fmean(refused))


def measure_outliers(space: Space, pictures: LabelledViews, *, draws: int, seed: int) -> Outliers:
    generator = torch.Generator().manual_seed(seed)
    alarms, found = [], []
    for _ in range(draws):
        own = torch.randperm(len(pictures.class_ids), generator=generator)[:1]
        shots, _, strangers = _divided(pictures, own, generator)
        alarms.append(_share(torch.tensor(_outlying(space, pictures.inputs[shots]))))
        stranger = strangers[torch.randint(len(strangers), (1,), generator=generator)]
        mixed = torch.cat([shots[:-1], stranger])
        found.append(100.0 * _outlying(space, pictures.inputs[mixed])[-1])
    return Outliers(fmean(alarms), fmean(found))


def base_features(bench: Bench, session: Session) -> LabelledViews:
    """Features of the base session's training pictures under the pretrained network, (n, v, M)."""
    views = activations(bench, Setup(), session.train, "base pictures")
    return LabelledViews(features_of(bench.backbone.tail, views, bench.device), views.labels)


def _divided(pictures: LabelledViews, known: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of five shots of each known class, of the rest of these classes, and of all other classes."""
    shots, others = [], []
    for owner in known.tolist():
        rows = (pictures.owners == owner).nonzero()[:, 0]
        rows = rows[torch.randperm(len(rows), generator=generator)]
        shots.append(rows[:SHOTS])
        others.append(rows[SHOTS:])
    strangers = (~torch.isin(pictures.owners, known)).nonzero()[:, 0]
    return torch.cat(shots), torch.cat(others), strangers


def _taught(space: Space, shots: LabelledViews) -> tuple[NearestClassMean, float]:
    """The classes as teaching leaves them, and the distance beyond which a picture is of none of them."""
    embeddings = space.embed(shots.inputs)
    nothing = PrototypeBank.empty(embeddings.shape[-1], 1)
    distances = held_out_distances(space, embeddings, shots, nothing, prior_shots=PRIOR_SHOTS)
    means = mean_prototypes(embeddings, shots.owners, len(shots.class_ids))
    bank = nothing.with_classes(shots.class_ids, means, shots.counts.tolist())
    threshold = threshold_of(distances)
    assert threshold is not None
    return NearestClassMean(space, bank, Certainty()), threshold


def _outlying(space: Space, features: Tensor) -> list[bool]:
    embeddings = space.embed(features)
    shots = LabelledViews(embeddings, torch.zeros(len(embeddings), dtype=torch.long))
    nothing = PrototypeBank.empty(embeddings.shape[-1], 1)
    return outlying(held_out_distances(space, embeddings, shots, nothing, prior_shots=PRIOR_SHOTS))


def _share(hits: Tensor) -> float:
    return 100.0 * float(hits.float().mean())
