"""Every screen: what it shows, what it does, and that axe finds nothing, in both themes and on a phone."""

import io
import re
from urllib.parse import parse_qs, urlsplit

import pytest
from PIL import Image, ImageOps
from playwright.sync_api import Route, expect

from tests.browser.conftest import Open
from tests.browser.console_page import SAMPLES, ConsolePage, shots
from tests.processes import Service

SCREENS = ("teach", "try", "classes", "classes/{class_id}", "inbox", "versions", "map", "settings")
TEXT = re.compile(r"\w")


def _teach(service: Service, model: str, *names: str, number: int = 5) -> list[int]:
    """Over HTTP, and wait until it is refined: the ids of the classes."""
    answers = []
    for name in names:
        files = [("shots", (file.name, file.read_bytes(), "image/jpeg")) for file in shots(name, number)]
        last = name == names[-1]
        headers = {"Prefer": "wait=60"} if last else {}
        answers.append(
            service.client.post(f"/models/{model}/classes", data={"name": name}, files=files, headers=headers)
        )
    return [answer.raise_for_status().json()["class"]["id"] for answer in answers]


@pytest.fixture(scope="package")
def taught(service: Service) -> tuple[str, list[int]]:
    """A model that knows three classes, for tests that only look."""
    service.client.post("/models", json={"name": "taught"}).raise_for_status()
    return "taught", _teach(service, "taught", "fish", "house", "mug")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_axe_finds_nothing(tabs: Open, service: Service, taught: tuple[str, list[int]], theme: str, width: int) -> None:
    """On any screen, with things on it and without."""
    model, (class_id, *_) = taught
    console = tabs(service.url, model, color_scheme=theme, viewport={"width": width, "height": 800})
    found = {}
    for screen in SCREENS:
        console.open(screen.format(class_id=class_id))
        expect(console.page.get_by_role("heading", level=1)).to_have_text(TEXT)
        expect(console.page.locator(".skeleton")).to_have_count(0)
        found[screen] = console.violations()

    assert {screen: some for screen, some in found.items() if some} == {}


@pytest.mark.parametrize("width", [320, 360, 768, 1280, 3840])
def test_no_screen_is_wider_than_the_window(
    tabs: Open, service: Service, taught: tuple[str, list[int]], width: int
) -> None:
    """From a small phone to a large monitor."""
    model, (class_id, *_) = taught
    console = tabs(service.url, model, viewport={"width": width, "height": 900})
    wider = []
    for screen in SCREENS:
        console.open(screen.format(class_id=class_id))
        expect(console.page.get_by_role("heading", level=1)).to_have_text(TEXT)
        expect(console.page.locator(".skeleton")).to_have_count(0)
        if console.page.evaluate("() => document.documentElement.scrollWidth > innerWidth"):
            wider.append(screen)

    assert wider == []


def test_classes_are_found_by_a_part_of_their_name(tabs: Open, service: Service, taught: tuple[str, list[int]]) -> None:
    """The slash goes to the search."""
    console = tabs(service.url, taught[0])
    console.open("classes")
    cards = console.page.locator(".class-card")
    expect(cards).to_have_count(3)
    console.page.keyboard.press("/")
    console.page.keyboard.type("ous")

    expect(cards).to_have_count(1)
    expect(cards).to_contain_text("house")


def test_a_class_is_renamed_and_deleted(console: ConsolePage, service: Service) -> None:
    """The name changes at once; before it is deleted, the page says what that means."""
    (class_id,) = _teach(service, console.model, "mug", number=2)
    console.open(f"classes/{class_id}")
    console.button("Rename").click()
    console.page.get_by_role("textbox", name="Name").fill("cup")
    console.button("Save").click()
    expect(console.page.get_by_role("heading", name="cup", level=1)).to_be_visible()
    console.button("Delete").click()
    expect(console.page.get_by_role("dialog")).to_contain_text("erased for good")
    console.page.get_by_role("dialog").get_by_role("button", name="Delete").click()

    expect(console.page.get_by_role("heading", name="No classes yet")).to_be_visible()


