"""A network ready to answer: a trunk that all models on a backbone share, a tail for each set of weights."""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from core.images import Framing
from core.inference import Forward, warmed
from core.space import Space
from learners.loading import trained
from learners.networks import Networks
from store.models import ModelId, Version

Key = tuple[ModelId, int]  # which version's weights


@dataclass(frozen=True, eq=False)
class Network:
    key: Key
    trunk: Forward
    tail: Forward
    space: Space
    framing: Framing
    dim: int


class NetworkLoader:
    """Compiles networks, each once; the last few are kept, for versions share weights."""

    def __init__(self, networks: Networks, keep: int = 4) -> None:
        self.networks = networks
        self.keep = keep
        self._compiled: dict[Key, Network] = {}

    def load(self, db: Session, backbone: str, version: Version) -> Network:
        key = (version.model_id, version.weights)
        if key not in self._compiled:
            self._compiled[key] = self._compile(db, backbone, version, key)
        network = self._compiled.pop(key)
        self._compiled[key] = network  # the newest is last
        while len(self._compiled) > self.keep:
            del self._compiled[next(iter(self._compiled))]
        return network

    def _compile(self, db: Session, backbone: str, version: Version, key: Key) -> Network:
        kit = self.networks.kit(backbone)
        learnt = trained(db, kit.own, version)
        trunk, tail = kit.trunk(learnt.weights), kit.tail(learnt.weights)
        if trunk is not kit.own_trunk:
            warmed(trunk, kit.framing.blank())
        warmed(tail, kit.activation)
        return Network(key, trunk, tail, learnt.space, kit.framing, kit.dim)
