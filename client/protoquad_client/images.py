"""Images in any form that callers have them in, as the bytes that are sent."""

import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING, Any, Union, cast

from protoquad_client import scaling
from protoquad_client.forms import EncodedImage

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image as PillowImage

    Array = np.ndarray[Any, np.dtype[np.uint8]]

# A path, the bytes of a file, an open file, an image of Pillow's, or a NumPy array (height, width[, 3 or 4]) of uint8.
Image = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview, IO[bytes], "PillowImage", "Array"]
ACCEPTED = "a path, bytes, an open file, an image of Pillow's or a NumPy array"
CHANNELS = {1: 0, 3: 2, 4: 6}  # of an array: the colour type of a PNG


def encoded(image: Image, short_side: int | None) -> EncodedImage:
    """The bytes to send; scaled down if the image is much larger than `short_side`, None: never."""
    if isinstance(image, (str, os.PathLike)):
        path = Path(image)
        return EncodedImage(_small(path.read_bytes(), short_side), path.name)
    if isinstance(image, (bytes, bytearray, memoryview)):
        return EncodedImage(_small(bytes(image), short_side))
    if hasattr(image, "__array_interface__") and hasattr(image, "dtype"):
        return EncodedImage(_encoded_array(image, short_side))
    if hasattr(image, "getexif"):
        return EncodedImage(
            scaling.encoded_pillow(cast("PillowImage", image), short_side), _name_of(getattr(image, "filename", None))
        )
    if hasattr(image, "read"):
        return EncodedImage(_small(_read(image), short_side), _name_of(getattr(image, "name", None)))
    raise TypeError(f"an image is {ACCEPTED}, not {type(image).__name__}")


def encoded_all(images: Iterable[Image], short_side: int | None) -> list[EncodedImage]:
    return [encoded(image, short_side) for image in images]


def as_images(images: "Iterable[Image] | Image") -> Iterable[Image]:
    """Several images; a single one counts as a list of one."""
    single = isinstance(images, (str, os.PathLike, bytes, bytearray, memoryview))
    if single or hasattr(images, "read") or hasattr(images, "getexif") or _is_one_array(images):
        return [images]  # type: ignore[list-item]
    return images  # type: ignore[return-value]


def batches(images: Iterable[Image], size: int) -> Iterator[tuple[int, list[Image]]]:
    """Lists of this many images, each with the place of its first one."""
    if size < 1:
        raise ValueError(f"a batch has at least 1 image, not {size}")
    start, batch = 0, list[Image]()
    for image in images:
        batch.append(image)
        if len(batch) == size:
            yield start, batch
            start, batch = start + size, []
    if batch:
        yield start, batch


def _is_one_array(images: Any) -> bool:
    return hasattr(images, "dtype") and getattr(images, "ndim", 4) <= 3


def _small(data: bytes, short_side: int | None) -> bytes:
    return data if short_side is None else scaling.scaled_file(data, short_side)


def _read(file: Any) -> bytes:
    data = file.read()
    if not isinstance(data, bytes):
        raise TypeError("the file of an image is open as text; open it with mode 'rb'")
    return data


def _name_of(name: Any) -> str | None:
    """Of an open file that has one; it may be a number."""
    return (PurePath(name).name or None) if isinstance(name, str) else None


def _encoded_array(array: Any, short_side: int | None) -> bytes:
    shape: Sequence[int] = array.shape
    fits = len(shape) == 2 or (len(shape) == 3 and shape[2] in CHANNELS)
    if str(array.dtype) != "uint8" or not fits or 0 in shape:
        raise TypeError(
            f"an image in NumPy is of uint8 and has the shape (height, width), or (height, width, 1, 3 or 4), "
            f"not {array.dtype} and {tuple(shape)}; scale values to 0 to 255 and channels to the end"
        )
    if short_side is not None and min(shape[:2]) >= 2 * short_side:
        scaled = scaling.scaled_array(array[..., 0] if shape[2:] == (1,) else array, short_side)
        if scaled is not None:
            return scaled
    return _png(array.tobytes(), shape[1], shape[0], shape[2] if len(shape) == 3 else 1)


def _png(pixels: bytes, width: int, height: int, channels: int) -> bytes:
    """Without Pillow: a line is its filter (none) and its pixels."""
    line = width * channels
    lines = b"".join(b"\0" + pixels[start : start + line] for start in range(0, len(pixels), line))
    header = struct.pack(">IIBBBBB", width, height, 8, CHANNELS[channels], 0, 0, 0)
    chunks = _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(lines, 1)) + _chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
