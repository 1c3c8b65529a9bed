"""A class from a few shots, without training: its prototype under a version's weights."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from core.bank import ClassId
from core.classifier import NearestClassMean
from core.held_out import held_out_distances, outlying
from core.incremental_session import IncrementalConfig
from core.prototypes import mean_prototypes, supported
from core.views import LabelledViews
from learners.blobs import to_blob
from learners.unknown_detection import UnknownDetection, detect_unknown, nearest_other
from store.bank_rows import PrototypeRow

PRIOR_SHOTS = IncrementalConfig().prior_shots


@dataclass(frozen=True, eq=False)
class Taught:
    """What a few pictures say of a class."""

    prototype: Tensor  # (M,)
    shots: int
    held_out: Tensor  # (S,) each shot's distance from the class without it
    centres: Tensor  # (S, M) embeddings of the shots' centre views

    @property
    def outliers(self) -> list[int]:
        """Which shots lie far from the others."""
        return [place for place, far in enumerate(outlying(self.held_out)) if far]

    def row(self, class_id: int) -> PrototypeRow:
        return PrototypeRow(
            class_id, to_blob(self.prototype), self.shots, restart=True, held_out=to_blob(self.held_out)
        )


def taught(known: NearestClassMean, class_id: ClassId, features: Tensor, *, earlier: Tensor | None = None) -> Taught:
    """Learn a class from its shots' features (S, V, M).

    `earlier`: a prototype that more pictures stand behind than are stored, as after a base session; the shots are
    weighed against it by their number.
    """
    space = known.space
    embeddings = space.embed(features)
    labels = torch.full((len(features),), class_id)
    shots = LabelledViews(embeddings, labels)
    held_out = held_out_distances(space, embeddings, shots, known, prior_shots=PRIOR_SHOTS)
    (mean,) = mean_prototypes(embeddings, shots.owners, 1)
    known_before = class_id in known.class_ids
    if earlier is not None:
        behind = int(known.shots[known.rows([class_id])[0]])
        total = behind + len(features)
        prototype = (behind * earlier + len(features) * mean) / total
        return Taught(prototype, total, held_out, embeddings[:, 0])
    (prototype,) = supported(
        mean[None], shots.counts, known, prior_shots=PRIOR_SHOTS, besides=[class_id] if known_before else []
    )
    return Taught(prototype, len(features), held_out, embeddings[:, 0])


def detect_unknown_with(
    known: NearestClassMean, held_out: Mapping[ClassId, Tensor], class_id: ClassId, new: Taught
) -> UnknownDetection:
    """The threshold once this class is known too; strangers are its shots, were it not there."""
    distances = known.space.distances(new.centres, known.prototypes) if len(known) else torch.zeros(0, 0)
    if class_id in known.class_ids:
        own = torch.full((len(distances),), known.rows([class_id])[0])
        strangers = nearest_other(distances, own)
    else:
        strangers = distances.min(1).values if len(known) else torch.zeros(0)
    return detect_unknown({**held_out, class_id: new.held_out}, strangers)