def test_a_shot_is_deleted_unless_that_is_undone(console: ConsolePage, service: Service) -> None:
    """One key undoes; without it the shot is gone, and a version is made."""
    (class_id,) = _teach(service, console.model, "mug", number=3)
    console.open(f"classes/{class_id}")
    everything = console.page.locator(".shots .shot")
    expect(everything).to_have_count(3)
    everything.first.get_by_role("checkbox").check()
    console.page.keyboard.press("Delete")
    expect(everything).to_have_count(2)
    console.page.keyboard.press("z")
    expect(everything).to_have_count(3)
    everything.first.get_by_role("checkbox").check()
    console.page.keyboard.press("Delete")

    expect(console.page.get_by_text("2 shots ·")).to_be_visible()
    assert service.client.get(f"/models/{console.model}/classes/{class_id}").json()["shots"] == 2


def test_a_shot_is_moved_to_another_class(console: ConsolePage, service: Service) -> None:
    """Or to one that does not exist yet."""
    (class_id,) = _teach(service, console.model, "mug", number=3)
    console.open(f"classes/{class_id}")
    console.page.locator(".shots .shot").first.get_by_role("checkbox").check()
    console.page.get_by_role("combobox", name="Move to").fill("cup")
    console.page.keyboard.press("Enter")

    expect(console.page.get_by_text("2 shots ·")).to_be_visible()
    names = {
        one["name"]: one["shots"] for one in service.client.get(f"/models/{console.model}/classes").json()["items"]
    }
    assert names == {"mug": 2, "cup": 1}


def test_classes_are_merged(console: ConsolePage, service: Service) -> None:
    """One of them keeps all shots."""
    fish, mug = _teach(service, console.model, "fish", "mug", number=2)
    console.open(f"classes/{mug}")
    console.button("Merge").click()
    console.page.get_by_role("combobox", name="Move to").fill("fish")
    console.page.get_by_role("option", name="fish").click()

    expect(console.page.get_by_role("heading", name="fish", level=1)).to_be_visible()
    assert service.client.get(f"/models/{console.model}/classes/{fish}").json()["shots"] == 4


def test_a_version_is_rolled_back_and_forward(console: ConsolePage, service: Service) -> None:
    """The page says what will happen before it does; the class that came later is not served any more."""
    _teach(service, console.model, "fish", "mug")
    newest = service.client.get(f"/models/{console.model}").json()["version"]
    console.open("versions")
    console.page.locator("[data-version='1']").get_by_role("button", name="Roll back to this").click()
    dialog = console.page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 class taught since then stays listed, but is not recognised")
    dialog.get_by_role("button", name="Roll back to this").click()
    expect(console.page.locator("[data-version='1']")).to_contain_text("active")
    console.open("classes")
    expect(console.page.get_by_role("link", name=re.compile("mug"))).to_contain_text("not served")
    console.open("versions")
    console.page.locator(f"[data-version='{newest}']").get_by_role("button", name="Make active").click()
    console.page.get_by_role("dialog").get_by_role("button", name="Make active").click()

    expect(console.page.locator(f"[data-version='{newest}']")).to_contain_text("active")


def test_what_a_class_is_named_never_becomes_markup(console: ConsolePage, service: Service) -> None:
    """On every screen that shows the name."""
    name = "<img src=x onerror=alert(1)>"
    files = [("shots", (file.name, file.read_bytes(), "image/jpeg")) for file in shots("mug", 2)]
    path = f"/models/{console.model}/classes"
    answer = service.client.post(path, data={"name": name}, files=files, headers={"Prefer": "wait=60"})
    class_id = answer.raise_for_status().json()["class"]["id"]
    dialogs: list[str] = []
    console.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    for screen in ("classes", f"classes/{class_id}", "map", "versions"):
        console.open(screen)
        expect(console.page.locator(".skeleton")).to_have_count(0)
        expect(console.page.locator("img[src=x]")).to_have_count(0)
    console.open("try")
    console.give([SAMPLES / "new-mug.jpg"])
    expect(console.page.locator(".bars").get_by_text(name)).to_be_visible()

    assert console.page.locator("img[src=x]").count() == 0
    assert dialogs == []


