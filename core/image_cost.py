"""What an image will cost to decode, estimated from its bytes before any decoder runs.

Knows the plain forms in which encoders write images, and how large those are. Anything that it does not recognise as
plain is costly: it may be harmless, but must be decoded where it can be stopped. Takes a bounded number of steps and
never raises, whatever the bytes.
"""

import re
import struct
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from core.errors import ImageTooCostly
from core.pixels import signature


class Cost(Enum):
    """How long decoding keeps a core busy."""

    SMALL = "small"  # milliseconds: decode it anywhere
    LARGE = "large"  # up to 0.2 seconds: not in all threads at once
    COSTLY = "costly"  # longer, or not known: in a separate process


@dataclass(frozen=True)
class Inspection:
    """What the bytes show about an image."""

    cost: Cost
    pixels: int = 0  # according to its header
    scans: int = 1  # passes of a JPEG decoder over all of them
    excess: str | None = None  # what no honest encoder writes, if it is too much even for a separate process

    def require_affordable(self, max_pixels: int) -> None:
        """Raise ImageTooCostly where decoding would take too long."""
        if self.excess:
            raise ImageTooCostly(f"the image has {self.excess}; save it again with another program")
        work, most = self.pixels * self.scans, MOST_PASSES * max_pixels
        if self.scans > 1 and work > most:
            raise ImageTooCostly(
                f"the image is a JPEG of {self.pixels} pixels in {self.scans} scans, {work} pixels to decode in all; "
                f"at most {most} are allowed, so save it as a baseline JPEG, or smaller"
            )


MOST_PASSES = 25  # over an image of `max_pixels`; encoders write 10 scans, some up to 20
MOST_SEGMENTS = 400  # before a JPEG's pixels: 25 MB of metadata in segments of 64 KB
MOST_MARKERS = 4_000  # between the scans of a JPEG
MANY_CHUNKS, MOST_CHUNKS = 2_500, 20_000  # of a PNG: libpng writes 8 KB into each
MOST_TEXTS = 8  # of a PNG, compressed: Pillow inflates up to a megabyte of each
MOST_BLOCKS = 1_000  # before the first frame of a GIF: 250 KB of comments
MANY_ENTRIES, MOST_ENTRIES = 100, 1_000  # in the directory of a TIFF, or of EXIF, which is one
MOST_STRIPS = 65_536  # of a TIFF
MOST_RUN_LENGTHS = 4_000_000  # pixels of a BMP that Pillow expands in Python
MOST_EXIF = 16  # segments of a JPEG: Pillow joins them one after another
MUCH_METADATA, MOST_METADATA = 65_536, 4_000_000  # bytes that Pillow would parse in Python

SHORT_FILE, LONG_FILE = 2_000_000, 16_000_000  # bytes of a small and of a large image at most
_COSTLY = Inspection(Cost.COSTLY)


def inspect(data: bytes) -> Inspection:
    """The cost of decoding these bytes; small for bytes of no accepted format, which are rejected at once."""
    name = signature(data)
    if name is None:
        return Inspection(Cost.SMALL)
    try:
        found = _INSPECTORS[name](data)
    except (IndexError, struct.error, KeyError):  # the bytes end too early
        return _COSTLY
    if len(data) > LONG_FILE:
        return replace(found, cost=Cost.COSTLY)
    return replace(found, cost=Cost.LARGE) if found.cost is Cost.SMALL and len(data) > SHORT_FILE else found


def _odd(data: bytes, excess: str, pixels: int = 0) -> Inspection:
    """Not of a plain form: Pillow may parse it byte by byte, which is affordable for a short file only."""
    return Inspection(Cost.COSTLY, pixels, excess=excess if len(data) > SHORT_FILE else None)


def _by_pixels(pixels: int, small: int, large: int, scans: int = 1) -> Inspection:
    work = pixels * scans
    return Inspection(Cost.SMALL if work <= small else Cost.LARGE if work <= large else Cost.COSTLY, pixels, scans)


# JPEG

_BARE = frozenset([*range(0x00, 0xC0), 0xC8, *range(0xD0, 0xDA), 0xDE, 0xDF, *range(0xF0, 0xFE), 0xFF])
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_SEQUENTIAL = frozenset([0xC0, 0xC1])
_COMMON_FRAMES = frozenset([0xC0, 0xC1, 0xC2])  # baseline, extended and progressive, all of them with Huffman codes
_PARSED = frozenset([0xDB, 0xED])  # by Pillow, in Python: quantisation tables and Photoshop resources
_NEXT_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_SLICE = 1 << 20  # bytes searched before other threads get their turn


