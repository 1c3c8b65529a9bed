"""The console in a browser, as a person uses it: by what is written on the page, never by its insides."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect

REPOSITORY = Path(__file__).parents[2]
SAMPLES = REPOSITORY / "console" / "static" / "samples"
AXE = Path(__file__).parent / "axe" / "axe.min.js"
SECONDS = 60  # bound of every wait: reached only by a test that fails
expect.set_options(timeout=1000 * SECONDS)
WIDE = {"width": 1280, "height": 860}
# What a browser writes to its console about an answer that is an error; the page itself deals with those.
_EXPECTED = re.compile(r"Failed to load resource|ERR_INTERNET_DISCONNECTED|ERR_CONNECTION")


def shots(name: str, number: int = 5) -> list[Path]:
    return [SAMPLES / name / f"{index}.jpg" for index in range(1, number + 1)]


class ConsolePage:
    """One tab of the console, on a model of its own."""

    def __init__(self, browser: Browser, url: str, model: str = "default", **options: Any) -> None:
        self.url = url
        self.model = model
        self.errors: list[str] = []
        self.context = browser.new_context(**{"viewport": WIDE, "reduced_motion": "reduce", **options})
        self.context.set_default_timeout(1000 * SECONDS)
        self.page = self.tab()

    def tab(self) -> Page:
        page = self.context.new_page()
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._heard)
        return page

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not _EXPECTED.search(message.text):
            self.errors.append(message.text)

    def address(self, screen: str, **query: str) -> str:
        parameters = urlencode({**({"model": self.model} if self.model != "default" else {}), **query})
        return f"{self.url}/#/{screen}" + (f"?{parameters}" if parameters else "")

    def open(self, screen: str, **query: str) -> Page:
        self.page.goto(self.address(screen, **query))
        return self.page

    def close(self) -> None:
        self.context.close()

    def button(self, name: str | re.Pattern[str]) -> Locator:
        return self.page.get_by_role("button", name=name)

    def link(self, name: str | re.Pattern[str]) -> Locator:
        return self.page.get_by_role("link", name=name)

    def give(self, files: Sequence[Path] | Sequence[dict[str, Any]]) -> None:
        """Choose files, as the button's dialog does."""
        chosen: Any = list(files)
        self.page.locator("input[data-source=files]").set_input_files(chosen)

    def teach(self, name: str, files: Sequence[Path]) -> None:
        self.open("teach")
        self.give(files)
        self.page.get_by_label("What is it?").fill(name)
        self.button("Teach").click()
        expect(self.page.get_by_role("heading", name="The class is served")).to_be_visible()

    def refined(self) -> None:
        expect(self.page.get_by_role("heading", name="Refined")).to_be_visible()

    def verdict(self) -> Locator:
        return self.page.locator(".verdict").first

    def violations(self) -> list[str]:
        """What axe finds on the page as it is: rule and element."""
        if not self.page.evaluate("() => 'axe' in window"):
            self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("async () => (await axe.run(document)).violations")
        return [f"{one['id']}: {node['html'][:200]}" for one in found for node in one["nodes"]]
