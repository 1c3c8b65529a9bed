"""Large images made smaller with Pillow, as the service would see them anyway. Without Pillow nothing is changed.

The service scales the shorter side of an image to some 256 to 512 pixels before its network sees it, and to twice that
for shots that are trained on. It halves a JPEG while it decodes it, as often as that allows. So does this module, down
to a length that the service would still halve: the pixels that the network sees stay nearly the same. Measured on birds
with 3000 pixels and the default backbone, features move by 0.001 of their distances to each other; scaled to the same
length by a filter, by 0.012. Other formats are averaged over blocks, as in the service: 0.012.
"""

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

PREDICTED = 1024  # pixels that the shorter side keeps at least
SHOT = 2048  # shots are stored, and a later release may look closer
SHORT_FILE = 300_000  # bytes; a shorter file is sent as it is
QUALITY = 90
PLAIN = ("RGB", "L")  # other modes have transparency, more than 8 bits or other colours: the service converts them


def scaled_file(data: bytes, short_side: int) -> bytes:
    """The bytes of an image, or of a smaller form of it."""
    if len(data) < SHORT_FILE:
        return data
    try:
        from PIL import Image
    except ImportError:
        return data
    try:
        with Image.open(io.BytesIO(data)) as image:
            if not _is_large(image, short_side):
                return data
            image.draft(None, (short_side, short_side))  # halves a JPEG, and does nothing to other formats
            smaller = _jpeg(_reduced(image, short_side))
    except Exception:  # the service says better what is wrong with an image
        return data
    return smaller if len(smaller) < len(data) else data


def encoded_pillow(image: "PillowImage", short_side: int | None) -> bytes:
    """An image of Pillow's as a file: without loss, unless it is scaled down."""
    if short_side is not None and _is_large(image, short_side):
        return _jpeg(_reduced(image, short_side))
    return _png(_upright(image))


def scaled_array(array: Any, short_side: int) -> bytes | None:
    """A smaller form of an array of uint8; None if it is not large, or without Pillow."""
    try:
        from PIL import Image
    except ImportError:
        return None
    image = Image.fromarray(array)
    return _jpeg(_reduced(image, short_side)) if _is_large(image, short_side) else None


def _is_large(image: "PillowImage", short_side: int) -> bool:
    """Whether it can be halved."""
    # Pillow before 10.1 does not say whether there is transparency.
    plain = image.mode in PLAIN and not getattr(image, "has_transparency_data", True)
    return plain and min(image.size) >= 2 * short_side


def _reduced(image: "PillowImage", short_side: int) -> "PillowImage":
    blocks = min(image.size) // short_side
    return _upright(image.reduce(blocks) if blocks > 1 else image)


def _upright(image: "PillowImage") -> "PillowImage":
    """Turned as its EXIF block says, which is not sent on."""
    from PIL import ImageOps

    return ImageOps.exif_transpose(image)


def _jpeg(image: "PillowImage") -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", quality=QUALITY, subsampling=0)
    return out.getvalue()


def _png(image: "PillowImage") -> bytes:
    out = io.BytesIO()
    kept = image if image.mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16") else image.convert("RGB")
    kept.save(out, "PNG", compress_level=1)
    return out.getvalue()
