"""A bank that a session made, as the rows of a version: with its temperature, and with its threshold for *unknown*."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from torch import Tensor

from core.bank import ClassId, PrototypeBank
from core.classifier import Certainty, Learned, NearestClassMean, calibrate
from core.space import Space
from learners.blobs import to_blob
from learners.taught_class import TaughtClass
from learners.unknown_detection import UnknownDetection, detect_unknown, nearest_other
from store.bank_rows import PrototypeRow

HeldOut = Mapping[ClassId, Tensor]  # distances of images of each class to its prototype made without them
Added = Mapping[ClassId, TaughtClass]  # classes that the session did not learn and its network has seen since


@dataclass(frozen=True, eq=False)
class CalibratedBank:
    rows: tuple[PrototypeRow, ...]
    temperature: float
    unknown: UnknownDetection


def classifier_of(space: Space, bank: PrototypeBank, added: Added) -> NearestClassMean:
    """Of all classes that the version is to know."""
    learned = {class_id: Learned(new.prototype, new.shots) for class_id, new in added.items()}
    return NearestClassMean(space, bank, Certainty()).changed(learned, Certainty())


def calibrated(
    bank: PrototypeBank,
    added: Added,
    held_out: HeldOut,
    measured: tuple[Tensor, Tensor],
    *,
    restarted: Collection[ClassId],
) -> CalibratedBank:
    """`measured`: distances (n, K) of images that nobody trained on, and the row of each one's class (n,).

    `restarted`: classes whose history begins with this version.
    """
    distances, own = measured
    pooled = {**held_out, **{class_id: new.held_out for class_id, new in added.items()}}
    return CalibratedBank(
        (*_rows(bank, held_out, restarted), *(new.row(class_id) for class_id, new in added.items())),
        calibrate(distances, own).temperature,
        detect_unknown(pooled, nearest_other(distances, own)),
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
