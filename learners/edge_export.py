"""A version taken out of the store as one graph, and the graph compared with what the service answers."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

import numpy as np
import torch

from core.backbones import Backbone
from core.errors import ImageError, ProtoquadError
from core.images import centre_view, decode
from engine.backbone_cache import BackboneCache
from engine.edge.answering import EdgeAnswer
from engine.edge.graph import EdgeGraph, EdgeModel, Fact, Format, Metadata, metadata_of
from learners.loading import untaught, weights_of_version
from learners.stored_images import UNLIMITED
from learners.version_loader import LoadedVersion, VersionLoader
from store import catalogue, classes
from store.database import Database

TOLERANCE = 1e-3  # between distances of the service and of the graph
TIE = 1e-5  # between the distances to two classes: less is rounding, which decides in the service too
CHECKED = 200  # stored images; one of each class first


class NothingToExport(ProtoquadError):
    """The version knows no class."""


class UnusableImage(ProtoquadError):
    """An image to compare answers on cannot be decoded."""


@dataclass(frozen=True, eq=False)
class EdgeVersion:
    """A version as it serves, and its network as a module."""

    loaded: LoadedVersion
    backbone: Backbone

    def write(self, file: Path, form: Format) -> None:
        EdgeGraph(self.backbone, self.loaded.classifier).write(file, form, self.metadata())

    def metadata(self) -> Metadata:
        loaded, certainty = self.loaded, self.loaded.classifier.certainty
        class_ids = [int(class_id) for class_id in loaded.classifier.class_ids]
        facts: dict[str, Fact] = {
            "model": loaded.model,
            "version": loaded.number,
            "backbone": loaded.backbone,
            "temperature": certainty.temperature,
            "threshold": certainty.threshold if isfinite(certainty.threshold) else None,
        }
        return metadata_of([loaded.name(one) for one in class_ids], class_ids, self.backbone.framing, facts)


def edge_version(database: Database, backbones: BackboneCache, model: str, number: int | None) -> EdgeVersion:
    """The active version of a model, or that of this number. Prepares its backbone, however long that takes."""
    with database.read() as db:
        row = catalogue.get(db, model)
        number = row.head if number is None else number
    compiled = backbones.compiled(row.backbone)
    loaded = VersionLoader(database, backbones).load(model, number, None)
    if not len(loaded.classifier):
        raise NothingToExport(f"version {number} of model '{model}' knows no class; teach it one first")
    with database.read() as db:
        own = untaught(row.backbone, compiled.tail_weights, compiled.dim)
        stored = weights_of_version(db, own, loaded.row)
    return EdgeVersion(loaded, backbones.trained(row.backbone, stored.weights))


def stored_images(database: Database, loaded: LoadedVersion) -> list[bytes]:
    """Some of what is stored of the classes that it knows: guard images, and shots of classes that have none."""
    with database.read() as db:
        found = classes.guard_set(db, loaded.model_id, loaded.classifier.class_ids, CHECKED)
    return [image.scaled or image.data for image in found]


@dataclass
class Parity:
    """How the answers of a graph compare with those of the service."""

    images: int = 0
    other_top: int = 0  # images whose nearest class is another
    other_unknown: int = 0
    difference: float = 0.0  # the largest, between distances to any class
    worst: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not self.other_top and self.difference <= TOLERANCE

    def __str__(self) -> str:
        same = f"top-1 the same for {self.images - self.other_top}, unknown for {self.images - self.other_unknown}"
        images = f"{self.images} {'image' if self.images == 1 else 'images'}"
        return f"checked with {images}: {same}; distances differ by at most {self.difference:.6f}"


@torch.inference_mode()
def compare(loaded: LoadedVersion, graph: EdgeModel, images: Iterable[tuple[str, bytes]]) -> Parity:
    """Each image, by its name, through the service's engine and through the graph, after the same decoding."""
    parity = Parity()
    for name, data in images:
        network = loaded.network
        try:
            pixels = decode(data, short_side=network.framing.short_side, max_pixels=UNLIMITED)
        except ImageError as error:
            raise UnusableImage(f"{name}: {error}") from error
        features = network.tail(network.trunk(centre_view(pixels, network.framing)[None]))
        _count(parity, name, loaded, features, graph(np.asarray(pixels)))
    return parity


def _count(parity: Parity, name: str, loaded: LoadedVersion, features: torch.Tensor, found: EdgeAnswer) -> None:
    distances = loaded.classifier.distances(features)
    (expected,) = loaded.classifier.predict(features, top_k=1)
    difference = float((distances - found.all_distances).abs().max())
    other_top = not bool(distances[0, found.top[0, 0]] <= distances.min() + TIE)
    parity.images += 1
    parity.other_top += other_top
    parity.other_unknown += expected.unknown != bool(found.unknown[0])
    # Written this way round so that a NaN is the largest difference.
    parity.difference = parity.difference if difference <= parity.difference else difference
    if other_top or not difference <= TOLERANCE:
        parity.worst.append(f"{name} ({'another class' if other_top else f'distances differ by {difference:.6f}'})")
