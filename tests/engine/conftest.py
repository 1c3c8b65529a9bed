"""Backbones to compile."""

from pathlib import Path

import pytest
import structlog

from core.backbones import Backbone
from engine.preparation import _key, prepare
from engine.pretrained import as_it_comes


@pytest.fixture(scope="session")
def backbone() -> Backbone:
    """ResNet-32 with the random weights that every process gives it. It is shared: do not change it."""
    return as_it_comes("resnet32")


@pytest.fixture(scope="session")
def prepared_resnet32(prepared_backbones: Path) -> Path:
    """The folder of the same backbone, compiled; it is shared: copy it to change it."""
    prepare("resnet32", prepared_backbones)
    return prepared_backbones / _key("resnet32")


@pytest.fixture(scope="session", autouse=True)
def _plain_tracebacks() -> None:
    """As `protoquad serve` logs them: drawing the local variables of a failed call would take seconds."""
    *before, _ = structlog.get_config()["processors"]
    renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*before, renderer])
