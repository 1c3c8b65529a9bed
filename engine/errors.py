"""What the engine refuses. Knows nothing of HTTP: the service gives each error its status."""

from collections.abc import Sequence
from dataclasses import dataclass

from core.errors import BackboneError


@dataclass(frozen=True)
class BadImage:
    """One image that cannot be used."""

    index: int  # its place in the request, from 0
    filename: str | None
    reason: str


class UnusableImages(Exception):
    """Some images of a request cannot be used, so nothing was done with any of them."""

    def __init__(self, images: Sequence[BadImage], total: int) -> None:
        first = images[0]
        super().__init__(
            f"{len(images)} of {total} images cannot be used, and nothing was done with the others; "
            f"image {first.index}: {first.reason}"
        )
        self.images = list(images)
        self.total = total


class Overloaded(Exception):
    """More images wait than are allowed; the same request may succeed after `retry_seconds`."""

    retry_seconds = 1


class BrokenCompiledBackbone(BackboneError):
    """A compiled backbone on disk is not as it was written."""
