"""Bytes that a method keeps between sessions for each class, beside the network: vectors, statistics and images.

An image counts as the network takes it, three bytes a pixel. The mean is over all classes at the end of a stream.
"""

import torch
from torch import Tensor

from bench.datasets import Stream
from bench.methods.contract import METHODS, Setup
from core.backbones import Backbone
from core.bank import PrototypeBank
from core.guard import hold_out

FLOAT = 4


def bytes_per_class(setup: Setup, backbone: Backbone, stream: Stream) -> int:
    """Mean over the classes of the stream, after its last session."""
    keeps, values = METHODS[setup.method].keeps, setup.values
    all_classes = sum(len(session.class_ids) for session in stream.sessions)
    shots = sum(len(session.train) for session in stream.sessions[1:])
    left, guard = _base_images(setup, stream)
    image, vector = 3 * backbone.framing.size**2, FLOAT * backbone.dim
    total = all_classes * vector
    if keeps == "exemplars":
        total += (int(left.clamp_max(values.exemplars).sum()) + shots) * image
    elif keeps == "nodes":  # each a vector with its nearest image, and a variance that all share
        nodes = min(values.exemplars * len(left), int(left.sum()))
        total += nodes * (vector + image) + vector + shots * image
    elif keeps == "images":
        total += (int(left.sum()) + shots) * image
    elif keeps == "gram":  # and the deviations that new classes borrow
        sums = values.width**2 + all_classes * values.width
        total = FLOAT * sums + int(left.sum()) * vector
    elif keeps == "bank":
        total = all_classes * PrototypeBank.empty(backbone.dim, setup.base.copies).bytes_per_class
        total += backbone.dim**2 * FLOAT  # the scatter
        total += (shots if setup.replay else 0) * image + (guard if setup.gate else 0) * image
    return round(total / all_classes)


def _base_images(setup: Setup, stream: Stream) -> tuple[Tensor, int]:
    """How many images each base class has left to train on, (C,), and how many guard images there are in all."""
    labels = torch.tensor([image.class_id for image in stream.base.train])
    train, guard = hold_out(labels, setup.guard_per_class, setup.base.seed)
    return labels[train].unique(return_counts=True)[1], len(guard)