def test_two_tabs_see_the_same(console: ConsolePage) -> None:
    """What one teaches appears in the other, without a reload."""
    other = console.tab()
    other.goto(console.address("classes"))
    expect(other.get_by_role("heading", name="No classes yet")).to_be_visible()
    console.teach("mug", shots("mug", 2))

    expect(other.get_by_role("link", name=re.compile("mug"))).to_be_visible()


def test_a_lost_connection_is_said_and_survived(console: ConsolePage, service: Service) -> None:
    """What was about to be taught is still there, and is taught once."""
    console.open("teach")
    console.give(shots("mug", 2))
    console.page.get_by_label("What is it?").fill("mug")
    expect(console.button("Teach")).to_be_enabled()
    console.context.set_offline(True)
    console.button("Teach").click()
    expect(console.page.get_by_text("The service cannot be reached. Trying again")).to_be_visible()
    expect(console.page.locator(".group")).to_contain_text("does not answer")
    console.context.set_offline(False)
    expect(console.page.get_by_text("The service cannot be reached. Trying again")).to_have_count(0)
    console.button("Teach").click()

    expect(console.page.get_by_role("heading", name="The class is served")).to_be_visible()
    assert len(service.client.get(f"/models/{console.model}/classes").json()["items"]) == 1


def test_the_keyboard_alone_is_enough(console: ConsolePage) -> None:
    """From the first page to a predicted class; every step shows where the focus is."""
    console.open("")
    keyboard = console.page.keyboard
    expect(console.button("Try with sample pictures")).to_be_visible()
    _tab_to(console, "Try with sample pictures")
    keyboard.press("Enter")
    expect(console.button("Teach 3 classes")).to_be_enabled()
    _tab_to(console, "Teach 3 classes")
    keyboard.press("Enter")
    expect(console.link("Try it")).to_be_visible()
    keyboard.press("g")
    keyboard.press("y")
    expect(console.button("Try new mug")).to_be_visible()
    _tab_to(console, "Try new mug")
    keyboard.press("Enter")

    expect(console.verdict()).to_have_attribute("data-label", "mug")
    keyboard.press("?")
    expect(console.page.get_by_role("dialog")).to_contain_text("Keyboard shortcuts")
    keyboard.press("Escape")
    expect(console.page.get_by_role("dialog")).to_have_count(0)


def _tab_to(console: ConsolePage, name: str) -> None:
    """Press Tab until the element with this name has the focus, which must be visible."""
    wanted = console.page.get_by_role("button", name=name).or_(console.page.get_by_role("link", name=name)).first
    for _ in range(60):
        if wanted.evaluate("(one) => one === document.activeElement"):
            assert wanted.evaluate("(one) => getComputedStyle(one).outlineStyle") != "none"
            return
        console.page.keyboard.press("Tab")
    raise AssertionError(f"the focus never came to '{name}'")


def test_the_first_paint_is_small_and_nothing_moves(tabs: Open, service: Service) -> None:
    """Scripts, styles and page together, as they are transferred; and what was painted stays where it is."""
    console = tabs(service.url)
    console.page.add_init_script(
        "window.shifts = 0;"
        "new PerformanceObserver((list) => list.getEntries().forEach((one) => (shifts += one.value)))"
        ".observe({ type: 'layout-shift', buffered: true })"
    )
    console.open("")
    expect(console.page.get_by_role("heading", name="Teach", level=1)).to_be_visible()
    expect(console.page.locator(".skeleton")).to_have_count(0)
    resources = "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
    transferred = console.page.evaluate(f"() => {resources}.reduce((sum, one) => sum + one.transferSize, 0)")

    assert 10_000 < transferred < 100_000
    assert console.page.evaluate("() => shifts") < 0.1  # what browsers call good


