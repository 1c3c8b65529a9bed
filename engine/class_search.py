"""The nearest of many classes. Nearest class means as in `core`, with the one large matrix product made fast."""

from functools import cache

import numpy as np
import torch
from torch import Tensor

from core.classifier import NearestClassMean
from engine.cores import usable_cores
from engine.openvino_runner import GraphRunner

MANY = 2_000  # classes: with fewer, the product takes no time beside the network
VERY_MANY = 20_000  # classes: from here on OpenVINO saves a twentieth of an answer, and half of it at 100,000
GATHERED = 16  # feature vectors; with fewer, reading the prototypes from memory takes longer than the arithmetic


class ClassSearch(NearestClassMean):
    @property
    def preferred_batch(self) -> int:
        """How many feature vectors to gather for one search, if that delays nobody."""
        return GATHERED if len(self) >= MANY and self._on_cpu else 1

    def _inner_products(self, queries: Tensor) -> Tensor:
        """Queries (n, M) → (n, K).

        Of few queries and very many prototypes, torch spends most of its time on rearranging the prototypes. OpenVINO,
        with the prototypes first and the queries in columns, takes them as they are, on all cores.
        """
        if len(self) < VERY_MANY or not self._on_cpu:
            return super()._inner_products(queries)
        return _product(self.prototypes.shape[1])(self.prototypes, queries.T)

    @property
    def _on_cpu(self) -> bool:
        return self.prototypes.device == torch.device("cpu")


@cache
def _product(dim: int) -> GraphRunner:
    import openvino
    from openvino import opset13

    prototypes, columns = opset13.parameter([-1, dim], np.float32), opset13.parameter([dim, -1], np.float32)
    product = opset13.matmul(prototypes, columns, transpose_a=False, transpose_b=False)  # (K, n)
    turned = opset13.transpose(product, opset13.constant(np.array([1, 0])))  # (n, K), by all cores as well
    return GraphRunner(openvino.Model([turned], [prototypes, columns]), usable_cores())
