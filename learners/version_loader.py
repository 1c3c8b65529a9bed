"""Versions read from the store and made ready to answer. The version cache of a service loads them here."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from sqlalchemy.orm import Session

from core.bank import ClassId
from core.classifier import Learned
from engine.backbone_cache import BackboneCache
from engine.class_search import ClassSearch
from engine.network import Network, NetworkKey
from engine.recently_used import RecentlyUsed
from engine.version_cache import Head
from learners.blobs import from_blob
from learners.calibrated_bank import HeldOut
from learners.loading import certainty_of, classifier_of_version, untaught, weights_of_version
from store import bank_rows, catalogue, classes, versions
from store.bank_rows import PrototypeRow
from store.database import Database
from store.models import Model, ModelId, Version

NETWORKS_KEPT = 4  # compiled ones: many versions share their weights
SECONDS_FOR_A_BACKBONE = 5.0  # enough to read one that was compiled before


@dataclass(frozen=True, eq=False)
class LoadedVersion:
    """One version, whole: whoever holds it is not affected by a swap."""

    model_id: ModelId
    model: str
    backbone: str
    row: Version
    network: Network
    classifier: ClassSearch
    held_out: HeldOut
    names: Mapping[int, str]
    renames: int

    @property
    def number(self) -> int:
        return self.row.number

    @property
    def head(self) -> Head:
        return Head(self.model_id, self.backbone, self.number, self.renames)

    def name(self, class_id: int) -> str:
        return self.names.get(class_id, f"class {class_id}")

    def followed_by(self, row: Version, changes: list[PrototypeRow], names: Mapping[int, str]) -> "LoadedVersion":
        """The next version on the same network: only what changed is read."""
        learned = {ClassId(change.class_id): _learned(change) for change in changes}
        held_out = {class_id: found for class_id, found in self.held_out.items() if class_id not in learned}
        held_out |= {ClassId(change.class_id): from_blob(change.held_out) for change in changes if change.held_out}
        classifier = self.classifier.changed(learned, certainty_of(row))
        return replace(self, row=row, classifier=classifier, held_out=held_out, names=names)


class VersionLoader:
    """Implements `engine.version_cache.Source`. Any thread may ask.

    Two threads that need the same network at the same time both compile it, and one of the two is kept: that is rare,
    and neither has to wait for the other.
    """

    def __init__(self, database: Database, backbones: BackboneCache) -> None:
        self.database = database
        self.backbones = backbones
        self.networks: RecentlyUsed[NetworkKey, Network] = RecentlyUsed(NETWORKS_KEPT)

    def head(self, model: str) -> Head:
        with self.database.read() as db:
            return _head(catalogue.get(db, model))

    def heads(self) -> dict[str, Head]:
        with self.database.read() as db:
            return {row.name: _head(row) for row in catalogue.everything(db)}

    def keep_only(self, model_ids: Collection[int]) -> None:
        """Drop the networks of models that were deleted."""
        self.networks.drop(lambda key: key[0] not in model_ids)

    def load_head(self, model: str, head: Head, known: LoadedVersion | None) -> LoadedVersion:
        """The head as it is now; `head` is what it was a moment ago, `known` what this process has of the model."""
        if known is None or known.backbone != head.backbone:
            self._require_backbone(head.backbone)
        with self.database.read() as db:
            row = catalogue.get(db, model)
            version = versions.servable(db, row.id, row.head)
            names = classes.names(db, row.id)
            if known is not None and known.network.key == (row.id, version.weights):
                changes = bank_rows.changes(db, row.id, known.number, version.number)
                if changes is not None:
                    return replace(known.followed_by(version, changes, names), renames=row.renames)
            return self._loaded(db, row, version, names)

    def size_of(self, model: str, number: int) -> tuple[int, int]:
        """Model id and number of classes of a version that can be served; raises if it cannot."""
        with self.database.read() as db:
            model_id = catalogue.get(db, model).id
            return model_id, versions.servable(db, model_id, number).classes

    def load(self, model: str, number: int, active: LoadedVersion | None) -> LoadedVersion:
        """A version by its number. It shares the names of its classes with the active one."""
        self._require_backbone(self.head(model).backbone)
        with self.database.read() as db:
            row = catalogue.get(db, model)
            version = versions.servable(db, row.id, number)
            shared = active is not None and active.model_id == row.id
            return self._loaded(db, row, version, active.names if active and shared else classes.names(db, row.id))

    def _require_backbone(self, name: str) -> None:
        """Reading a compiled backbone may take seconds: call this while no transaction is open.

        Raises Busy if it is not ready soon: nobody waits for a backbone that has to be compiled first.
        """
        self.backbones.compiled(name, SECONDS_FOR_A_BACKBONE)

    def _loaded(self, db: Session, row: Model, version: Version, names: Mapping[int, str]) -> LoadedVersion:
        network = self._network(db, row.backbone, version)
        classifier, held_out = classifier_of_version(db, version, network.space, network.dim)
        return LoadedVersion(row.id, row.name, row.backbone, version, network, classifier, held_out, names, row.renames)

    def _network(self, db: Session, backbone: str, version: Version) -> Network:
        key = (version.model_id, version.weights)
        network = self.networks.get(key)
        if network is not None:
            return network
        compiled = self.backbones.compiled(backbone, SECONDS_FOR_A_BACKBONE)
        own = untaught(backbone, compiled.tail_weights, compiled.dim)
        stored = weights_of_version(db, own, version)
        return self.networks.put(key, compiled.network(stored.weights, stored.space, key))


def _learned(change: PrototypeRow) -> Learned | None:
    """None: the class was deleted."""
    if change.vector is None:
        return None
    held_out = from_blob(change.held_out) if change.held_out else None
    return Learned(from_blob(change.vector), change.shots, held_out)


def _head(row: Model) -> Head:
    return Head(row.id, row.backbone, row.head, row.renames)