def test_what_it_was_unsure_of_is_named_in_the_inbox(console: ConsolePage, service: Service) -> None:
    """With one key, unless that is undone; its image is gone from the inbox then."""
    (class_id,) = _teach(service, console.model, "mug", number=3)
    image = ("new.jpg", (SAMPLES / "new-mug.jpg").read_bytes(), "image/jpeg")
    service.client.post(f"/models/{console.model}/predict", files=[("images", image)]).raise_for_status()
    console.open("inbox")
    asked = console.page.get_by_role("region", name="What is this?")
    expect(asked).to_have_count(1)
    console.page.keyboard.press("1")
    expect(asked).to_have_count(0)
    console.page.keyboard.press("z")
    expect(asked).to_have_count(1)
    console.page.keyboard.press("1")
    expect(console.page.get_by_text("1 image added to mug")).to_be_visible()
    expect(console.page.get_by_text("1 image added to mug")).to_have_count(0)

    expect(console.page.get_by_role("heading", name="Nothing waits")).to_be_visible()
    assert service.client.get(f"/models/{console.model}/classes/{class_id}").json()["shots"] == 4
    assert service.client.get(f"/models/{console.model}/inbox").json()["total"] == 0


def test_the_map_is_walked_with_arrow_keys(tabs: Open, service: Service, taught: tuple[str, list[int]]) -> None:
    """From point to point; Enter opens the class."""
    console = tabs(service.url, taught[0])
    console.open("map")
    plot = console.page.get_by_role("application")
    expect(console.page.locator(".map-point")).to_have_count(18)  # three prototypes, fifteen shots
    plot.focus()
    expect(console.page.locator(".map-tip")).to_contain_text("Prototype of")
    console.page.keyboard.press("ArrowLeft")
    console.page.keyboard.press("ArrowUp")
    expect(console.page.locator(".map-tip")).to_be_visible()
    console.page.keyboard.press("Enter")

    expect(console.page.get_by_role("heading", level=1)).to_have_text(re.compile("fish|house|mug"))


def test_two_versions_are_compared(tabs: Open, service: Service, taught: tuple[str, list[int]]) -> None:
    """Which classes only one of them knows."""
    console = tabs(service.url, taught[0])
    console.open("versions")
    for number in (1, 3):
        console.page.get_by_role("checkbox", name=f"Select version {number} to compare").check()
    console.button("Compare 1 and 3").click()

    expect(console.page.get_by_role("dialog")).to_contain_text("Only in the second: house, mug")


def test_a_cell_of_the_confusion_matrix_opens_its_images(console: ConsolePage, service: Service) -> None:
    """Two classes of the same mugs, one mirrored: held out, a mug is most like its mirror image."""
    for name, turn in (("mug", ImageOps.exif_transpose), ("cup", ImageOps.mirror)):
        files = [("shots", (file.name, _encoded(turn(Image.open(file))), "image/png")) for file in shots("mug")]
        path = f"/models/{console.model}/classes"
        service.client.post(path, data={"name": name}, files=files, headers={"Prefer": "wait=60"}).raise_for_status()
    console.open("classes")
    console.button("Confusion").click()
    console.page.locator(".matrix .cell").first.click()

    images = console.page.get_by_role("dialog").get_by_role("img")
    expect(images.first).to_be_visible()
    assert images.count() >= 1


def _encoded(image: Image.Image) -> bytes:
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


def test_ten_thousand_classes_scroll(tabs: Open, service: Service) -> None:
    """Only those in view are in the document, wherever one scrolls to."""
    console = tabs(service.url)
    names = [f"class {number:05}" for number in range(10_000)]

    def answer(route: Route) -> None:
        query = parse_qs(urlsplit(route.request.url).query)
        start, limit = int(query.get("cursor", ["0"])[0]), int(query["limit"][0])
        items = [
            {"id": index + 1, "name": names[index], "status": "learned", "shots": 5, "since": 1, "served": True}
            | {"created_at": "2030-01-01T00:00:00Z", "accuracy": None, "cover": None, "guarded": False}
            for index in range(start, min(start + limit, len(names)))
        ]
        following = str(start + limit) if start + limit < len(names) else None
        route.fulfill(json={"items": items, "next": following, "total": len(names)})

    console.page.route("**/classes?*", answer)
    console.open("classes")
    expect(console.page.get_by_text("10,000 classes.")).to_be_visible()
    console.page.evaluate("() => scrollTo(0, document.documentElement.scrollHeight)")

    expect(console.page.get_by_text("class 09999")).to_be_visible()
    assert console.page.locator(".class-card").count() < 100
