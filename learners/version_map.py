"""A version in two dimensions: its prototypes along the two directions in which they differ most.

The axes stay the same from version to version as far as they can: while a model keeps its network they are found anew
only when it has twice as many classes, and new axes are turned so that the classes stay where they were.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.recently_used import RecentlyUsed
from learners.blobs import stacked
from learners.version_loader import LoadedVersion
from store import bank_rows, lineage
from store.database import Database
from store.lineage import Step
from store.models import ModelId

FEWEST = 2  # classes that have a direction
MOST_CLASSES = 1_000  # that axes are found from: more of them tell little for their time
MOST_ANCHORS = 24  # versions whose axes are followed: more are not kept
KEPT = 256  # axes of anchors

Comparable = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Axes:
    origin: Tensor  # (M,)
    basis: Tensor  # (M, 2)
    explained: tuple[float, float]  # shares of the variance of the prototypes
    places: dict[int, tuple[float, float]]  # of the classes that the axes were found from

    def project(self, points: Tensor) -> Tensor:
        """Comparable vectors (n, M) → (n, 2)."""
        return (points - self.origin) @ self.basis


class VersionMaps:
    """Finds the axes of versions. Waits for the database: call it in a thread."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._axes: RecentlyUsed[tuple[ModelId, int], Axes] = RecentlyUsed(KEPT)

    def axes(self, version: LoadedVersion) -> Axes:
        with self._database.read() as db:
            steps = lineage.steps(db, version.model_id, version.number)
        axes: Axes | None = None
        for number in anchors(steps)[-MOST_ANCHORS:]:
            key = (version.model_id, number)
            known = self._axes.get(key)
            axes = known or self._axes.put(key, self._found(key, version.classifier.space.comparable, axes))
        return axes or _nowhere(version.network.dim)

    def _found(self, key: tuple[ModelId, int], comparable: Comparable, before: Axes | None) -> Axes:
        with self._database.read() as db:
            rows = bank_rows.read_bank(db, *key)
        rows = rows[:: -(-len(rows) // MOST_CLASSES)]
        dim = len(rows[0].copies[-1]) // 4
        points = comparable(stacked([row.copies[-1] for row in rows], dim))  # (K, M)
        return found_axes([row.class_id for row in rows], points, before)


def anchors(steps: Sequence[Step]) -> list[int]:
    """The versions of a lineage whose axes are found anew: another network, or twice as many classes.

    The last one has the network of the lineage's last version.
    """
    found: list[Step] = []
    for step in steps:
        if not step.kept or step.classes < FEWEST:
            continue
        if not found or step.weights != found[-1].weights or step.classes >= _next(found[-1].classes):
            found.append(step)
    if found and found[-1].weights != steps[-1].weights:
        return []
    return [step.number for step in found]


def _next(classes: int) -> int:
    """How many classes need new axes. Two of them lie on a line: the third shows the second axis."""
    return FEWEST + 1 if classes == FEWEST else 2 * classes


def found_axes(class_ids: Sequence[int], points: Tensor, before: Axes | None) -> Axes:
    """The two directions in which the points (K, M) differ most, turned to where the classes were before."""
    origin = points.mean(0)
    centred = points - origin
    _, directions = torch.linalg.eigh(centred @ centred.T)  # ascending; (K, K) is small
    basis = centred.T @ directions[:, [-1, -2] if len(points) > 1 else [-1, -1]]  # (M, 2)
    lengths = basis.norm(dim=0)
    basis = torch.where(lengths > 1e-6, basis / lengths.clamp_min(1e-6), torch.zeros(()))
    places = centred @ basis
    basis = basis @ _turn(class_ids, places, before)
    places = centred @ basis
    total = float(centred.square().sum()) or 1.0
    one, other = (float(part) / total for part in places.square().sum(0))
    by_class = {own: (x, y) for own, (x, y) in zip(class_ids, places.tolist(), strict=True)}
    return Axes(origin, basis, (one, other), by_class)


def _turn(class_ids: Sequence[int], places: Tensor, before: Axes | None) -> Tensor:
    """The rotation or reflection (2, 2) that brings the places nearest to those before (Procrustes).

    Without any, the farthest point of each axis is made positive.
    """
    shared = [row for row, own in enumerate(class_ids) if before is not None and own in before.places]
    if before is None or len(shared) < FEWEST:
        farthest = places.gather(0, places.abs().argmax(0, keepdim=True))[0]
        return torch.diag(torch.where(farthest < 0, -1.0, 1.0))
    target = torch.tensor([before.places[class_ids[row]] for row in shared])
    left, _, right = torch.linalg.svd(places[shared].T @ target)
    turn: Tensor = left @ right
    return turn


def _nowhere(dim: int) -> Axes:
    """Of a version with fewer than two classes: everything is at the origin."""
    return Axes(torch.zeros(dim), torch.zeros(dim, 2), (0.0, 0.0), {})
