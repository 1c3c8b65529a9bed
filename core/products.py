"""The one large matrix product of an answer: some pictures against every class there is."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from core.cores import usable_cores
from core.inference import Requests, one_core_each

MANY = 2_000  # rows: below, a product takes no time beside the network that made the queries
VERY_MANY = 32_000  # rows: beyond, all cores share it, or the others would wait for its end


def best_at_once(targets: Tensor) -> int:
    """How many queries to gather for one product, if that is to be had for nothing.

    With fewer, reading the targets from memory takes longer than the arithmetic.
    """
    return 16 if _take_long(targets) else 1


def inner_products(queries: Tensor, targets: Tensor) -> Tensor:
    """Queries (n, M), targets (K, M) → (n, K), without gradients.

    Torch spends most of the time for a few queries on rearranging the many targets. OpenVINO, with the targets first
    and the queries in columns, takes them as they lie, and half as long.
    """
    if not _take_long(targets):
        return queries @ targets.T
    return _product(targets.shape[1], on_all_cores=len(targets) >= VERY_MANY)(targets, queries.T)


def scannable(rows: Sequence[Tensor]) -> Tensor:
    """Matrices (k, M) below each other in one (K, M), which lies where it is read through fastest.

    NumPy asks for large pages, torch does not; on small ones a processor looks up an address for every row.
    """
    if rows[0].device.type != "cpu":
        return torch.cat(list(rows))
    return torch.from_numpy(np.concatenate([some.detach().numpy() for some in rows]))


def _take_long(targets: Tensor) -> bool:
    return len(targets) >= MANY and targets.device.type == "cpu"


@cache
def _product(width: int, *, on_all_cores: bool) -> Requests:
    import openvino
    from openvino import opset13

    targets, columns = opset13.parameter([-1, width], np.float32), opset13.parameter([width, -1], np.float32)
    product = opset13.matmul(targets, columns, transpose_a=False, transpose_b=False)  # (K, n)
    turned = opset13.transpose(product, opset13.constant(np.array([1, 0])))  # here, where many cores take part in it
    settings = {"NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": usable_cores()} if on_all_cores else one_core_each()
    return Requests(openvino.Model([turned], [targets, columns]), settings)
