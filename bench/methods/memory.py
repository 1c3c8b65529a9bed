"""Bytes that a method keeps between sessions for each class, beside the network: vectors, statistics and images.

An image counts as the network takes it, three bytes a pixel. The mean is over all classes at the end of a stream.
"""

from bench.datasets import Stream
from bench.methods.contract import METHODS, Setup
from core.backbones import Backbone
from core.bank import PrototypeBank

FLOAT = 4


def bytes_per_class(setup: Setup, backbone: Backbone, stream: Stream) -> int:
    """Mean over the classes of the stream, after its last session."""
    keeps, values = METHODS[setup.method].keeps, setup.values
    base, all_classes = len(stream.base.class_ids), sum(len(session.class_ids) for session in stream.sessions)
    shots = sum(len(session.train) for session in stream.sessions[1:])
    guard = min(setup.guard_per_class * base, len(stream.base.train))
    image, vector = 3 * backbone.framing.size**2, FLOAT * backbone.dim
    total = all_classes * vector
    if keeps == "exemplars":
        total += (values.exemplars * base + shots) * image
    elif keeps == "images":
        total += (len(stream.base.train) - guard + shots) * image
    elif keeps == "gram":  # and the deviations that new classes borrow
        sums = values.width**2 + all_classes * values.width
        total = FLOAT * sums + (len(stream.base.train) - guard) * vector
    elif keeps == "bank":
        total = all_classes * PrototypeBank.empty(backbone.dim, setup.base.copies).bytes_per_class
        total += backbone.dim**2 * FLOAT  # the scatter
        total += (shots if setup.replay else 0) * image + (guard if setup.gate else 0) * image
    return round(total / all_classes)
