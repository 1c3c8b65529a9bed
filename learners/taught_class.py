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
from learners.unknown_detection import UnknownDetection, detect_unknown, strangeness
from store.bank_rows import PrototypeRow

PRIOR_SHOTS = IncrementalConfig().prior_shots
UNNUMBERED = ClassId(0)  # a new class: it gets its id when it is written, and ids begin at 1


@dataclass(frozen=True, eq=False)
class TaughtClass:
    """What a class's shots say of it."""

    prototype: Tensor  # (M,)
    shots: int  # images behind the prototype
    held_out: Tensor  # (S,) distance of each shot from the class without it
    centres: Tensor  # (S, M) embeddings of the shots' centre views

    @property
    def outliers(self) -> list[int]:
        """Which shots lie far from the others."""
        return [place for place, far in enumerate(outlying(self.held_out)) if far]

    def row(self, class_id: int) -> PrototypeRow:
        return PrototypeRow(
            class_id, to_blob(self.prototype), self.shots, restart=True, held_out=to_blob(self.held_out)
        )


def learn_class(
    known: NearestClassMean,
    features: Tensor,
    class_id: ClassId = UNNUMBERED,
    *,
    earlier: Tensor | None = None,
    behind: int | None = None,
) -> TaughtClass:
    """Learn a class from its shots' features (S, V, M).

    `earlier`: a prototype with more images behind it than are stored, as after a base session. The shots are weighted
    against it by their number; `behind`: how many it is of, unless it is the prototype of the class as it is known.
    """
    embeddings = known.space.embed(features)
    shots = LabelledViews(embeddings, torch.full((len(features),), class_id))
    held_out = held_out_distances(known.space, embeddings, shots, known, prior_shots=PRIOR_SHOTS)
    (mean,) = mean_prototypes(embeddings, shots.owners, 1)
    if earlier is not None:
        if behind is None:
            behind = int(known.shots[known.rows([class_id])[0]])
        total = behind + len(features)
        prototype = (behind * earlier + len(features) * mean) / total
        return TaughtClass(prototype, total, held_out, embeddings[:, 0])
    itself = [class_id] if class_id in known.known_ids else []
    (prototype,) = supported(mean[None], shots.counts, known, prior_shots=PRIOR_SHOTS, besides=itself)
    return TaughtClass(prototype, len(features), held_out, embeddings[:, 0])


def detect_unknown_with(
    known: NearestClassMean, held_out: Mapping[ClassId, Tensor], new: TaughtClass, class_id: ClassId = UNNUMBERED
) -> UnknownDetection:
    """The threshold once this class is known too. Its own shots, were it not known, are the strangers to measure on."""
    distances = known.distances_of(new.centres) if len(known) else torch.zeros(0, 0)
    own = known.rows([class_id])[0] if class_id in known.known_ids else -1
    strangers = strangeness(distances, torch.full((len(distances),), own), known.leeway)
    return detect_unknown({**held_out, class_id: new.held_out}, strangers, by_class=known.space.by_class)
