"""The console in a real browser that has kept nothing: what its first paint transfers, and how long people wait.

Chromium of the machine, through Playwright; nothing is downloaded.
"""

import importlib
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.load import servers
from bench.load.bench_home import client_of
from bench.load.measurement import Report
from bench.load.servers import Server
from protoquad.plain_errors import Refused

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
ARGUMENTS = ["--no-sandbox", "--disable-background-networking"]
WIDE = {"width": 1280, "height": 860}
SECONDS = 120  # bound of every wait
QUIET = 500  # milliseconds, in which requests that are still in flight end; the event stream does not
SAMPLES, NEW = "Try with sample pictures", "Try new mug"  # buttons
FIRST_PAINT = "() => performance.getEntriesByName('first-contentful-paint').map((entry) => entry.startTime)[0] ?? null"
LIMITS = {"kilobytes": 100.0, "first_paint": 300.0}  # of the median


@dataclass(frozen=True)
class Length:
    visits: int = 20
    lessons: int = 3  # visits in which the sample images are taught and tried


@dataclass
class ConsoleVisits:
    """One figure for each visit; times are in milliseconds."""

    kilobytes: list[float] = field(default_factory=list)  # of 1,000 bytes: heads and bodies as they were transferred
    requests: list[int] = field(default_factory=list)
    first_paint: list[float] = field(default_factory=list)  # first contentful paint, since the navigation began
    usable: list[float] = field(default_factory=list)  # until the first button of the screen is there
    taught: list[float] = field(default_factory=list)  # from the click until three classes are served
    tried: list[float] = field(default_factory=list)  # from the click until an image is answered
    browser: str = ""

    def exceeded(self) -> list[str]:
        return [name for name, most in LIMITS.items() if median(getattr(self, name)) > most]


def measure_console(backbone: str, folder: Path, length: Length, report: Report) -> ConsoleVisits:
    """Raises Refused if there is no browser, before a service is started."""
    found = ConsoleVisits()
    with chromium() as browser, servers.protoquad(folder / "home", backbone) as server:
        found.browser = f"Chromium {browser.version}"
        _visit(browser, server, ConsoleVisits())  # the first one warms up the browser and the service
        for number in range(length.visits):
            _visit(browser, server, found)
            report(f"visit {number + 1}: {found.kilobytes[-1]:.1f} KB, first paint {found.first_paint[-1]:.0f} ms")
        for number in range(length.lessons):
            _lesson(browser, server, f"lesson-{number + 1}", found)
            report(f"lesson {number + 1}: taught {found.taught[-1]:.0f} ms, tried {found.tried[-1]:.0f} ms")
    return found


@contextmanager
def chromium() -> "Iterator[Browser]":
    """Raises Refused if Playwright or Chromium is missing."""
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if path is None:
        raise Refused("no Chromium was found on PATH; on Debian: apt-get install chromium")
    try:
        playwright = importlib.import_module("playwright.sync_api")
    except ImportError as error:
        raise Refused("this benchmark needs Playwright: pip install playwright") from error
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path, headless=True, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def _page(browser: "Browser") -> "Iterator[Page]":
    """In a context of its own: nothing of an earlier visit is cached."""
    context = browser.new_context(viewport=WIDE, reduced_motion="reduce")  # type: ignore[arg-type]
    context.set_default_timeout(1000 * SECONDS)
    try:
        yield context.new_page()
    finally:
        context.close()


def _visit(browser: "Browser", server: Server, found: ConsoleVisits) -> None:
    with _page(browser) as page:
        sizes: list[float] = []
        network = page.context.new_cdp_session(page)
        network.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
        network.send("Network.enable")
        page.goto(server.url)
        page.get_by_role("button", name=SAMPLES).wait_for()
        found.usable.append(round(page.evaluate("() => performance.now()"), 1))
        found.first_paint.append(round(_first_paint(page), 1))
        page.wait_for_timeout(QUIET)
        found.kilobytes.append(round(sum(sizes) / 1000, 2))
        found.requests.append(len(sizes))


def _first_paint(page: "Page") -> float:
    handle: Any = page.wait_for_function(FIRST_PAINT)
    return float(handle.json_value())


def _lesson(browser: "Browser", server: Server, model: str, found: ConsoleVisits) -> None:
    """As a first visitor: the samples, teach, try, an image that it has not seen."""
    with client_of(server) as client:
        client.post("/models", json={"name": model}).raise_for_status()
    with _page(browser) as page:
        page.goto(f"{server.url}/#/teach?model={model}")
        page.get_by_role("button", name=SAMPLES).click()
        teach = page.get_by_role("button", name="Teach 3 classes")
        teach.wait_for()
        began = time.perf_counter()
        teach.click()
        page.get_by_role("heading", name="3 classes are served").wait_for()
        found.taught.append(_milliseconds_since(began))
        page.get_by_role("link", name="Try it").click()
        new = page.get_by_role("button", name=NEW)
        new.wait_for()
        began = time.perf_counter()
        new.click()
        page.locator(".verdict").first.wait_for()
        found.tried.append(_milliseconds_since(began))


def _milliseconds_since(began: float) -> float:
    return round(1000 * (time.perf_counter() - began), 1)
