"""What a version should answer: read whole from the tables, by a process that was never faulted.

Replicas get where they are by many small steps. That a class is answered for rightly is judged by where this finds it,
and not by whether it is the nearest: how well a network that was never trained tells colours apart is another question.
"""

from pathlib import Path

import torch

from core.images import centre_view, decode
from engine.backbone_cache import BackboneCache
from learners.version_loader import VersionLoader
from store.database import Database

EVERYTHING = 100  # candidates: more than there are classes


class Fresh:
    def __init__(self, database: Database) -> None:
        self._loader = VersionLoader(database, BackboneCache(torch.device("cpu"), "torch", Path("nothing-is-kept")))

    def distances(self, model: str, number: int, pictures: list[bytes]) -> list[dict[int, float]]:
        """Of each picture: how far it is from every class of that version."""
        version = self._loader.load(model, number, None)
        network = version.network
        side = network.framing.short_side
        views = torch.stack([centre_view(decode(data, short_side=side), network.framing) for data in pictures])
        found = version.classifier.predict(network.tail(network.trunk(views)), EVERYTHING)
        return [{candidate.class_id: candidate.distance for candidate in one.top} for one in found]
