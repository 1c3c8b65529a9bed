"""From nothing to a predicted class, with the images that come with the console and with one's own."""

from pathlib import Path

import pytest
from PIL import Image, ImageFilter
from playwright.sync_api import expect

from tests.browser.console_page import SAMPLES, ConsolePage, shots
from tests.processes import Service, picture


def test_a_first_visitor_teaches_the_samples_and_tries_them(console: ConsolePage) -> None:
    """Four clicks: the samples, teach, try, an image that it has not seen."""
    console.open("")
    console.button("Try with sample pictures").click()
    console.button("Teach 3 classes").click()
    console.link("Try it").click()
    console.button("Try new mug").click()

    expect(console.verdict()).to_have_attribute("data-label", "mug")
    console.button("Try new umbrella").click()
    expect(console.verdict()).to_contain_text("Unknown")


def test_a_session_is_watched_until_it_is_refined(console: ConsolePage) -> None:
    """Stages while it runs, then the gain on images that were held out."""
    console.teach("fish", shots("fish"))
    console.teach("mug", shots("mug"))

    console.refined()
    expect(console.page.locator(".session")).to_contain_text("held-out images")


def test_a_session_that_trains_draws_its_losses(console: ConsolePage, service: Service, tmp_path: Path) -> None:
    """With twenty classes there are enough held-out images to train by."""
    colours = [f"hsl({18 * number}, 90%, 50%)" for number in range(20)]
    for colour in colours[1:]:
        files = [("shots", (f"{seed}.png", picture(colour, seed), "image/png")) for seed in range(2)]
        service.client.post(f"/models/{console.model}/classes", data={"name": colour}, files=files).raise_for_status()
    own = [tmp_path / f"{seed}.png" for seed in range(2)]
    for seed, file in enumerate(own):
        file.write_bytes(picture(colours[0], seed))
    console.teach("red", own)

    line = console.page.locator(".session .line-chart polyline").first
    expect(line).to_be_visible()
    console.refined()
    assert len((line.get_attribute("points") or "").split()) > 5


def test_a_folder_of_class_folders_becomes_a_group_for_each(console: ConsolePage, tmp_path: Path) -> None:
    """The folder's name is the class's name; what is no image is left out."""
    for name in ("house", "mug"):
        (tmp_path / "things" / name).mkdir(parents=True)
        for file in shots(name, 2):
            (tmp_path / "things" / name / file.name).write_bytes(file.read_bytes())
    (tmp_path / "things" / "house" / "notes.txt").write_text("no image")
    console.open("teach")
    console.page.locator("input[data-source=folder]").set_input_files(tmp_path / "things")

    expect(console.page.get_by_label("What is it?")).to_have_count(2)
    expect(console.page.get_by_role("region", name="house").get_by_role("img")).to_have_count(2)
    console.button("Teach 2 classes").click()
    expect(console.page.get_by_role("heading", name="2 classes are served")).to_be_visible()


def test_bad_images_are_marked_before_they_are_sent(console: ConsolePage, tmp_path: Path) -> None:
    """What cannot be read, what is blurred, what was given twice; each with its reason."""
    (tmp_path / "notes.jpg").write_text("this is no image")
    with Image.open(SAMPLES / "mug" / "2.jpg") as sharp:
        sharp.filter(ImageFilter.GaussianBlur(9)).save(tmp_path / "blurred.jpg")
    sharp_one = shots("mug", 1)[0]
    (tmp_path / "copy.jpg").write_bytes(sharp_one.read_bytes())
    console.open("teach")
    console.give([sharp_one, tmp_path / "notes.jpg", tmp_path / "blurred.jpg", tmp_path / "copy.jpg"])
    group = console.page.locator(".group")

    for mark in ("unreadable", "blurred", "duplicate"):
        expect(group.get_by_text(mark, exact=False).first).to_be_visible()
    console.button("Remove 1 unusable image").click()
    expect(group.locator(".thumb")).to_have_count(3)


