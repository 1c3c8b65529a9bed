"""A bank that a session made, as the rows of a version: with its temperature, and with its threshold for *unknown*."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from core.bank import ClassId, PrototypeBank
from core.classifier import Certainty, Learned, NearestClassMean, calibrate, leeway_of
from core.space import Space
from learners.blobs import to_blob
from learners.taught_class import TaughtClass
from learners.unknown_detection import UnknownDetection, detect_unknown, strangeness
from store.bank_rows import PrototypeRow

HeldOut = Mapping[ClassId, Tensor]  # distances of images of each class to its prototype made without them
Added = Mapping[ClassId, TaughtClass]  # classes that the session did not learn and its network has seen since


@dataclass(frozen=True, eq=False)
class MeasuredImages:
    """Images that nobody has trained on."""

    class_ids: Sequence[ClassId]  # of the columns
    distances: Tensor  # (n, K)
    own: Tensor  # (n,) the column of each one's class


@dataclass(frozen=True, eq=False)
class CalibratedBank:
    rows: tuple[PrototypeRow, ...]
    temperature: float
    unknown: UnknownDetection


def classifier_of(space: Space, bank: PrototypeBank, added: Added) -> NearestClassMean:
    """Of all classes that the version is to know, before it is calibrated."""
    learned = {class_id: Learned(new.prototype, new.shots) for class_id, new in added.items()}
    return NearestClassMean(space, bank, Certainty()).changed(learned, Certainty())


def calibrated(
    space: Space,
    bank: PrototypeBank,
    added: Added,
    held_out: HeldOut,
    measured: Sequence[MeasuredImages],
    *,
    restarted: Collection[ClassId],
) -> CalibratedBank:
    """`restarted`: classes whose history begins with this version."""
    strangers = [strangeness(part.distances, part.own, leeway_of(space, part.class_ids, held_out)) for part in measured]
    distances = torch.cat([part.distances for part in measured]) if measured else torch.zeros(0, len(bank))
    own = torch.cat([part.own for part in measured]) if measured else torch.zeros(0, dtype=torch.long)
    pooled = {**held_out, **{class_id: new.held_out for class_id, new in added.items()}}
    return CalibratedBank(
        (*_rows(bank, held_out, restarted), *(new.row(class_id) for class_id, new in added.items())),
        calibrate(distances, own).temperature,
        detect_unknown(pooled, torch.cat([torch.zeros(0), *strangers]), by_class=space.by_class),
    )


def _rows(bank: PrototypeBank, held_out: HeldOut, restarted: Collection[ClassId]) -> list[PrototypeRow]:
    return [
        PrototypeRow(
            class_id,
            to_blob(prototype),
            shots,
            restart=class_id in restarted,
            held_out=to_blob(held_out[class_id]) if class_id in held_out else None,
        )
        for class_id, prototype, shots in zip(bank.class_ids, bank.prototypes, bank.shots.tolist(), strict=True)
    ]