def _jpeg(data: bytes) -> Inspection:
    """Size and scans of the frame, if only plain segments are before it."""
    header = _jpeg_header(data)
    if header is None:
        return _odd(data, f"no frame and scan within its first {MOST_SEGMENTS} segments, or other bytes between them")
    # A sequential frame whose first scan has all components is complete with it: the decoder reads no further.
    single = header.kind in _SEQUENTIAL and data[header.scan + 4] == header.components
    scans = 1 if single else _scans(data, header.scan)
    if header.exif > MOST_EXIF or header.parsed > MOST_METADATA:
        return _odd(data, f"{header.exif} segments of EXIF and {header.parsed} bytes of tables", header.pixels)
    if scans >= MOST_MARKERS:
        return _odd(data, f"{MOST_MARKERS} or more markers between its scans", header.pixels)
    odd = header.exif > 1 or header.long_directory or header.parsed > 2 * MUCH_METADATA
    if odd or header.kind not in _COMMON_FRAMES:
        return Inspection(Cost.COSTLY, header.pixels, scans)
    if single:
        return _by_pixels(header.pixels, 4_000_000, 16_000_000)
    return _by_pixels(header.pixels, 10_000_000, 130_000_000, scans)


class _JpegHeader(NamedTuple):
    """The segments before the first scan."""

    kind: int  # of the frame
    pixels: int
    components: int
    scan: int  # where it begins
    exif: int  # segments
    parsed: int  # bytes that Pillow parses in Python
    long_directory: bool  # of tags


def _jpeg_header(data: bytes) -> _JpegHeader | None:
    """Walk the segments; None where there are too many, or other bytes between them."""
    at, frame, exif, parsed, long_directory = 2, 0, 0, 0, False
    for _ in range(MOST_SEGMENTS):
        marker, length = data[at + 1], data[at + 2] << 8 | data[at + 3]
        if data[at] != 0xFF or marker in _BARE or length < 2:
            return None
        if marker == 0xDA:
            break
        if marker in _FRAMES:
            if frame:
                return None
            frame = at
        elif marker == 0xE1:
            found = data[at + 4 : at + 8] == b"Exif"
            exif += found
            long_directory = long_directory or (found and _has_many_entries(data, at + 10))
        elif marker == 0xE2 and data[at + 4 : at + 8] == b"MPF\0":  # several images in one file
            long_directory = long_directory or _has_many_entries(data, at + 8)
        elif marker in _PARSED:
            parsed += length
        at += 2 + length
    if not frame or data[at + 1] != 0xDA:
        return None
    height, width, components = struct.unpack_from(">HHB", data, frame + 5)
    return _JpegHeader(data[frame + 1], width * height, components, at, exif, parsed, long_directory)


def _scans(data: bytes, at: int) -> int:
    """The number of scans from this one on; MOST_MARKERS where there are too many to count."""
    scans = 0
    for _ in range(MOST_MARKERS):
        marker = data[at + 1]
        scans += marker == 0xDA
        length = 0 if marker in _BARE else int.from_bytes(data[at + 2 : at + 4], "big")
        at = _next_marker(data, at + 2 + length)
        if marker == 0xD9 or at < 0:
            return scans
    return MOST_MARKERS


def _next_marker(data: bytes, at: int) -> int:
    for start in range(at, len(data), _SLICE):
        found = _NEXT_MARKER.search(data, start, start + _SLICE + 1)
        if found:
            return found.start()
    return -1


# PNG

_COMPRESSED_TEXT = frozenset([b"zTXt", b"iTXt", b"iCCP"])


def _png(data: bytes) -> Inspection:
    """Walk the chunks: plain are few chunks, only those of pixels long, and no animation."""
    width, height = struct.unpack_from(">II", data, 16)
    at, texts, plain = 8, 0, True
    for number in range(MOST_CHUNKS):
        length, kind = struct.unpack_from(">I4s", data, at)
        if kind == b"IEND":
            found = _by_pixels(width * height, 1_000_000, 9_000_000)
            return found if plain and number <= MANY_CHUNKS else replace(found, cost=Cost.COSTLY)
        texts += kind in _COMPRESSED_TEXT
        misplaced = (kind == b"IHDR") != (at == 8)  # Pillow would use a second header
        long = kind != b"IDAT" and length > MUCH_METADATA
        long = long or (kind == b"eXIf" and _has_many_entries(data, at + 8))
        long = long or data.startswith(b"Raw profile type", at + 8)  # for example EXIF in hexadecimal digits
        plain = plain and not (misplaced or long or kind == b"acTL" or texts > MOST_TEXTS)
        at += 12 + length
    return _odd(data, f"more than {MOST_CHUNKS} chunks", width * height)


# WebP


