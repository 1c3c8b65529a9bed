"""A version of a model, read from the store: its classifier for serving, its whole state for learning."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from sqlalchemy.orm import Session
from torch import Tensor

from core.backbones import Backbone
from core.bank import ClassId, PrototypeBank
from core.calibration import statistics_of
from core.classifier import Certainty
from core.scatter import Scatter
from core.snapshot import from_bytes, to_bytes
from core.space import Space
from core.state import UNTAUGHT, LearnerState, Weights
from engine.class_search import ClassSearch
from learners.blobs import from_blob, stacked
from learners.calibrated_bank import HeldOut
from store import bank_rows, versions
from store.bank_rows import COPIES, KnownClass
from store.models import ModelId, Version

NO_LIMIT = float("inf")


@dataclass(frozen=True, eq=False)
class VersionWeights:
    """Weights and space of a version: its network, without the classes that it knows."""

    weights: Weights
    space: Space
    scatter: Scatter | None  # of the classes that sessions have seen; None in versions of earlier releases
    base: LearnerState  # the version it stands on: its weights are stored as their difference from these


@dataclass(frozen=True, eq=False)
class Means:
    """As much of a bank as comparing needs."""

    class_ids: tuple[ClassId, ...]
    shots: Tensor
    prototypes: Tensor


def weights_of_version(db: Session, own: LearnerState, version: Version) -> VersionWeights:
    """`own`: what the backbone's tail comes with, without classes."""
    stored = versions.weights(db, version.model_id, version.base)
    base = own if stored is None else from_bytes(stored)  # a base version is stored whole, not as a difference
    if version.weights == version.base:
        return VersionWeights(base.weights if stored is not None else {}, base.space, base.scatter, base)
    difference = versions.weights(db, version.model_id, version.weights)
    if difference is None:
        raise LookupError(f"the weights of version {version.number} are missing")
    state = from_bytes(difference, base.weights)
    # A version of an earlier release has no space of its own.
    space = base.space if state.space.whitening is None else state.space
    return VersionWeights(state.weights, space, state.scatter or base.scatter, base)


def untaught(backbone: str, tail_weights: Weights, dim: int) -> LearnerState:
    """The base of a model without a base session."""
    return LearnerState(backbone, tail_weights, UNTAUGHT, PrototypeBank.empty(dim, COPIES))


def base_blob(state: LearnerState) -> bytes:
    """A base version's weights, space and scatter, without its classes."""
    return to_bytes(_without_classes(state))


def weights_blob(state: LearnerState, base: Weights) -> bytes:
    """A refined version's weights as their difference from its base, with its space and scatter."""
    return to_bytes(replace(_without_classes(state), weights={**base, **state.weights}), base)


def _without_classes(state: LearnerState) -> LearnerState:
    return replace(state, bank=PrototypeBank.empty(state.bank.dim, state.bank.capacity))


def certainty_of(version: Version) -> Certainty:
    return Certainty(version.temperature, NO_LIMIT if version.threshold is None else version.threshold)


def classifier_of_version(db: Session, version: Version, space: Space, dim: int) -> tuple[ClassSearch, HeldOut]:
    """All that serving a version needs beside its network."""
    rows = bank_rows.read_bank(db, version.model_id, version.number)
    means = Means(
        tuple(ClassId(row.class_id) for row in rows),
        torch.tensor([row.shots for row in rows], dtype=torch.long),
        stacked([row.copies[-1] for row in rows], dim) if rows else torch.zeros(0, dim),
    )
    held_out = {ClassId(row.class_id): from_blob(row.held_out) for row in rows if row.held_out}
    return ClassSearch(space, means, certainty_of(version), held_out), held_out


def learner_of_version(db: Session, backbone: Backbone, version: Version, stored: VersionWeights) -> LearnerState:
    """Everything that a session needs."""
    rows = bank_rows.read_bank(db, version.model_id, version.number, copies=COPIES)
    return LearnerState(backbone.name, stored.weights, stored.space, _bank(rows, backbone.dim), stored.scatter)


def held_out_of(db: Session, model_id: ModelId, number: int) -> dict[ClassId, Tensor]:
    rows = bank_rows.read_bank(db, model_id, number)
    return {ClassId(row.class_id): from_blob(row.held_out) for row in rows if row.held_out}


def _bank(rows: Sequence[KnownClass], dim: int) -> PrototypeBank:
    if not rows:
        return PrototypeBank.empty(dim, COPIES)
    nothing = bytes(4 * dim)
    padded = [blob for row in rows for blob in [nothing] * (COPIES - len(row.copies)) + list(row.copies)]
    copies = stacked(padded, dim).view(len(rows), COPIES, dim)
    held = torch.tensor([len(row.copies) for row in rows])
    statistics = statistics_of(copies, held)
    for place, row in enumerate(rows):
        if row.mean is not None and row.factor is not None:
            statistics.mean[place] = from_blob(row.mean)
            statistics.factor[place] = from_blob(row.factor).view(COPIES, dim)
    return PrototypeBank(
        tuple(ClassId(row.class_id) for row in rows),
        torch.tensor([row.shots for row in rows]),
        stacked([row.initial for row in rows], dim),
        copies,
        held,
        statistics,
    )
