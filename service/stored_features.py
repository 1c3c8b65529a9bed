"""Features of stored images, computed when somebody looks and kept: for maps, explanations and comparisons."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from anyio import CapacityLimiter
from torch import Tensor

from engine.decoding import EncodedImage
from engine.network import Network, NetworkKey
from engine.predictor import Predictor
from engine.recently_used import RecentlyUsed
from learners.stored_images import stored_encoded
from store.classes import StoredImage

KEPT = 8_192  # features of 5 KB
IMAGES_AT_ONCE = 16  # predictions come between
AT_ONCE = 2  # callers whose images are embedded


class StoredRef(NamedTuple):
    """An image, by its digest and by how to read it; `read` is called in a thread."""

    sha256: str
    read: Callable[[], bytes]


class StoredFeatures:
    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._kept: RecentlyUsed[tuple[NetworkKey, str], Tensor] = RecentlyUsed(KEPT)
        self._turns = CapacityLimiter(AT_ONCE)

    def remember(self, key: NetworkKey, sha256: str, feature: Tensor) -> None:
        """A feature that was computed before."""
        self._kept.put((key, sha256), feature)

    async def of(self, network: Network, images: Sequence[StoredRef]) -> Tensor:
        """Of the centre view of each image, (n, M). Raises ImageError, Overloaded."""
        known = {one.sha256: self._kept.get((network.key, one.sha256)) for one in images}
        missing = list({one.sha256: one for one in images if known[one.sha256] is None}.values())
        for start in range(0, len(missing), IMAGES_AT_ONCE):
            some = missing[start : start + IMAGES_AT_ONCE]
            async with self._turns:
                features = await self._computed(network, some)
            for one, computed in zip(some, features, strict=True):
                known[one.sha256] = self._kept.put((network.key, one.sha256), computed)
        found = [feature for one in images if (feature := known[one.sha256]) is not None]
        return torch.stack(found) if found else torch.zeros(0, network.dim)

    async def _computed(self, network: Network, images: Sequence[StoredRef]) -> list[Tensor]:
        def load(one: StoredRef) -> EncodedImage:
            return stored_encoded(StoredImage(0, one.sha256, one.read()), network.framing, 0)

        decoded = await asyncio.wrap_future(self._predictor.decoder.decode(images, load))
        return await asyncio.wrap_future(self._predictor.features(network, [one.view[0] for one in decoded]))
