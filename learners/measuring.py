"""What a version makes of held-out images, as the rows that are stored with it."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from core.bank import ClassId
from core.classifier import Certainty, NearestClassMean
from core.harmful_shots import harmful_shots
from core.refinement import Refinement, guard_distances
from learners.taught_class import TaughtClass
from learners.unknown_detection import nearest_other
from store.classes import StoredImage
from store.measurements import Measured


def measured_rows(
    distances: Tensor,
    own: Tensor,
    class_ids: Sequence[int],
    images: Sequence[int],
    certainty: Certainty,
    harmful: Sequence[bool | None] | None = None,
) -> list[Measured]:
    """From distances (n, K) to classes, and the column of each image's own class (n,)."""
    if not len(distances):
        return []
    nearest, places = distances.min(1)
    confidence = torch.softmax((nearest[:, None] - distances) / certainty.temperature, dim=1).max(1).values
    refused = nearest > certainty.threshold
    columns = (own, places, distances.gather(1, own[:, None])[:, 0], confidence, refused)
    rows = zip(images, *(column.tolist() for column in columns), harmful or [None] * len(images), strict=True)
    return [Measured(image, class_ids[o], class_ids[n], d, c, far, harm) for image, o, n, d, c, far, harm in rows]


def certainty_with(temperature: float, threshold: float | None) -> Certainty:
    return Certainty(temperature, math.inf if threshold is None else threshold)


def taught_rows(
    known: NearestClassMean,
    new: TaughtClass,
    class_id: ClassId,
    shots: Sequence[int],
    own_id: int,
    threshold: float | None,
) -> list[Measured]:
    """The shots of a class just taught, each held out. `own_id`: its number, also if it is not known yet."""
    if not len(new.held_out):
        return []
    ids = [int(other) for other in known.class_ids]
    queries = known.space.comparable(new.centres)
    distances = known.space.from_products(queries @ known.prototypes.T, queries, known.prototypes)  # (S, K)
    if class_id in known.known_ids:
        (place,) = known.rows([class_id])
        distances[:, place] = new.held_out
    else:
        place, ids = len(ids), [*ids, own_id]
        distances = torch.cat([distances, new.held_out[:, None]], dim=1)
    own = torch.full((len(shots),), place)
    harmful = harmful_shots(known.space, new.centres, nearest_other(distances, own)) if len(ids) > 1 else None
    certainty = certainty_with(known.certainty.temperature, threshold)
    return measured_rows(distances, own, ids, shots, certainty, harmful)


def session_rows(
    refinement: Refinement,
    seen: Sequence[StoredImage],
    guard: Sequence[StoredImage],
    as_seen: Callable[[ClassId], bool],
    certainty: Certainty,
) -> list[Measured]:
    """Held-out shots and guard images, as the state to serve sees them; of classes that are as the session saw them.

    Shots that stand in for guard images were learned from, so they are not among them.
    """
    state, found = refinement.state, refinement.held_out
    rows: list[Measured] = []
    if len(found.own):
        ids = sorted(int(class_id) for class_id in state.bank.class_ids)
        images = [seen[place].id for place in found.rows.tolist()]
        harmful = _harmful(refinement)
        marks = [harmful.get(place) for place in found.rows.tolist()]
        rows += measured_rows(found.distances, found.own, ids, images, certainty, marks)
    features = refinement.served.guard
    if features is not None:
        distances, own = guard_distances(state, features)
        ids, images = [int(class_id) for class_id in state.bank.class_ids], [one.id for one in guard]
        rows += [row for row in measured_rows(distances, own, ids, images, certainty) if row.image < 0]
    return [row for row in rows if as_seen(ClassId(row.class_id))]


def _harmful(refinement: Refinement) -> dict[int, bool]:
    """By the place of each shot among those that the session has seen."""
    state, seen = refinement.state, refinement.served.seen
    embeddings = state.space.embed(seen.inputs[:, 0])
    found: dict[int, bool] = {}
    if len(state.bank) < 2:
        return found
    for class_id in seen.class_ids:
        places = (seen.labels == class_id).nonzero()[:, 0]
        own = torch.full((len(places),), state.bank.rows([class_id])[0])
        others = nearest_other(state.space.distances(embeddings[places], state.bank.prototypes), own)
        marks = harmful_shots(state.space, embeddings[places], others)
        found |= dict(zip(places.tolist(), marks or [], strict=False))
    return found
