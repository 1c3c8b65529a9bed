"""Small or plausible files that cost a decoder far more than an honest image: one function for each trick.

Every function returns the bytes of one file. Sizes are parameters, so that a unit test can ask for a mild form and a
test of the running service for the worst that fits into a request. `BOMBS` names a form of each for everyday tests.
"""

import io
import struct
import zlib
from collections.abc import Callable, Sequence
from functools import partial

from PIL import Image

LARGE = (7_000, 7_100)  # 49.7 megapixels: just within what is allowed


# JPEG


def _segment(marker: int, body: bytes = b"") -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def _jpeg(size: tuple[int, int], frame: int, components: int, *parts: bytes, before: bytes = b"") -> bytes:
    """A JPEG from SOI to EOI; `before` stands before the frame header."""
    width, height = size
    layers = b"".join(bytes([1 + index, 0x11, 0]) for index in range(components))
    tables = _segment(0xDB, b"\0" + bytes([1] * 64))
    # One code of one bit each: DC "no difference"; AC "the next 2^14 to 2^15 - 1 blocks are empty".
    tables += _segment(0xC4, b"\x00\x01" + bytes(15) + b"\x00") + _segment(0xC4, b"\x10\x01" + bytes(15) + b"\xe0")
    header = _segment(frame, struct.pack(">BHHB", 8, height, width, components) + layers)
    return b"\xff\xd8" + before + tables + header + b"".join(parts) + b"\xff\xd9"


def _scan(components: Sequence[int], start: int, end: int, data: bytes, *, refines: bool = False) -> bytes:
    chosen = b"".join(bytes([1 + index, 0]) for index in components)
    return _segment(0xDA, bytes([len(components)]) + chosen + bytes([start, end, 0x10 * refines])) + data


