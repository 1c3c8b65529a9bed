"""Networks and classifiers whose answers show which image they are about."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from core.images import Framing
from core.space import Space
from engine.gathering import Search
from engine.network import Network

SECONDS = 20.0  # bound of every wait


def network(trunk: Callable[[Tensor], Tensor], factor: float = 1.0) -> Network:
    def tail(activations: Tensor) -> Tensor:
        return factor * activations[:, 0, 0, :1]

    return Network((1, 0), trunk, tail, Space("cosine"), Framing(2), 1)


def images(*values: int) -> Sequence[Tensor]:
    return [torch.full((3, 2, 2), value, dtype=torch.uint8) for value in values]


class Numbers:
    """A classifier that answers with the number that an image shows, times `top_k`; a list for several views."""

    def __init__(self, preferred_batch: int = 1) -> None:
        self.preferred_batch = preferred_batch
        self.sizes: list[int] = []  # of the searches

    def predict(self, features: Tensor, top_k: int) -> list[Any]:
        self.sizes.append(len(features))
        return (top_k * features[..., 0]).tolist()


class Gate:
    """A trunk that computes a batch when `open` is set, and remembers the batches."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.entered = threading.Semaphore(0)
        self.batches: list[list[float]] = []
        self.fails = False

    def __call__(self, batch: Tensor) -> Tensor:
        self.batches.append(batch[:, 0, 0, 0].tolist())
        self.entered.release()
        assert self.open.wait(SECONDS)
        if self.fails:
            raise RuntimeError("the network is broken")
        return batch.float()

    @property
    def sizes(self) -> list[int]:
        return [len(batch) for batch in self.batches]


def numbers(preferred_batch: int = 1) -> Search:
    return Search(Numbers(preferred_batch), top_k=1)
