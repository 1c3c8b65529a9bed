"""Nearest-class-mean classification.

Knows only the classes in the bank: a class that was never taught has no row, so it cannot win. Gives each answer a
confidence, and answers *unknown* for an image that is too far from every class.
"""

import math
from collections.abc import Iterable, KeysView, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from core.bank import ClassId, look_up
from core.errors import UnknownClass
from core.prototypes import Prototyped
from core.space import Space
from core.unknown import leeways, threshold_of

TEMPERATURES = torch.logspace(-3, 1, 161)  # the candidates among which the best temperature is searched


@dataclass(frozen=True)
class Certainty:
    """Calibration of an answer: a temperature for confidences, and the distance beyond which an image is unknown."""

    temperature: float = 0.1
    threshold: float = math.inf  # nothing is unknown until there are images to calibrate on


@dataclass(frozen=True)
class Candidate:
    class_id: ClassId
    confidence: float
    distance: float


@dataclass(frozen=True)
class Prediction:
    """The nearest classes, nearest first; `class_id` is None where even the nearest is too far."""

    top: tuple[Candidate, ...]
    unknown: bool
    limit: float = math.inf  # the distance from the nearest class beyond which the image would be unknown

    @property
    def class_id(self) -> ClassId | None:
        return None if self.unknown else self.top[0].class_id


@dataclass(frozen=True, eq=False)
class Learned:
    """What changes of one class: its prototype, how many shots it is made of, and how far held-out ones are from it."""

    prototype: Tensor  # (M,)
    shots: int
    held_out: Tensor | None = None  # (m,) distances


class NearestClassMean:
    """The classes of a version, ready to answer: one matrix product for a batch of images.

    A subclass may search faster by overriding `_inner_products`.
    """

    def __init__(
        self,
        space: Space,
        known: Prototyped,
        certainty: Certainty,
        held_out: Mapping[ClassId, Tensor] = MappingProxyType({}),
    ) -> None:
        """`held_out`: of each class, the distances of images to its prototype made without them."""
        self.space = space
        self.class_ids = known.class_ids
        self.shots = known.shots
        self.certainty = certainty
        self.prototypes = space.targets(known.prototypes, known.shots)  # (K, M)
        self._spread = _spread([held_out.get(class_id) for class_id in known.class_ids])  # (K, 2)

    def __len__(self) -> int:
        return len(self.class_ids)

    @property
    def known_ids(self) -> KeysView[ClassId]:
        """The classes as a set, for fast membership tests."""
        return self._row.keys()

    @cached_property
    def _row(self) -> dict[ClassId, int]:
        return {class_id: row for row, class_id in enumerate(self.class_ids)}

    def rows(self, class_ids: Iterable[ClassId]) -> list[int]:
        """The rows of these classes, in their order."""
        return look_up(self._row, class_ids)

    def changed(self, changes: Mapping[ClassId, Learned | None], certainty: Certainty) -> Self:
        """A copy with these classes added, replaced, or (None) removed; rows are in ascending order of class ids."""
        new = [(class_id, learned) for class_id, learned in sorted(changes.items()) if learned is not None]
        ids, shots, prototypes, spread = self.class_ids, self.shots, self.prototypes, self._spread
        if not changes.keys().isdisjoint(self._row):
            rows = [row for row, class_id in enumerate(ids) if class_id not in changes]
            ids, shots, prototypes = tuple(ids[row] for row in rows), shots[rows], prototypes[rows]
            spread = spread[rows]
        other = object.__new__(type(self))
        other.space, other.certainty = self.space, certainty
        other.class_ids = (*ids, *(class_id for class_id, _ in new))
        other.shots = torch.cat([shots, torch.tensor([learned.shots for _, learned in new], dtype=torch.long)])
        if new:
            vectors = torch.stack([learned.prototype for _, learned in new])
            prototypes = torch.cat([prototypes, self.space.targets(vectors, other.shots[len(ids) :])])
        other.prototypes = prototypes
        other._spread = torch.cat([spread, _spread([learned.held_out for _, learned in new])])
        if new and ids and new[0][0] < ids[-1]:  # most new classes have the highest id, and need no sorting
            order = sorted(range(len(other.class_ids)), key=other.class_ids.__getitem__)
            other.class_ids = tuple(other.class_ids[place] for place in order)
            other.shots, other.prototypes = other.shots[order], other.prototypes[order]
            other._spread = other._spread[order]
        return other

    @cached_property
    def leeway(self) -> Tensor:
        """How much farther than the threshold an image of each class may be, (K,)."""
        return _leeway(self.space, self._spread)

    def leeway_with(self, class_id: ClassId, held_out: Tensor) -> Tensor:
        """`leeway` once this class has these held-out images; a class that is not known yet comes last."""
        spread, own = self._spread, _spread([held_out])
        if class_id in self._row:
            spread = spread.clone()
            spread[self._row[class_id]] = own[0]
            return _leeway(self.space, spread)
        return _leeway(self.space, torch.cat([spread, own]))

    def distances(self, features: Tensor) -> Tensor:
        """Features (n, M), or of several views of each image (n, v, M) → distance to every class (n, K)."""
        return self.distances_of(self.space.embed(features))

    def distances_of(self, embeddings: Tensor) -> Tensor:
        """`distances` of features that were embedded before."""
        queries = mean_of_views(self.space.comparable(embeddings))
        return self.space.from_products(self._inner_products(queries), queries, self.prototypes)

    def nearest(self, features: Tensor) -> list[ClassId]:
        """The class that each image is nearest to, unknown or not."""
        if not self.class_ids:
            raise UnknownClass("no class has been taught yet")
        return [self.class_ids[row] for row in self.distances(features).argmin(1).tolist()]

    @torch.inference_mode()  # makes each of the dozen small steps cheaper
    def predict(self, features: Tensor, top_k: int = 5) -> list[Prediction]:
        """An answer for each image (n, M), or (n, v, M); with no class taught, everything is unknown."""
        if top_k < 1:
            raise ValueError(f"an answer lists at least one class, not {top_k}")
        if not self.class_ids:
            return [Prediction((), unknown=True) for _ in features]
        distances = self.distances(features)
        nearest, places = distances.topk(min(top_k, len(self.class_ids)), dim=1, largest=False)
        # A softmax over all classes, computed for the nearest ones only: there may be a hundred thousand others.
        scale = -1 / self.certainty.temperature
        first = nearest[:, :1]
        total = distances.sub_(first).mul_(scale).exp_().sum(1, keepdim=True)  # in place: the matrix is large
        confidences = (nearest - first).mul_(scale).exp_() / total
        limits = self.leeway[places[:, 0]].double() + self.certainty.threshold
        rows = zip(places.tolist(), nearest.tolist(), confidences.tolist(), limits.tolist(), strict=True)
        return [self._prediction(*row) for row in rows]

    def _prediction(
        self, indices: Sequence[int], distances: Sequence[float], confidences: Sequence[float], limit: float
    ) -> Prediction:
        top = tuple(
            Candidate(self.class_ids[index], confidence, distance)
            for index, distance, confidence in zip(indices, distances, confidences, strict=True)
        )
        # Written this way round so that a NaN distance is unknown too.
        return Prediction(top, not distances[0] <= limit, limit)

    def _inner_products(self, queries: Tensor) -> Tensor:
        """Queries (n, M) → inner products with every prototype (n, K), which the caller may overwrite."""
        return queries @ self.prototypes.T


