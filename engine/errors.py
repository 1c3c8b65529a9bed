"""Errors of the engine that a caller can act on."""

from collections.abc import Sequence
from dataclasses import dataclass


class Overloaded(Exception):
    """The queue is full. Raised at once, before any work is done."""


@dataclass(frozen=True)
class BadImage:
    """One image of a request that cannot be used."""

    index: int
    filename: str | None
    reason: str


class UnusableImages(Exception):
    """Some images of a request cannot be used, so nothing was done with the others."""

    def __init__(self, images: Sequence[BadImage], total: int) -> None:
        self.images = list(images)
        self.total = total
        first = self.images[0]
        super().__init__(
            f"{len(self.images)} of {total} images cannot be used, and nothing was done with the others; "
            f"image {first.index}: {first.reason}"
        )
