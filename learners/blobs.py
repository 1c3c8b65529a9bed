"""Vectors as the store keeps them: single precision, little-endian, no header."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_KIND = np.dtype("<f4")


def to_blob(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().numpy().astype(_KIND, copy=False).tobytes()


def from_blob(blob: bytes) -> Tensor:
    return torch.from_numpy(np.frombuffer(blob, _KIND).astype(np.float32))


def stacked(blobs: Sequence[bytes], *shape: int) -> Tensor:
    """Equal blobs as one tensor (n, *shape), in one copy."""
    return from_blob(b"".join(blobs)).view(len(blobs), *shape)