def leeway_of(space: Space, class_ids: Iterable[ClassId], held_out: Mapping[ClassId, Tensor]) -> Tensor:
    """`NearestClassMean.leeway` of these classes, (K,)."""
    return _leeway(space, _spread([held_out.get(class_id) for class_id in class_ids]))


def _leeway(space: Space, spread: Tensor) -> Tensor:
    return leeways(*spread.T) if space.by_class else torch.zeros(len(spread))


def _spread(held_out: Sequence[Tensor | None]) -> Tensor:
    """Mean distance of each class's held-out images, and their number, (K, 2)."""
    rows = [(0.0, 0.0) if one is None or not len(one) else (float(one.mean()), float(len(one))) for one in held_out]
    return torch.tensor(rows).view(len(rows), 2)


def mean_of_views(comparable: Tensor) -> Tensor:
    """One query for each image: a single view (n, M) as it is, of several views (n, v, M) the mean.

    A mean of unit vectors is not scaled to unit length again. So the cosine distance of an image is the mean distance
    of its views, and may be compared with a threshold that was found with single views.
    """
    return comparable if comparable.dim() == 2 else comparable.mean(1)


def calibrate(distances: Tensor, own: Tensor) -> Certainty:
    """Fit temperature and unknown threshold on images of known classes that were not learned from.

    `distances` (n, K) to every class, `own` (n,) the row of the true one. The temperature is the one under which the
    truth is most probable. If all n images are classified right, one wrong answer in n + 1 is assumed: a few of them
    must not make every later answer certain. The threshold accepts 95 % of the images.
    """
    if not len(distances):
        return Certainty()
    nearest = distances.min(1).values
    found = threshold_of(nearest)
    threshold = math.inf if found is None else found
    if distances.shape[1] < 2:
        return Certainty(threshold=threshold)
    temperatures = TEMPERATURES * float(nearest.mean().clamp_min(1e-6))  # in the metric's own unit
    doubt = 1 / (len(distances) + 1) if bool((distances.argmin(1) == own).all()) else 0.0
    losses = [F.cross_entropy(-distances / t, own, label_smoothing=doubt).item() for t in temperatures]
    return Certainty(float(temperatures[losses.index(min(losses))]), threshold)


def log_probability(distances: Tensor, own: Tensor) -> Tensor:
    """Of the truth, (n,), at the temperature under which it is most probable: the best case for every candidate."""
    if not len(distances):
        return torch.zeros(0)
    scaled = -distances / calibrate(distances, own).temperature
    return torch.log_softmax(scaled, dim=1).gather(1, own[:, None])[:, 0]
