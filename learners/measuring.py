"""What a version makes of held-out images, as the rows that are stored with it."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from core.bank import ClassId
from core.classifier import Certainty, NearestClassMean, leeway_of
from core.harmful_shots import harmful_shots
from core.refinement import Refinement
from core.state import LearnerState
from core.trials import guard_distances
from learners.taught_class import TaughtClass
from learners.unknown_detection import without_own
from store.classes import StoredImage
from store.measurements import Measured


class Columns(NamedTuple):
    """The classes that images are compared with, and the leeway of each (K,)."""

    ids: Sequence[int]
    leeway: Tensor


def measured_rows(
    distances: Tensor,
    own: Tensor,
    classes: "Columns",
    images: Sequence[int],
    certainty: Certainty,
    harmful: Sequence[bool | None] | None = None,
) -> list[Measured]:
    """From distances (n, K) to classes, and the column of each image's own class (n,)."""
    if not len(distances):
        return []
    nearest, places = distances.min(1)
    confidence = torch.softmax((nearest[:, None] - distances) / certainty.temperature, dim=1).max(1).values
    refused = nearest > classes.leeway[places].double() + certainty.threshold
    ids = classes.ids
    columns = (own, places, distances.gather(1, own[:, None])[:, 0], confidence, refused)
    rows = zip(images, *(column.tolist() for column in columns), harmful or [None] * len(images), strict=True)
    return [Measured(image, ids[o], ids[n], d, c, far, harm) for image, o, n, d, c, far, harm in rows]


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
    distances = known.distances_of(new.centres)  # (S, K)
    if class_id in known.known_ids:
        (place,) = known.rows([class_id])
        distances[:, place] = new.held_out
    else:
        place, ids = len(ids), [*ids, own_id]
        distances = torch.cat([distances, new.held_out[:, None]], dim=1)
    own = torch.full((len(shots),), place)
    others = without_own(distances, own).min(1).values
    harmful = harmful_shots(known.space, new.centres, others) if len(ids) > 1 else None
    classes = Columns(ids, known.leeway_with(class_id, new.held_out))
    certainty = certainty_with(known.certainty.temperature, threshold)
    return measured_rows(distances, own, classes, shots, certainty, harmful)


def session_rows(
    refinement: Refinement,
    seen: Sequence[StoredImage],
    guard: Sequence[StoredImage],
    as_seen: Callable[[ClassId], bool],
    certainty: Certainty,
    held_out: Mapping[ClassId, Tensor],
) -> list[Measured]:
    """Held-out shots and guard images, as the state to serve sees them; of classes that are as the session saw them.

    Shots that stand in for guard images were learned from, so they are not among them.
    """
    state, found = refinement.state, refinement.held_out
    rows: list[Measured] = []
    if len(found.own):
        classes = _columns(state, sorted(state.bank.class_ids), held_out)
        images = [seen[place].id for place in found.rows.tolist()]
        harmful = _harmful(refinement)
        marks = [harmful.get(place) for place in found.rows.tolist()]
        rows += measured_rows(found.distances, found.own, classes, images, certainty, marks)
    features = refinement.served.guard
    if features is not None:
        distances, own = guard_distances(state, features)
        classes, images = _columns(state, state.bank.class_ids, held_out), [one.id for one in guard]
        rows += [row for row in measured_rows(distances, own, classes, images, certainty) if row.image < 0]
    return [row for row in rows if as_seen(ClassId(row.class_id))]


def _columns(state: LearnerState, class_ids: Sequence[ClassId], held_out: Mapping[ClassId, Tensor]) -> Columns:
    return Columns([int(class_id) for class_id in class_ids], leeway_of(state.space, class_ids, held_out))


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
        distances = state.space.distances(embeddings[places], state.bank.prototypes, state.bank.shots)
        marks = harmful_shots(state.space, embeddings[places], without_own(distances, own).min(1).values)
        found |= dict(zip(places.tolist(), marks or [], strict=False))
    return found
