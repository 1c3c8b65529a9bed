"""A network ready to answer: a trunk that all models on a backbone share, a tail for each set of weights."""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy.orm import Session

from core.images import Framing
from core.space import Space
from engine.backbone_cache import BackboneCache
from engine.compiled_backbone import CompiledBackbone
from engine.compiled_module import CompiledModule, warmed
from engine.recently_used import RecentlyUsed
from learners.loading import trained
from store.models import ModelId, Version

Key = tuple[ModelId, int]  # which version's weights
SECONDS_FOR_A_BACKBONE = 5.0  # enough to read one that was prepared before


@dataclass(frozen=True, eq=False)
class Network:
    key: Key
    trunk: CompiledModule
    tail: CompiledModule
    space: Space
    framing: Framing
    dim: int


class NetworkLoader:
    """Compiles networks; the last few are kept, for versions share weights. Any thread may ask.

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
        kit = self.kit(backbone)
        learnt = trained(db, kit.own, version)
        trunk, tail = kit.trunk(learnt.weights), kit.tail(learnt.weights)
        if trunk is not kit.own_trunk:
            warmed(trunk, kit.framing.blank())
        warmed(tail, kit.activation)
        return Network(key, trunk, tail, learnt.space, kit.framing, kit.dim)
