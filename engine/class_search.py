"""The one large matrix product of an answer, some pictures against every class there is, and the best of it."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from engine.compiled_module import Requests, one_core_each
from engine.cores import usable_cores

MANY = 2_000  # rows: below, a product takes no time beside the network that made the queries
BLOCK = 256  # columns that are looked at as one when the smallest are looked for
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


def smallest(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The smallest of each row (n, K), ascending, and where they are: both (n, count).

    Of many, the smallest lie in the blocks whose own smallest are the smallest; so each is looked at once, and all but
    a few thousand never again. Where equal ones are left out, any of them may be.
    """
    blocks = rows.shape[1] // BLOCK
    if blocks <= count or rows.shape[1] < MANY:
        found = rows.topk(count, dim=1, largest=False)
        return found.values, found.indices
    whole = rows[:, : blocks * BLOCK].unflatten(1, (blocks, BLOCK))
    best = whole.amin(2).topk(count, dim=1, largest=False, sorted=False).indices  # (n, count)
    within = whole.gather(1, best[:, :, None].expand(-1, -1, BLOCK)).flatten(1)  # (n, count · BLOCK)
    rest = rows[:, blocks * BLOCK :]
    found = torch.cat([within, rest], dim=1).topk(count, dim=1, largest=False)
    places = (best[:, :, None] * BLOCK + torch.arange(BLOCK, device=rows.device)).flatten(1)
    last = torch.arange(blocks * BLOCK, rows.shape[1], device=rows.device).expand(len(rows), -1)
    return found.values, torch.cat([places, last], dim=1).gather(1, found.indices)


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