def test_an_image_that_the_service_refuses_is_named(console: ConsolePage, tmp_path: Path) -> None:
    """The others are not lost: without it they are taught."""
    Image.new("RGB", (12, 12)).save(tmp_path / "broken.tif")
    content = (tmp_path / "broken.tif").read_bytes()
    (tmp_path / "broken.tif").write_bytes(content[: len(content) // 2])
    console.open("teach")
    console.give([*shots("mug", 3), tmp_path / "broken.tif"])
    console.page.get_by_label("What is it?").fill("mug")
    console.button("Teach").click()

    expect(console.page.locator(".group")).to_contain_text("refused")
    console.button("Remove 1 unusable image").click()
    console.button("Teach").click()
    expect(console.page.get_by_role("heading", name="The class is served")).to_be_visible()


def test_a_typo_in_a_name_is_noticed(console: ConsolePage, service: Service) -> None:
    """And the known name adds to the class instead of making another."""
    console.teach("snowy owl", shots("fish", 2))
    console.button("Teach more").click()
    console.give(shots("house", 1))
    console.page.get_by_label("What is it?").fill("snowy wol")
    console.button("Use “snowy owl”").click()

    expect(console.page.get_by_text("will be added to it")).to_be_visible()
    console.button("Teach").click()
    expect(console.page.get_by_text("now 3 shots")).to_be_visible()
    classes = service.client.get(f"/models/{console.model}/classes").json()["items"]
    assert [one["name"] for one in classes] == ["snowy owl"]


def test_a_wrong_image_to_try_says_why(console: ConsolePage, tmp_path: Path) -> None:
    """The service's own reason."""
    console.teach("mug", shots("mug", 2))
    (tmp_path / "notes.png").write_text("no image")
    console.open("try")
    console.give([tmp_path / "notes.png"])

    expect(console.page.get_by_role("alert")).to_contain_text("notes.png cannot be used")


def test_this_is_makes_an_image_a_shot_with_one_key(console: ConsolePage, service: Service) -> None:
    """The number beside the class."""
    console.teach("mug", shots("mug", 3))
    console.open("try")
    console.give([SAMPLES / "new-mug.jpg"])
    expect(console.verdict()).to_contain_text("mug")
    console.page.keyboard.press("1")

    expect(console.page.get_by_text("Now a shot of")).to_be_visible()
    (mug,) = service.client.get(f"/models/{console.model}/classes").json()["items"]
    assert mug["shots"] == 4


def test_two_versions_answer_side_by_side(console: ConsolePage) -> None:
    """The older one does not know the newer class."""
    console.teach("fish", shots("fish", 3))
    console.teach("mug", shots("mug", 3))
    console.open("try")
    console.give([SAMPLES / "new-mug.jpg"])
    expect(console.verdict()).to_contain_text("mug")
    console.page.get_by_label("Compare with").select_option("1")

    expect(console.page.get_by_role("region", name="The other version")).to_contain_text("Unknown")


def test_the_camera_answers_live(console: ConsolePage) -> None:
    """A few frames a second; a frame that is held becomes an image to look at."""
    console.teach("mug", shots("mug", 2))
    console.open("try")
    console.button("Camera").click()
    expect(console.page.get_by_role("region", name="Live")).to_be_visible()
    console.button("Hold this frame").click()
    console.button("Close the camera").click()

    expect(console.page.get_by_role("img", name="The image camera-1.jpg")).to_be_visible()


@pytest.mark.parametrize("screen", ["teach", "try"])
def test_an_image_can_be_pasted(console: ConsolePage, screen: str) -> None:
    """Wherever the focus is."""
    console.open(screen)
    expect(console.button("Choose images")).to_be_visible()
    data = list((SAMPLES / "new-fish.jpg").read_bytes())
    console.page.evaluate(
        """(data) => {
            const clipboardData = new DataTransfer();
            clipboardData.items.add(new File([new Uint8Array(data)], "pasted.jpg", { type: "image/jpeg" }));
            window.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true }));
        }""",
        data,
    )

    expect(console.page.get_by_role("img", name="pasted.jpg").first).to_be_visible()
