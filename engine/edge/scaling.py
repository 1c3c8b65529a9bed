"""The centre view of an image, as part of a graph: what `core.pixels` and `core.images` do after decoding.

Sizes are worked out within the graph, in whole numbers, so that every size of image is cut at the same pixels as in the
service. Resizing is two products with matrices: the antialiased resize of ONNX is not to be had in every runtime, and
where it is, it rounds in its own way.
"""

import math
from typing import Any

import numpy as np

from core.images import REDUCING_GAP, Framing
from core.pixels import LONGEST, STRIP_PIXELS
from engine.edge.nodes import Nodes, Value

INPUT = "image"
VIEW = "view"
OPSET, IR_VERSION = 18, 8  # of 2022: runtimes read files of older versions only
FLOAT, INT64 = 1, 7  # ONNX's numbers of these types


def scaling_graph(framing: Framing) -> Any:
    """An ONNX model: bytes (1, height, width, 3) of any size → the bytes (1, 3, size, size) that a trunk takes."""
    from onnx import TensorProto, helper

    nodes = Nodes()
    scaled = _centre_view(nodes, Value(nodes, INPUT), framing)
    nodes.nodes.append(helper.make_node("Cast", [scaled.name], [VIEW], to=TensorProto.UINT8))
    image = helper.make_tensor_value_info(INPUT, TensorProto.UINT8, [1, "height", "width", 3])
    view = helper.make_tensor_value_info(VIEW, TensorProto.UINT8, [1, 3, framing.size, framing.size])
    graph = helper.make_graph(nodes.nodes, "scaling", [image], [view], nodes.constants)
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def _centre_view(nodes: Nodes, image: Value, framing: Framing) -> Value:
    """As `core.images.centre_view` of what `core.pixels.decode` makes of the image."""
    pixels = nodes("Squeeze", image, np.array([0]))  # (h, w, 3)
    shape = nodes("Slice", nodes("Shape", pixels), np.array([0]), np.array([2]))  # h, w
    first, kept, blocks = _decoded(nodes, shape, framing)
    decoded = (kept + blocks - 1) // blocks
    short = nodes("ReduceMin", decoded, keepdims=1)
    side = nodes("Max", _rounded_share(nodes, short, framing.size, framing.short_side), 1)
    further = nodes("Max", side // (REDUCING_GAP * framing.size), 1)  # blocks of what is decoded
    side = side - side % further
    # Of all pixels only those of the centre square are looked at; the last block may lack some.
    start = (decoded - side) // 2 * blocks
    seen = nodes("Min", start + side * blocks, kept) - start
    square = nodes("Slice", pixels, first + start, first + start + seen, np.array([0, 1]))
    square = _block_means(nodes, nodes("Transpose", square, perm=[2, 0, 1]), seen, blocks)  # (3, side, side)
    if 2 * REDUCING_GAP * framing.size <= math.isqrt(STRIP_PIXELS):  # otherwise no side is as long as two blocks
        square = _block_means(nodes, square, nodes("Expand", side, np.array([2])), further)
    return _resized(nodes, square, side // further, framing)


def _decoded(nodes: Nodes, shape: Value, framing: Framing) -> tuple[Value, Value, Value]:
    """As `core.pixels.decode`: the middle of a very long image; a large one is shrunk in whole blocks.

    Where the middle begins, its size, and the side of a block.
    """
    short = nodes("ReduceMin", shape, keepdims=1)
    kept = nodes("Min", shape, short * LONGEST)
    is_large = nodes("Greater", nodes("ReduceProd", kept, keepdims=1), STRIP_PIXELS)
    blocks = nodes("Where", is_large, nodes("Max", short // framing.short_side, 1), 1)
    return (shape - kept) // 2, kept, blocks


def _rounded_share(nodes: Nodes, length: Value, part: int, whole: int) -> Value:
    """round(length * part / whole) as Python rounds, halves to even, in whole numbers."""
    doubled = length * (2 * part) + whole
    quotient = doubled // (2 * whole)
    is_half = nodes("Equal", doubled % (2 * whole), 0)
    return quotient - nodes("Where", is_half, quotient % 2, 0)


def _block_means(nodes: Nodes, pixels: Value, shape: Value, blocks: Value) -> Value:
    """The mean of every blocks x blocks pixels (3, h, w), as Pillow rounds it; those at the end may have fewer."""
    missing = (blocks - shape % blocks) % blocks  # rows, columns
    padded = nodes("Cast", nodes("Pad", pixels, nodes("Concat", np.zeros(4, np.int64), missing, axis=0)), to=FLOAT)
    number = (shape + missing) // blocks
    rows, columns = _at(nodes, number, 0), _at(nodes, number, 1)
    sums = nodes("Reshape", padded, nodes("Concat", np.array([3]), rows, blocks, np.array([-1]), axis=0))
    sums = nodes("ReduceSum", sums, np.array([2]), keepdims=0)  # (3, rows, w)
    sums = nodes("Reshape", sums, nodes("Concat", np.array([3]), number, blocks, axis=0))
    sums = nodes("ReduceSum", sums, np.array([3]), keepdims=0)  # (3, rows, columns)
    down, down_exact = _counts(nodes, rows, blocks, _at(nodes, shape, 0))
    across, across_exact = _counts(nodes, columns, blocks, _at(nodes, shape, 1))
    down, down_exact = (nodes("Unsqueeze", one, np.array([1])) for one in (down, down_exact))
    count = down * across  # (rows, columns)
    # Pillow adds half of the count and multiplies by a fraction of 2**24, which is too small unless it is exact.
    half = nodes("Floor", count * 0.5) + down_exact * across_exact - 1.0
    # Half a level more keeps the quotients of whole numbers away from the next whole number.
    return nodes("Floor", (sums + (half + 0.5)) / count)


def _counts(nodes: Nodes, number: Value, blocks: Value, length: Value) -> tuple[Value, Value]:
    """How many pixels each of the blocks has along a side of this length; 1 where that is a power of two, else 0."""
    counts = nodes("Min", length - _range(nodes, number) * blocks, blocks)
    exact = nodes("Equal", nodes("Mod", 2**24, counts), 0)
    return nodes("Cast", counts, to=FLOAT), nodes("Cast", exact, to=FLOAT)


def _resized(nodes: Nodes, square: Value, side: Value, framing: Framing) -> Value:
    """As torch resizes bytes: first across, then down, rounded after each."""
    matrix = _filter_matrix(nodes, side, framing)  # (size, side)
    across = _as_bytes(nodes, nodes("MatMul", square, nodes("Transpose", matrix, perm=[1, 0])))
    down = _as_bytes(nodes, nodes("MatMul", matrix, across))
    # Says the shape to runtimes that cannot infer it, so that all that follows is compiled for it.
    return nodes("Reshape", down, np.array([1, 3, framing.size, framing.size]))


def _filter_matrix(nodes: Nodes, side: Value, framing: Framing) -> Value:
    """What each of `side` pixels in a row counts for each of `size`; a filter as wide as a pixel of the result."""
    length = nodes("Cast", side, to=FLOAT)
    # Twice the places of pixels, times both lengths: whole numbers, which float32 holds exactly.
    wanted = nodes("Unsqueeze", length * (2.0 * np.arange(framing.size) + 1.0), np.array([1]))  # (size, 1)
    given = (nodes("Cast", _range(nodes, side), to=FLOAT) * 2.0 + 1.0) * float(framing.size)
    width = nodes("Max", length, float(framing.size)) * 2.0
    distance = nodes("Abs", given - wanted) / width  # (size, side)
    weights = _bilinear(nodes, distance) if framing.resample == "bilinear" else _bicubic(nodes, distance)
    return _as_whole_numbers(nodes, weights / nodes("ReduceSum", weights, np.array([1]), keepdims=1))


def _as_whole_numbers(nodes: Nodes, weights: Value) -> Value:
    """As torch takes them for bytes: multiples of the smallest power of a half with which the largest fits 16 bits."""
    largest = nodes("ReduceMax", weights, keepdims=0)
    bits = nodes("Floor", nodes("Log", nodes("Reciprocal", largest) * 32767.5) * (1 / math.log(2)))
    unit = nodes("Pow", 2.0, nodes("Min", bits, 22.0))
    whole = nodes("Floor", nodes("Abs", weights) * unit + 0.5)
    return nodes("Sign", weights) * whole / unit


def _bilinear(nodes: Nodes, x: Value) -> Value:
    return nodes("Max", x * -1.0 + 1.0, 0.0)


def _bicubic(nodes: Nodes, x: Value) -> Value:
    """Keys' cubic with a = -0.5, as Pillow and torch take it where they antialias."""
    near = (x * 1.5 - 2.5) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5
    return nodes("Where", nodes("Less", x, 1.0), near, nodes("Where", nodes("Less", x, 2.0), far, 0.0))


def _as_bytes(nodes: Nodes, values: Value) -> Value:
    return nodes("Clip", nodes("Floor", values + 0.5), 0.0, 255.0)


def _range(nodes: Nodes, number: Value) -> Value:
    return nodes("Range", 0, nodes("Squeeze", number), 1)


def _at(nodes: Nodes, values: Value, place: int) -> Value:
    return nodes("Slice", values, np.array([place]), np.array([place + 1]))
