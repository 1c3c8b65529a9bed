"""Where the service is, with which key, and how patient to be."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from protoquad_client import scaling
from protoquad_client.forms import EncodedImage
from protoquad_client.images import Image, as_images, encoded_all

DEFAULT_URL = "http://127.0.0.1:8000"
RELEASE = "0.1.0"


@dataclass(frozen=True)
class Config:
    url: str  # without a slash at its end
    key: str | None = field(default=None, repr=False)
    timeout: float = 30.0  # seconds
    retries: int = 2
    scale_down: bool = True

    @classmethod
    def of(cls, url: str | None, key: str | None, *, timeout: float, retries: int, scale_down: bool) -> "Config":
        """What is None comes from the environment: PROTOQUAD_URL and PROTOQUAD_KEY."""
        address = (url or os.environ.get("PROTOQUAD_URL") or DEFAULT_URL).rstrip("/")
        if not _is_address(address):
            raise ValueError(f"'{address}' is no address of a service; one is {DEFAULT_URL}")
        secret = (key or os.environ.get("PROTOQUAD_KEY") or "").strip()  # a file or a Secret often ends with a newline
        if not (secret.isascii() and secret.isprintable()):
            raise ValueError("the key has characters that no key has; copy it again")
        if not timeout > 0 or retries < 0:
            raise ValueError(f"timeout is above 0 and retries are at least 0, not {timeout} and {retries}")
        return cls(address, secret or None, timeout, retries, scale_down)

    def shots(self, images: Iterable[Image] | Image) -> list[EncodedImage]:
        """As they are sent to be taught."""
        return encoded_all(as_images(images), scaling.SHOT if self.scale_down else None)

    def predicted(self, images: Iterable[Image]) -> list[EncodedImage]:
        """As they are sent to be predicted."""
        return encoded_all(images, scaling.PREDICTED if self.scale_down else None)

    def headers(self) -> Mapping[str, str]:
        """Of every request."""
        common = {"Accept": "application/json, */*", "User-Agent": f"protoquad-client/{RELEASE}"}
        return {**common, "Authorization": f"Bearer {self.key}"} if self.key else common


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        (parts.hostname or "").encode("idna")
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of the port, of brackets, or of a name that cannot be one
        return False
