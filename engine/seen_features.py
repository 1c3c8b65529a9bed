"""Predictions together with the features that they were made from, which costs no second computation."""

from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakKeyDictionary

from torch import Tensor

from core.classifier import Prediction
from engine.gathering import Classifier
from engine.network import Network


class Answering(Protocol):
    """What a prediction is made with: a network, and something that searches."""

    @property
    def network(self) -> Network: ...

    @property
    def classifier(self) -> Classifier: ...


@dataclass(frozen=True, eq=False)
class SeenPrediction(Prediction):
    feature: Tensor = field(kw_only=True)  # (M,) of the centre view


@dataclass(frozen=True, eq=False)
class _Seeing:
    """Searches as another classifier does, and keeps the features."""

    classifier: Classifier

    @property
    def preferred_batch(self) -> int:
        return self.classifier.preferred_batch

    def predict(self, features: Tensor, top_k: int) -> list[Prediction]:
        centres = features if features.dim() == 2 else features[:, 0]
        found = zip(self.classifier.predict(features, top_k), centres, strict=True)
        # A copy each: a row would keep the features of the whole batch in memory.
        return [SeenPrediction(one.top, one.unknown, one.limit, feature=centre.clone()) for one, centre in found]


@dataclass(frozen=True, eq=False)
class SeeingVersion:
    network: Network
    classifier: _Seeing


class SeeingVersions:
    """One for each version: requests that ask the same are searched together."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Answering, SeeingVersion] = WeakKeyDictionary()

    def of(self, version: Answering) -> SeeingVersion:
        """For use on the event loop alone."""
        if version not in self._known:
            self._known[version] = SeeingVersion(version.network, _Seeing(version.classifier))
        return self._known[version]