def jpeg_scans(size: tuple[int, int] = LARGE, scans: int = 300, components: int = 3) -> bytes:
    """Progressive, with far more scans than an encoder writes; each makes the decoder pass over all coefficients."""
    blocks = -(-size[0] // 8) * -(-size[1] // 8)
    first = _scan(range(components), 0, 0, bytes(blocks * components // 8 + 1))
    runs = blocks // 32_767 + 1
    bits = ("0" + "1" * 14) * runs  # the code, and how many blocks more than 2^14
    data = int(bits.ljust(-(-len(bits) // 8) * 8, "1"), 2).to_bytes(-(-len(bits) // 8), "big")
    data = data.replace(b"\xff", b"\xff\0")
    empty = [_scan([index], 1, 63, data, refines=True) for index in range(components)]
    return _jpeg(size, 0xC2, components, first, *(empty[number % components] for number in range(scans - 1)))


def jpeg_empty_scans(size: tuple[int, int] = LARGE, scans: int = 300, frame: int = 0xC2) -> bytes:
    """Scans without any data, which a decoder fills with zeros; frame 0xCA is progressive arithmetic coding."""
    return _jpeg(size, frame, 1, _scan([0], 0, 0, b""), *([_scan([0], 1, 63, b"", refines=True)] * (scans - 1)))


def jpeg_hidden_scans(size: tuple[int, int] = LARGE, scans: int = 300) -> bytes:
    """Many scans behind a comment that holds an end-of-image marker, for those who stop counting there."""
    parts = [
        _scan([0], 0, 0, b""),
        _segment(0xFE, b"\xff\xd9" * 8),
        *([_scan([0], 1, 63, b"", refines=True)] * (scans - 1)),
    ]
    return _jpeg(size, 0xC2, 1, *parts)


def jpeg_tiny_scans(size: tuple[int, int] = (2_500, 1), scans: int = 199_000) -> bytes:
    """More scans than are counted, of hardly any pixels."""
    return jpeg_empty_scans(size, scans)


def jpeg_sequential_scans(size: tuple[int, int] = LARGE, scans: int = 300) -> bytes:
    """Baseline, with every component sent over and over again in a scan of its own."""
    return _jpeg(size, 0xC0, 3, *(_scan([number % 3], 0, 63, b"") for number in range(scans)))


def jpeg_segments(count: int = 24_000_000) -> bytes:
    """Nothing but empty comments before the frame header."""
    return _jpeg((8, 8), 0xC0, 1, _scan([0], 0, 63, bytes(8)), before=_segment(0xFE) * count)


def jpeg_exif_segments(count: int = 1_500, size: int = 65_000) -> bytes:
    """EXIF in so many segments that joining them one by one is quadratic."""
    block = _segment(0xE1, b"Exif\0\0II*\0\x08\0\0\0" + bytes(size))
    return _jpeg((8, 8), 0xC0, 1, _scan([0], 0, 63, bytes(8)), before=block * count)


def jpeg_exif_entries(entries: int = 5_000) -> bytes:
    """An EXIF directory of thousands of entries."""
    block = b"Exif\0\0" + _directory([(tag, 1, 9, bytes(4)) for tag in range(entries)])
    return _jpeg((8, 8), 0xC0, 1, _scan([0], 0, 63, bytes(8)), before=_segment(0xE1, block[:65_000]))


def jpeg_padding(size: int = 95_000_000, byte: int = 0xFF) -> bytes:
    """Fill bytes where a marker is expected, which Pillow reads one by one."""
    return _jpeg((8, 8), 0xC0, 1, _scan([0], 0, 63, bytes(8)), before=_segment(0xFE) + bytes([byte]) * size)


def jpeg_tables(segments: int = 1_400) -> bytes:
    """A thousand quantisation tables in each segment."""
    tables = _segment(0xDB, (b"\0" + bytes([1] * 64)) * 1_000)
    return _jpeg((8, 8), 0xC0, 1, _scan([0], 0, 63, bytes(8)), before=tables * segments)


def jpeg_resources(segments: int = 1_400) -> bytes:
    """Thousands of Photoshop resources in each segment."""
    resource = b"8BIM\x04\x04\0\0" + bytes(4)
    block = _segment(0xED, b"Photoshop 3.0\0" + resource * 5_000)
    return _jpeg((8, 8), 0xC0, 1, _scan([0], 0, 63, bytes(8)), before=block * segments)


def jpeg_multi_picture(entries: int = 4_000) -> bytes:
    """An index of thousands of further images."""
    index = _directory([(0xB000, 7, 4, b"0100"), (0xB001, 4, 1, struct.pack("<I", entries))])
    return _jpeg((8, 8), 0xC0, 1, _scan([0], 0, 63, bytes(8)), before=_segment(0xE2, b"MPF\0" + index))


# PNG


def _chunk(kind: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _png(size: tuple[int, int], depth: int, colour: int, *chunks: bytes, interlaced: bool = False) -> bytes:
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", *size, depth, colour, 0, 0, interlaced))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + _chunk(b"IEND")


def _deflated(count: int) -> bytes:
    """So many zeros, compressed a thousandfold: one compressed megabyte over and over again, which takes no time."""
    header, checksum = b"\x78\xda", struct.pack(">I", count % 65_521 << 16 | 1)  # Adler-32 of zeros
    packer, last = zlib.compressobj(9, wbits=-15), zlib.compressobj(9, wbits=-15)
    megabyte = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    rest = last.compress(bytes(count & 0xFFFFF)) + last.flush()
    return header + megabyte * (count >> 20) + rest + checksum


def png_flat(
    size: tuple[int, int] = LARGE, depth: int = 8, colour: int = 6, *, interlaced: bool = False, extra: bytes = b""
) -> bytes:
    """One colour in as many pixels as are allowed; depth 16 and colours 4 and 6 take the most memory."""
    bits = depth * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    row = 1 + (size[0] * bits + 7) // 8
    count = row * size[1] + (size[1] * 20 if interlaced else 0)
    palette = _chunk(b"PLTE", bytes(768)) if colour == 3 else b""
    return _png(size, depth, colour, palette, extra, _chunk(b"IDAT", _deflated(count)), interlaced=interlaced)


def png_chunks(count: int = 7_900_000, kind: bytes = b"tEXt") -> bytes:
    """Nothing but empty chunks before the pixels."""
    return _png((1, 1), 8, 0, _chunk(kind) * count, _chunk(b"IDAT", zlib.compress(b"\0\0")))


def png_late_chunks(count: int = 7_900_000) -> bytes:
    """Nothing but empty chunks behind the pixels."""
    return _png((1, 1), 8, 0, _chunk(b"IDAT", zlib.compress(b"\0\0")), _chunk(b"prVt") * count)


def png_tiny_idats(size: tuple[int, int] = LARGE) -> bytes:
    """Pixels in chunks of one byte."""
    data = _deflated((size[0] * 4 + 1) * size[1])
    return _png(size, 8, 6, *(_chunk(b"IDAT", data[at : at + 1]) for at in range(len(data))))


def png_text(chunks: int = 60, size: int = 1_000_000) -> bytes:
    """Compressed text that is a thousand times as long."""
    packed = _deflated(size)
    texts = [_chunk(b"zTXt", b"key %d\0\0" % number + packed) for number in range(chunks)]
    return _png((1, 1), 8, 0, *texts, _chunk(b"IDAT", zlib.compress(b"\0\0")))


def png_profile(size: int = 2_000_000_000) -> bytes:
    """A colour profile that inflates to gigabytes."""
    return _png((1, 1), 8, 0, _chunk(b"iCCP", b"name\0\0" + _deflated(size)), _chunk(b"IDAT", zlib.compress(b"\0\0")))


def png_overrun(size: int = 2_000_000_000) -> bytes:
    """One pixel whose data inflates to gigabytes."""
    return _png((1, 1), 8, 0, _chunk(b"IDAT", _deflated(size)))


def png_exif(entries: int = 65_000) -> bytes:
    """An EXIF directory of as many entries as its counter can name."""
    block = _directory([(tag, 1, 9, bytes(4)) for tag in range(entries)])
    return _png((1, 1), 8, 0, _chunk(b"eXIf", block), _chunk(b"IDAT", zlib.compress(b"\0\0")))


def png_frames(count: int = 100_000) -> bytes:
    """An animation of more frames than anybody draws."""
    control = struct.pack(">IIIIIHHBB", 0, 1, 1, 0, 0, 1, 1, 0, 0)
    pixel = zlib.compress(b"\0\0")
    frames = (_chunk(b"fcTL", control) + _chunk(b"fdAT", bytes(4) + pixel)) * count
    return _png((1, 1), 8, 0, _chunk(b"acTL", struct.pack(">II", count, 0)), _chunk(b"IDAT", pixel), frames)


# WebP


def _riff(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)


def _webp(*chunks: bytes) -> bytes:
    body = b"WEBP" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _vp8x(size: tuple[int, int], flags: int) -> bytes:
    sides = struct.pack("<I", size[0] - 1)[:3] + struct.pack("<I", size[1] - 1)[:3]
    return _riff(b"VP8X", bytes([flags, 0, 0, 0]) + sides)


def _webp_image(size: tuple[int, int], *, lossless: bool = True) -> bytes:
    """The one chunk of pixels in a WebP of one colour."""
    buffer = io.BytesIO()
    Image.new("RGB", size, "red").save(buffer, "WEBP", lossless=lossless, method=0, quality=0)
    return buffer.getvalue()[12:]


def webp_flat(size: tuple[int, int] = LARGE, *, lossless: bool = True) -> bytes:
    """One colour in as many pixels as are allowed."""
    return _webp(_webp_image(size, lossless=lossless))


def webp_canvas(size: tuple[int, int] = LARGE, frames: int = 2) -> bytes:
    """A canvas as large as is allowed around frames of one pixel."""
    return webp_frames(frames, size)


def webp_frames(count: int = 100_000, size: tuple[int, int] = (64, 64)) -> bytes:
    """An animation of more frames than anybody draws."""
    image = _webp_image((1, 1))
    frame = _riff(b"ANMF", bytes(6) + bytes(6) + bytes([10, 0, 0, 0]) + image)
    return _webp(_vp8x(size, 0x02), _riff(b"ANIM", bytes(6)), frame * count)


def webp_chunks(count: int = 11_000_000) -> bytes:
    """Nothing but empty chunks behind the pixels."""
    return _webp(_vp8x((1, 1), 0), _webp_image((1, 1)), _riff(b"junk", b"") * count)


def webp_exif(entries: int = 65_000) -> bytes:
    """An EXIF directory of as many entries as its counter can name."""
    block = _directory([(tag, 1, 9, bytes(4)) for tag in range(entries)])
    return _webp(_vp8x((1, 1), 0x08), _webp_image((1, 1)), _riff(b"EXIF", block))


# GIF


def _gif(screen: tuple[int, int], *blocks: bytes) -> bytes:
    return b"GIF89a" + struct.pack("<HHBBB", *screen, 0x80, 0, 0) + b"\0\0\0\xff\0\0" + b"".join(blocks) + b";"


def _gif_frame(size: tuple[int, int], data: bytes = b"\x02\x4c\x01") -> bytes:
    return b"," + struct.pack("<HHHHB", 0, 0, *size, 0) + b"\x02" + data + b"\0"


def gif_comment(count: int = 47_000_000) -> bytes:
    """A comment in blocks of one byte."""
    return _gif((1, 1), b"!\xfe" + b"\x01x" * count + b"\0", _gif_frame((1, 1)))


def gif_extensions(count: int = 11_000_000) -> bytes:
    """Nothing but extensions before the first frame."""
    return _gif((1, 1), b"!\x01\x01x\0" * count, _gif_frame((1, 1)))


def gif_flat(size: tuple[int, int] = LARGE, screen: tuple[int, int] | None = None) -> bytes:
    """One colour in as many pixels as are allowed; with a small `screen`, the frame reaches beyond it."""
    buffer = io.BytesIO()
    Image.new("P", size, 1).save(buffer, "GIF")
    data = bytearray(buffer.getvalue())
    data[6:10] = struct.pack("<HH", *(screen or size))
    return bytes(data)


def gif_wide_frame(size: tuple[int, int] = (65_535, 65_535)) -> bytes:
    """A screen of one pixel, and a frame of four thousand megapixels."""
    return _gif((1, 1), _gif_frame(size))


def gif_frames(count: int = 1_000_000) -> bytes:
    """An animation of more frames than anybody draws."""
    return _gif((1, 1), _gif_frame((1, 1)) * count)


# BMP


def _bmp(size: tuple[int, int], bits: int, compression: int, data: bytes, *, colours: int = 0) -> bytes:
    palette = bytes(4 * (colours or (1 << bits if bits <= 8 else 0)))
    start = 14 + 40 + len(palette)
    header = struct.pack("<IiiHHIIiiII", 40, *size, 1, bits, compression, len(data), 0, 0, colours, 0)
    return b"BM" + struct.pack("<IHHI", start + len(data), 0, 0, start) + header + palette + data


def bmp_runs(size: tuple[int, int] = LARGE, *, nibbles: bool = False) -> bytes:
    """Run lengths of one pixel, which Pillow expands in Python."""
    runs = min(size[0] * size[1], 45_000_000)
    return _bmp(size, 4 if nibbles else 8, 2 if nibbles else 1, b"\x01\x01" * runs)


def bmp_skips(size: tuple[int, int] = LARGE) -> bytes:
    """Run lengths that end every line at once."""
    return _bmp(size, 8, 1, b"\x01\x01\0\0" * size[1])


def bmp_claim(size: tuple[int, int] = LARGE, bits: int = 24) -> bytes:
    """A header for many pixels, and none of them; a negative height turns the lines around."""
    return _bmp(size, bits, 0, b"")


def bmp_flat(size: tuple[int, int] = LARGE, bits: int = 8) -> bytes:
    """As many pixels as are allowed."""
    return _bmp(size, bits, 0, bytes((size[0] * bits + 31) // 32 * 4 * abs(size[1])))


def bmp_palette(colours: int = 65_536) -> bytes:
    """A palette far larger than its indices reach."""
    return _bmp((1, 1), 8, 0, bytes(4), colours=colours)


# TIFF


def _directory(entries: Sequence[tuple[int, int, int, bytes]], *, after: int = 0) -> bytes:
    """A TIFF header and one directory: tag, type, count, and the value or where it is."""
    packed = b"".join(
        struct.pack("<HHI", tag, kind, count) + value.ljust(4, b"\0") for tag, kind, count, value in entries
    )
    return b"II*\0" + struct.pack("<IH", 8, len(entries)) + packed + struct.pack("<I", after)


def _tiff(
    size: tuple[int, int],
    data: bytes,
    *extra: tuple[int, int, int, bytes],
    bits: int = 8,
    compression: int = 1,
    rows: int | None = None,
    sample_format: int = 1,
    after: int = 0,
) -> bytes:
    """Grey pixels; all strips are one and the same piece of the file."""

    def entry(tag: int, value: int) -> tuple[int, int, int, bytes]:
        return (tag, 4, 1, struct.pack("<I", value))

    rows = rows or size[1]
    strips = -(-size[1] // rows)
    entries = {256: size[0], 257: size[1], 258: bits, 259: compression, 262: 1, 277: 1, 278: rows, 339: sample_format}
    start = 8 + 2 + 12 * (len(entries) + 2 + len(extra)) + 4
    if strips == 1:
        places, lengths = entry(273, start), entry(279, len(data))
        tail = data
    else:
        lists = start + len(data)
        places = (273, 4, strips, struct.pack("<I", lists))
        lengths = (279, 4, strips, struct.pack("<I", lists + 4 * strips))
        tail = data + struct.pack("<I", start) * strips + struct.pack("<I", len(data)) * strips
    every = sorted([*(entry(*pair) for pair in entries.items()), places, lengths, *extra])
    return _directory(every, after=after) + tail


def tiff_entries(entries: int = 65_535, size: int = 50_000_000) -> bytes:
    """A directory whose every entry claims the whole file as its value."""
    own = [(tag, 7, size, struct.pack("<I", 8)) for tag in range(1_000, entries + 1_000 - 5) if tag <= 0xFFFF]
    return _tiff((1, 1), b"\0", *own) + bytes(size)


def tiff_strips(count: int = 10_000_000) -> bytes:
    """A strip for every row, all of them at the same place."""
    return _tiff((1, count), b"\0", rows=1)


def tiff_overlapping_strips(size: tuple[int, int] = LARGE) -> bytes:
    """Every row is the same deflated piece of the file."""
    return _tiff(size, zlib.compress(bytes(size[0])), compression=8, rows=1)


def tiff_flat(size: tuple[int, int] = LARGE, bits: int = 8, compression: int = 8, sample_format: int = 1) -> bytes:
    """One strip that inflates to as many pixels as are allowed; 32 bits with format 3 are floats."""
    return _tiff(
        size, _deflated(size[0] * size[1] * bits // 8), bits=bits, compression=compression, sample_format=sample_format
    )


def tiff_overrun(size: int = 2_000_000_000) -> bytes:
    """One pixel whose strip inflates to gigabytes."""
    return _tiff((1, 1), _deflated(size), compression=8)


def tiff_lzma(size: tuple[int, int] = LARGE) -> bytes:
    """Pixels packed by LZMA, which asks for memory as its header says."""
    import lzma

    return _tiff(size, lzma.compress(bytes(size[0] * size[1]), preset=9), compression=34925)


def tiff_tile(side: int = 1 << 20) -> bytes:
    """One pixel in a tile of a million by a million."""
    sides = [(tag, 4, 1, struct.pack("<I", side)) for tag in (322, 323)]
    places = [(324, 4, 1, struct.pack("<I", 8)), (325, 4, 1, struct.pack("<I", 100))]
    return _tiff((1, 1), b"\0" * 100, *sides, *places, compression=8)


def tiff_loop() -> bytes:
    """A directory that names itself as the next."""
    return _tiff((1, 1), b"\0", after=8)


def tiff_directories(count: int = 1_000_000) -> bytes:
    """A chain of more pages than anybody scans."""
    first = _tiff((1, 1), b"\0")
    start = len(first) + len(first) % 2
    chain = b"".join(struct.pack("<HI", 0, start + 6 * (number + 1)) for number in range(count))
    linked = _tiff((1, 1), b"\0", after=start)
    return linked.ljust(start, b"\0") + chain + struct.pack("<HI", 0, 0)


# Mild forms, each made in well under a second, that still do what the worst ones do.
MILD = (2_500, 2_500)
BOMBS: dict[str, Callable[[], bytes]] = {
    "jpeg_scans": jpeg_scans,
    "jpeg_empty_scans": jpeg_empty_scans,
    "jpeg_arithmetic_scans": partial(jpeg_empty_scans, frame=0xCA),
    "jpeg_hidden_scans": jpeg_hidden_scans,
    "jpeg_sequential_scans": jpeg_sequential_scans,
    "jpeg_tiny_scans": jpeg_tiny_scans,
    "jpeg_segments": partial(jpeg_segments, 3_000_000),
    "jpeg_exif_segments": partial(jpeg_exif_segments, 600),
    "jpeg_exif_entries": jpeg_exif_entries,
    "jpeg_padding": partial(jpeg_padding, 15_000_000),
    "jpeg_junk": partial(jpeg_padding, 15_000_000, 0x55),
    "jpeg_tables": partial(jpeg_tables, 300),
    "jpeg_resources": partial(jpeg_resources, 300),
    "jpeg_multi_picture": jpeg_multi_picture,
    "png_flat": partial(png_flat, LARGE),
    "png_deep": partial(png_flat, LARGE, 16, 6),
    "png_deep_grey": partial(png_flat, LARGE, 16, 0),
    "png_interlaced": partial(png_flat, LARGE, interlaced=True),
    "png_chunks": partial(png_chunks, 1_000_000),
    "png_late_chunks": partial(png_late_chunks, 1_000_000),
    "png_tiny_idats": png_tiny_idats,
    "png_text": png_text,
    "png_profile": partial(png_profile, 200_000_000),
    "png_overrun": partial(png_overrun, 200_000_000),
    "png_exif": png_exif,
    "png_frames": png_frames,
    "webp_flat": partial(webp_flat, MILD),
    "webp_canvas": webp_canvas,
    "webp_frames": webp_frames,
    "webp_chunks": partial(webp_chunks, 1_000_000),
    "webp_exif": webp_exif,
    "gif_comment": partial(gif_comment, 10_000_000),
    "gif_extensions": partial(gif_extensions, 4_000_000),
    "gif_flat": partial(gif_flat, MILD),
    "gif_small_screen": partial(gif_flat, MILD, (1, 1)),
    "gif_wide_frame": gif_wide_frame,
    "gif_frames": gif_frames,
    "bmp_runs": partial(bmp_runs, MILD),
    "bmp_nibble_runs": partial(bmp_runs, MILD, nibbles=True),
    "bmp_skips": bmp_skips,
    "bmp_claim": bmp_claim,
    "bmp_upside_down_claim": partial(bmp_claim, (7_000, -7_100)),
    "bmp_flat": partial(bmp_flat, LARGE),
    "bmp_palette": bmp_palette,
    "tiff_entries": tiff_entries,
    "tiff_strips": partial(tiff_strips, 3_000_000),
    "tiff_overlapping_strips": tiff_overlapping_strips,
    "tiff_flat": tiff_flat,
    "tiff_float": partial(tiff_flat, LARGE, 32, 8, 3),
    "tiff_overrun": partial(tiff_overrun, 200_000_000),
    "tiff_lzma": partial(tiff_lzma, MILD),
    "tiff_tile": tiff_tile,
    "tiff_loop": tiff_loop,
    "tiff_directories": partial(tiff_directories, 300_000),
}
