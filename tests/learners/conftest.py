"""What the tests of learners share: small networks, pretrained and not."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from core.backbones import Backbone, build
from engine.backbone_cache import BackboneCache


class SmallNetworks(BackboneCache):
    """ResNet-32 with weights of its own; which ones, the seed says."""

    def __init__(self, seed: int, *, pretrained: bool) -> None:
        super().__init__(torch.device("cpu"), "torch", Path("/nowhere"))
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.own = build("resnet32")
        self.own.pretrained = pretrained

    def pretrained(self, name: str) -> Backbone:
        assert name == "resnet32"
        return self.own


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """These networks are so small that threads wait for each other longer than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def networks() -> BackboneCache:
    """Its weights count as pretrained, so base sessions train the tail alone."""
    return SmallNetworks(7, pretrained=True)


@pytest.fixture(scope="session")
def untrained_networks() -> tuple[BackboneCache, BackboneCache]:
    """As two processes have them: a backbone without pretrained weights is different in each."""
    return SmallNetworks(1, pretrained=False), SmallNetworks(2, pretrained=False)
