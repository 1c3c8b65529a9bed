"""Makes the screenshots of the documents, on demand: `make test-browser SCREENS=docs/screens`."""

import io
import os
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.browser.console_page import SAMPLES, ConsolePage, shots
from tests.processes import Service

FOLDER = os.environ.get("PROTOQUAD_SCREENS", "")
SIZE = {"width": 1120, "height": 720}
QUALITY = 82
HOLD, LONG_HOLD = 900, 2200  # milliseconds that a frame of the animation is shown

pytestmark = pytest.mark.skipif(not FOLDER, reason="make test-browser SCREENS=docs/screens makes the screenshots")


class Album:
    """Screenshots as WebP files, and frames of an animation."""

    def __init__(self, console: ConsolePage) -> None:
        self.console = console
        self.frames: list[tuple[Image.Image, int]] = []

    def image(self) -> Image.Image:
        self.console.page.mouse.move(0, 0)
        self.console.page.evaluate("() => scrollTo(0, 0)")
        return Image.open(io.BytesIO(self.console.page.screenshot())).convert("RGB")

    def save(self, name: str) -> None:
        self.image().save(Path(FOLDER, f"{name}.webp"), quality=QUALITY, method=6)

    def frame(self, milliseconds: int = HOLD) -> None:
        self.frames.append((self.image().resize((840, 540), Image.Resampling.LANCZOS), milliseconds))

    def animate(self, name: str) -> None:
        (first, _), *others = self.frames
        first.save(
            Path(FOLDER, f"{name}.webp"),
            save_all=True,
            append_images=[image for image, _ in others],
            duration=[milliseconds for _, milliseconds in self.frames],
            loop=0,
            quality=70,
            method=6,
        )


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_screens_of_the_documents(tabs: Open, service: Service, theme: str) -> None:
    """Teaching and trying as an animation, and every screen; of the dark theme one."""
    Path(FOLDER).mkdir(parents=True, exist_ok=True)
    name = f"screens-{theme}"
    service.client.post("/models", json={"name": name}).raise_for_status()
    console = tabs(service.url, name, color_scheme=theme, viewport=SIZE)
    # A newcomer has one model: the switch between models is left out.
    console.page.add_init_script(
        "addEventListener('DOMContentLoaded', () => { const sheet = new CSSStyleSheet();"
        "sheet.replaceSync('.model-switch { visibility: hidden }'); document.adoptedStyleSheets.push(sheet); })"
    )
    album = Album(console)
    _teach_and_try(console, album)
    album.save(f"try-{theme}")
    if theme == "light":
        album.animate("teach-and-try")
        _look_around(console, album)

    assert Path(FOLDER, f"try-{theme}.webp").stat().st_size > 1000


def _teach_and_try(console: ConsolePage, album: Album) -> None:
    page = console.page
    console.open("teach")
    expect(console.button("Try with sample pictures")).to_be_visible()
    expect(page.get_by_role("heading", name="Name them")).to_be_visible()
    album.frame(LONG_HOLD)
    console.button("Try with sample pictures").click()
    expect(console.button("Teach 3 classes")).to_be_enabled()
    album.frame(LONG_HOLD)
    console.button("Teach 3 classes").click()
    expect(console.link("Try it")).to_be_visible()
    album.frame()
    for stage in ("looking", "learning"):
        page.locator(f".session[data-stage={stage}]").wait_for(state="visible", timeout=60_000)
        album.frame()
    console.refined()
    expect(page.locator(".gains")).to_be_visible()
    album.frame(LONG_HOLD)
    console.link("Try it").click()
    for sample, answer in (("umbrella", "Unknown"), ("fish", "fish"), ("mug", "mug")):
        console.button(f"Try new {sample}").click()
        expect(console.verdict()).to_contain_text(answer)
        expect(page.locator(".neighbours .picture:not(:has(img))")).to_have_count(0)
        album.frame(LONG_HOLD)


def _look_around(console: ConsolePage, album: Album) -> None:
    page = console.page
    signs = {"classes": ".class-card img", "inbox": ".shot img", "versions": ".version", "map": ".map-point"}
    for screen, sign in signs.items():
        console.open(screen)
        expect(page.locator(sign).first).to_be_visible()
        expect(page.locator(".skeleton")).to_have_count(0)
        expect(page.locator(".picture:not(:has(img))")).to_have_count(0)
        album.save(screen)
    console.open("classes")
    page.locator(".class-card").first.click()
    expect(page.locator(".shot img")).to_have_count(5)
    album.save("class")
    console.open("teach")
    page.reload()
    console.give([*shots("house"), SAMPLES / "new-house.jpg"])
    page.get_by_label("What is it?").fill("hause")
    expect(console.button("Use “house”")).to_be_visible()
    album.save("teach")
