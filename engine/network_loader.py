"""Networks of the versions of all models, compiled when they are needed. To be moved to `learners`: it reads SQL."""

from collections.abc import Collection

from sqlalchemy.orm import Session

from engine.backbone_cache import BackboneCache
from engine.compiled_backbone import CompiledBackbone
from engine.network import Network
from engine.recently_used import RecentlyUsed
from learners.loading import trained
from store.models import ModelId, Version

Key = tuple[ModelId, int]  # which version's weights
SECONDS_FOR_A_BACKBONE = 5.0  # enough to read one that was prepared before


class NetworkLoader:
    """Compiles networks and keeps the last few, because versions share weights. Any thread may call it.

    Two threads that want the same network at the same time both compile it, and one of the two is kept: that is rare,
    and neither has to wait for the other.
    """

    def __init__(self, networks: BackboneCache, keep: int = 4) -> None:
        self.networks = networks
        self.compiled: RecentlyUsed[Key, Network] = RecentlyUsed(keep)

    def kit(self, backbone: str) -> CompiledBackbone:
        """Raises Busy if it is not ready soon: nobody waits for a backbone that has to be prepared first."""
        return self.networks.kit(backbone, SECONDS_FOR_A_BACKBONE)

    def load(self, db: Session, backbone: str, version: Version) -> Network:
        key = (version.model_id, version.weights)
        return self.compiled.get(key) or self.compiled.put(key, self._compile(db, backbone, version, key))

    def keep_only(self, model_ids: Collection[ModelId]) -> None:
        """Drop the networks of models that were deleted."""
        self.compiled.drop(lambda key: key[0] not in model_ids)

    def _compile(self, db: Session, backbone: str, version: Version, key: Key) -> Network:
        compiled = self.kit(backbone)
        found = trained(db, compiled.tail_weights, version)
        return compiled.network(found.weights, found.space, key)