def _webp(data: bytes) -> Inspection:
    """Plain is one image with alpha and metadata; an animation takes the memory of three canvases."""
    kind = data[12:16]
    if kind == b"VP8 ":
        wide, high = struct.unpack_from("<HH", data, 26)
        width, height = wide & 0x3FFF, high & 0x3FFF
    elif kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    else:
        width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
        if data[20] & 0x02:
            return Inspection(Cost.COSTLY, width * height)
    at = 12
    for _ in range(16):
        if at >= len(data):
            return _by_pixels(width * height, 500_000, 4_000_000)
        name, length = struct.unpack_from("<4sI", data, at)
        if name not in (b"VP8 ", b"VP8L", b"ALPH") and length > MUCH_METADATA:
            break
        if name == b"EXIF" and _has_many_entries(data, at + (14 if data.startswith(b"Exif", at + 8) else 8)):
            break
        at += 8 + length + length % 2
    return Inspection(Cost.COSTLY, width * height)


# GIF


def _gif(data: bytes) -> Inspection:
    """Walk the extensions up to the first frame."""
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    at = 13 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
    in_extension = False
    for _ in range(MOST_BLOCKS):
        byte = data[at]
        if in_extension:
            at += 1 + byte
            in_extension = byte != 0
        elif byte == 0x21:
            at, in_extension = at + 2, True
        elif byte == 0x2C:
            left, top, wide, high = struct.unpack_from("<HHHH", data, at + 1)
            return _by_pixels(max(width, left + wide) * max(height, top + high), 1_000_000, 9_000_000)
        else:
            break
    return _odd(data, f"no frame within its first {MOST_BLOCKS} blocks", width * height)


# BMP


def _bmp(data: bytes) -> Inspection:
    """Plain are raw pixels; Pillow expands run lengths in Python."""
    size, width, height, _, _, compression, *_, colours = struct.unpack_from("<IiiHHIIiiI", data, 14)
    pixels = abs(width * height)
    if compression in (1, 2) and pixels > MOST_RUN_LENGTHS:
        return Inspection(Cost.COSTLY, pixels, excess=f"{pixels} pixels in run lengths, of {MOST_RUN_LENGTHS} allowed")
    if size not in (40, 52, 56, 108, 124) or compression not in (0, 3) or colours > 256:
        return Inspection(Cost.COSTLY, pixels)
    return _by_pixels(pixels, 1_000_000, 9_000_000)


# TIFF

_VALUE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8}
_PLAIN_COMPRESSION = frozenset([1, 5, 8, 32773, 32946])  # none, LZW, deflate, packed bits, deflate
_STRIPS = frozenset([273, 279, 324, 325])
_NOT_PLAIN = frozenset([322, 34665, 34853, 40965])  # tiles, and directories within the directory


def _has_many_entries(data: bytes, at: int) -> bool:
    """Whether the directory of the TIFF at this position is long: Pillow parses each entry in Python."""
    order = {b"II": "<", b"MM": ">"}.get(data[at : at + 2])
    if order is None:
        return False
    (start,) = struct.unpack_from(order + "I", data, at + 4)
    (count,) = struct.unpack_from(order + "H", data, at + start)
    return bool(count > MANY_ENTRIES)


def _tiff(data: bytes) -> Inspection:
    """Plain are a short directory of short values, and strips in a common compression."""
    order = {b"II*\0": "<", b"MM\0*": ">"}[data[:4]]  # BigTIFF and misspelt headers are not plain
    (at,) = struct.unpack_from(order + "I", data, 4)
    (count,) = struct.unpack_from(order + "H", data, at)
    values, long, strips = dict[int, int](), 0, 0
    for number in range(min(count, MOST_ENTRIES)):
        tag, kind, length, value = struct.unpack_from(order + "HHII", data, at + 2 + 12 * number)
        if tag in values:
            return _COSTLY
        values[tag] = _single(kind, length, value, order)
        long += length * _VALUE_BYTES.get(kind, 0)
        strips = max(strips, length if tag in _STRIPS else 0)
    pixels = values[256] * values[257]
    if count >= MOST_ENTRIES or strips > MOST_STRIPS:
        return _odd(data, f"{count} entries in its directory and {strips} strips", pixels)
    if count > MANY_ENTRIES or long > MUCH_METADATA or values.get(259, 1) not in _PLAIN_COMPRESSION:
        return Inspection(Cost.COSTLY, pixels)
    if not _NOT_PLAIN.isdisjoint(values):
        return Inspection(Cost.COSTLY, pixels)
    return _by_pixels(pixels, 1_000_000, 9_000_000)


def _single(kind: int, length: int, value: int, order: str) -> int:
    """The integer that an entry holds; for an entry that holds anything else, a number too large for any image."""
    if length != 1 or kind not in (3, 4):
        return 1 << 32
    return value >> 16 if kind == 3 and order == ">" else value & (0xFFFF if kind == 3 else 0xFFFFFFFF)


_INSPECTORS = {"JPEG": _jpeg, "PNG": _png, "WEBP": _webp, "GIF": _gif, "BMP": _bmp, "TIFF": _tiff}
