"""Forms with images (multipart/form-data), as the bytes of a body."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """An image as it is sent."""

    data: bytes = field(repr=False)
    filename: str | None = None


def as_form(field_name: str, images: Sequence[EncodedImage], texts: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The arguments of a request with this form."""
    boundary = uuid4().hex
    parts: list[bytes] = []
    for name, text in (texts or {}).items():
        parts.append(_head(boundary, f'name="{name}"'))
        parts.append(text.encode())
    for image in images:
        named = f'; filename="{_in_quotes(image.filename)}"' if image.filename else ""
        parts.append(_head(boundary, f'name="{field_name}"{named}', "application/octet-stream"))
        parts.append(image.data)
    parts.append(f"\r\n--{boundary}--\r\n".encode())
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    return {"content": b"".join(parts).removeprefix(b"\r\n"), "headers": headers}


def _head(boundary: str, disposition: str, media_type: str | None = None) -> bytes:
    kind = f"\r\nContent-Type: {media_type}" if media_type else ""
    return f"\r\n--{boundary}\r\nContent-Disposition: form-data; {disposition}{kind}\r\n\r\n".encode(errors="replace")


def _in_quotes(filename: str) -> str:
    """As browsers escape it."""
    return filename.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
