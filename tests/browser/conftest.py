"""A real service, a real browser, and a model of its own for each test."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.console_page import ConsolePage
from tests.processes import Service

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--use-fake-device-for-media-stream",  # a camera that shows a moving test card
    "--use-fake-ui-for-media-stream",
]
# The network that a newcomer gets; torch answers the same and needs no preparing.
NEWCOMER = {"PROTOQUAD_BACKBONE": "efficientnet_lite0", "PROTOQUAD_ENGINE": "torch"}
_numbers = count(1)

Open = Callable[..., ConsolePage]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Chromium of the machine: nothing is downloaded."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("no Chromium was found on PATH; on Debian: apt-get install chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture(scope="package")
def service(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """As `make run` starts it, with capture on. It asks for the browser first: without one, no service is started."""
    assert browser.is_connected()
    home = str(tmp_path_factory.mktemp("home"))
    with closing(Service({**NEWCOMER, "PROTOQUAD_HOME": home, "PROTOQUAD_CAPTURE": "all"})) as running:
        yield running


@pytest.fixture
def tabs(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens consoles; afterwards, none of them may have seen an error of a script or of the content policy."""
    opened: list[ConsolePage] = []

    def open_console(url: str, model: str = "default", **options: object) -> ConsolePage:
        opened.append(ConsolePage(browser, url, model, **options))
        return opened[-1]

    yield open_console
    if os.environ.get("PROTOQUAD_SEEN"):  # to look at what a failed test saw
        for number, one in enumerate(opened):
            one.page.screenshot(path=Path(os.environ["PROTOQUAD_SEEN"], f"{request.node.name}-{number}.png"))
    for one in opened:
        one.close()
    assert [error for one in opened for error in one.errors] == []


@pytest.fixture
def model(service: Service) -> str:
    """A model without classes."""
    name = f"model-{next(_numbers)}"
    service.client.post("/models", json={"name": name}).raise_for_status()
    return name


@pytest.fixture
def console(tabs: Open, service: Service, model: str) -> ConsolePage:
    return tabs(service.url, model)
