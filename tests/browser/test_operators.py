"""Keys, models, health, and a worker that is lost: what operators see."""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import Open
from tests.browser.console_page import ConsolePage, shots
from tests.processes import Service


@pytest.fixture
def own_service(browser: Browser, tmp_path: Path) -> Iterator[Service]:
    """A service that a test may break; with a network that starts fast."""
    assert browser.is_connected()
    with closing(Service({"PROTOQUAD_HOME": str(tmp_path), "PROTOQUAD_LEASE_SECONDS": "3"})) as running:
        yield running


def test_with_keys_in_force_the_page_asks_for_one(tabs: Open, own_service: Service) -> None:
    """The first is made on the page; another tab must give it, and keeps it as long as it is open."""
    console = tabs(own_service.url)
    console.open("settings")
    console.page.get_by_label("Who or what is it for?").fill("me")
    console.button("Make a key").click()
    console.page.get_by_role("dialog").get_by_role("button", name="Make a key").click()
    secret = console.page.locator(".note .secret").inner_text()
    expect(console.page.locator("[data-key]")).to_contain_text("in use")

    other = tabs(own_service.url)
    other.open("teach")
    other.page.get_by_label("API key").fill("pq_wrong")
    other.button("Open the console").click()
    expect(other.page.get_by_role("alert")).to_be_visible()
    assert other.violations() == []
    other.page.get_by_label("API key").fill(secret)
    other.button("Open the console").click()
    other.teach("mug", shots("mug", 2))
    other.page.reload()
    expect(other.button("Choose images")).to_be_visible()
    other.open("classes")
    card = other.page.get_by_role("link", name=re.compile("mug"))
    expect(card.locator("img")).to_have_attribute("src", re.compile("^blob:"))


def test_a_key_without_the_scope_is_told_so(tabs: Open, own_service: Service) -> None:
    """It may look, but nothing is offered that it may not do."""
    admin = own_service.client.post("/keys", json={"name": "me", "scopes": ["admin"]}).json()["key"]
    authorised = {"Authorization": f"Bearer {admin}"}
    body = {"name": "camera", "scopes": ["predict"]}
    secret = own_service.client.post("/keys", json=body, headers=authorised).json()["key"]
    console = tabs(own_service.url)
    console.open("teach")
    console.page.get_by_label("API key").fill(secret)
    console.button("Open the console").click()

    expect(console.page.get_by_text("may predict but not teach")).to_be_visible()
    console.open("settings")
    expect(console.page.get_by_text("a key that has the scope admin")).to_be_visible()
    expect(console.button("Make it")).to_have_count(0)


def test_a_killed_worker_loses_nothing(tabs: Open, own_service: Service) -> None:
    """The class is served at once; the worker that replaces it takes the session up again."""
    console = tabs(own_service.url)
    (worker,) = psutil.Process(own_service.process.pid).children()
    worker.suspend()  # so that it is killed before it has finished
    console.teach("mug", shots("mug", 3))
    expect(console.page.locator(".session")).to_contain_text("Learning")
    worker.kill()

    console.refined()


def test_models_are_made_used_and_deleted(console: ConsolePage) -> None:
    """A screen's address names the model."""
    console.open("settings")
    console.page.get_by_label("Name", exact=True).fill("drawings")
    console.button("Make it").click()
    row = console.page.locator("[data-model=drawings]")
    row.get_by_role("link", name="Use").click()
    expect(row).to_contain_text("in use")
    assert "model=drawings" in console.page.url
    row.get_by_role("button", name="Delete").click()
    console.page.get_by_role("dialog").get_by_role("button", name="Delete").click()

    expect(row).to_have_count(0)


def test_a_model_is_exported_and_imported(console: ConsolePage, service: Service, tmp_path: Path) -> None:
    """As one file, which answers as the model did."""
    console.teach("mug", shots("mug", 2))
    console.refined()
    console.open("settings")
    with console.page.expect_download() as started:
        console.page.locator(f"[data-model={console.model}]").get_by_role("button", name="Export").click()
    started.value.save_as(tmp_path / "model.pq")
    console.page.get_by_label("Name of the imported model").fill("copy")
    console.page.locator("input[data-source=archive]").set_input_files(tmp_path / "model.pq")

    expect(console.page.locator("[data-model=copy]")).to_contain_text("1 class")
    assert [one["name"] for one in service.client.get("/models/copy/classes").json()["items"]] == ["mug"]


def test_health_says_what_runs(console: ConsolePage) -> None:
    """Release, network, workers, what waits."""
    console.open("settings")
    health = console.page.get_by_role("region", name="Health")

    expect(health).to_contain_text("efficientnet_lite0")
    expect(health).to_contain_text("1 worker")


def test_the_same_in_code_is_one_key_away(console: ConsolePage) -> None:
    """In curl and Python, for the model in use."""
    console.open("try")
    expect(console.button("Choose images")).to_be_visible()
    console.page.keyboard.press("e")
    dialog = console.page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"-F images=@image.jpg \\\n  '{console.url}/models/{console.model}/predict'")
    dialog.get_by_role("button", name="Python").click()

    expect(dialog).to_contain_text("import httpx")
