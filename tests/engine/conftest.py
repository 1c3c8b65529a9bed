"""Backbones to compile."""

import pytest
import structlog
import torch

from core.backbones import Backbone, build


@pytest.fixture(scope="session")
def backbone() -> Backbone:
    """ResNet-32 with seeded random weights. It is shared: do not change it."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return build("resnet32")


@pytest.fixture(scope="session")
def lite0() -> Backbone:
    """The default backbone with its packaged ImageNet weights."""
    return build("efficientnet_lite0")


@pytest.fixture(scope="session", autouse=True)
def _plain_tracebacks() -> None:
    """As `protoquad serve` logs them: drawing the local variables of a failed call would take seconds."""
    *before, _ = structlog.get_config()["processors"]
    renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*before, renderer])
