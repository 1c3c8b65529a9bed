"""`pq teach --folders`: a class for each folder, exactly once, whatever happens to the process."""

import errno
import os
import re
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from protoquad_client.commands.class_folders import read_class_folders
from protoquad_client.commands.image_files import ImageFile, Refusal, Unreadable
from protoquad_client.commands.sent_images import SentImage, fitting
from protoquad_client.forms import EncodedImage

from tests.client.command_line import SECONDS, CommandLine, run_pq
from tests.painted import paint, picture

CLASSES = {f"bird {number}": 2 for number in range(4)}


@pytest.fixture
def birds(tmp_path: Path) -> Path:
    return paint(tmp_path / "birds", CLASSES)


def zipped(target: Path, entries: dict[str, bytes], **options: Any) -> Path:
    with zipfile.ZipFile(target, "w", **options) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return target


def shots(command_line: CommandLine) -> dict[str, int]:
    return {name: one["shots"] for name, one in command_line.learner.classes().items()}


def test_each_folder_becomes_a_class(command_line: CommandLine, birds: Path) -> None:
    """With a line for each where there is no terminal, and a summary."""
    done = command_line("teach", "--folders", birds)

    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0] == "'bird 0' taught with 2 images"
    assert done.stdout.splitlines()[-1] == "4 classes taught, 8 images"
    assert shots(command_line) == CLASSES


def test_a_zip_is_read_as_the_folder_in_it(command_line: CommandLine, tmp_path: Path) -> None:
    """Also if it begins with the folder's own name, and with what systems add."""
    entries = {f"birds/{name}/{number}.png": picture(name, number) for name in ("owl", "wren") for number in (1, 2)}
    archive = zipped(tmp_path / "birds.zip", {**entries, "__MACOSX/birds/owl/._1.png": b"x", "birds/.DS_Store": b"x"})

    done = command_line("teach", "--folders", archive)

    assert done.exit_code == 0, done.output
    assert shots(command_line) == {"owl": 2, "wren": 2}


def test_killed_at_any_moment_and_started_again_it_teaches_each_class_once(
    command_line: CommandLine, birds: Path, until: Callable[[Callable[[], Any], str], None]
) -> None:
    """Killed three times: twice when another class has come into being, and once while a request is on its way."""
    for taught in (1, 2):
        process = command_line.start("teach", "--folders", birds)
        until(lambda taught=taught: len(command_line.kinds()) > taught, "a class is taught")  # type: ignore[misc]
        process.kill()
        process.communicate(timeout=SECONDS)
    with command_line.service.held_up():
        process = command_line.start("teach", "--folders", birds)
        teacher = command_line.service.context.teacher
        until(lambda: teacher._in_flight, "a request is on its way")
        process.kill()
        process.communicate(timeout=SECONDS)
        last = command_line.start("teach", "--folders", birds)
    said, errors = last.communicate(timeout=SECONDS)

    assert last.returncode == 0, errors
    assert "known already" in said
    assert shots(command_line) == CLASSES
    assert command_line.kinds() == ["base", *["provisional"] * len(CLASSES)]


def test_shots_that_are_on_their_way_are_not_added_twice(
    command_line: CommandLine, birds: Path, until: Callable[[Callable[[], Any], str], None]
) -> None:
    """The same request again, from another process, waits for the first one's answer."""
    command_line("teach", "--folders", birds, "--limit", "1")
    teacher, sent = command_line.service.context.teacher, conflicts(command_line)
    with command_line.service.held_up():
        first = command_line.start("teach", "--folders", birds, "--add")
        until(lambda: teacher._in_flight, "a request is on its way")
        second = command_line.start("teach", "--folders", birds, "--add")
        until(lambda: conflicts(command_line) > sent, "the same request has come again")
    ended = [process.communicate(timeout=SECONDS) and process.returncode for process in (first, second)]

    assert ended == [0, 0]
    assert shots(command_line) == CLASSES


def conflicts(command_line: CommandLine) -> int:
    """How many requests the service has answered with 409."""
    text = command_line.service.http.get("/metrics").text
    return sum(int(float(number)) for number in re.findall(r'_seconds_count\{.*status="409".*\} (\S+)', text))


def test_a_class_that_exists_is_compared_by_its_images(command_line: CommandLine, birds: Path) -> None:
    """One that has other images is left alone and named; with --add it gets those that it does not have."""
    command_line("teach", "bird 0", birds / "bird 0")
    command_line("teach", "bird 1", birds / "bird 0")
    command_line("teach", "bird 2", birds / "bird 2" / "0.png")

    left_alone = command_line("teach", "--folders", birds)
    added = command_line("teach", "--folders", birds, "--add")

    assert left_alone.exit_code == 3
    assert "not taught: 'bird 1' exists and has 2 other shots; --add adds the rest" in left_alone.stdout
    assert f"  {birds / 'bird 2' / '1.png'}: its class exists without it; --add sends it" in left_alone.stdout
    assert "incomplete: 'bird 2' exists and has 1 of these 2 images; --add adds the rest" in left_alone.stdout
    assert added.exit_code == 0
    assert shots(command_line) == {**CLASSES, "bird 1": 4}


def test_what_was_refused_is_reported_with_its_reason(command_line: CommandLine, birds: Path) -> None:
    """By the service, and before anything was sent; the rest is taught, and a second run says the same."""
    (birds / "bird 0" / "0.png").write_bytes(b"broken")
    (birds / "bird 1" / "0.png").write_bytes(b"")
    (birds / "alone.png").write_bytes(picture("alone", 1))
    (birds / "labels.txt").write_text("not an image")

    done = command_line("teach", "--folders", birds)
    report = command_line.json("teach", "--folders", birds)

    assert done.exit_code == 3
    assert "4 classes taught, 6 images" in done.stdout
    assert "3 images refused:" in done.stdout
    assert f"  {birds / 'alone.png'}: it lies in no class folder" in done.stdout
    assert "1 file left out: not images by their names" in done.stdout
    assert [one["state"] for one in report["classes"]] == ["incomplete", *["known"] * 3]
    assert shots(command_line) == {**CLASSES, "bird 0": 1, "bird 1": 1}


def test_a_limit_takes_the_first_images(command_line: CommandLine, birds: Path) -> None:
    """Always the same ones."""
    done = command_line("teach", "--folders", birds, "--limit", "1")

    assert done.exit_code == 0
    assert shots(command_line) == dict.fromkeys(CLASSES, 1)


def test_a_dry_run_teaches_nothing(command_line: CommandLine, birds: Path) -> None:
    """And says what would be taught."""
    done = command_line("teach", "--folders", birds, "--dry-run")

    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1] == "4 classes would be taught, 8 images"
    assert command_line.kinds() == ["base"]


def test_images_beyond_what_the_service_takes_are_left_out(command_line: CommandLine, tmp_path: Path) -> None:
    """The first are taught, so that another run takes the same ones."""
    paint(tmp_path, {"owl": 1, "wren": 1})
    for number in range(100):
        (tmp_path / "owl" / f"again-{number}.png").write_bytes(picture("owl", 0))

    done = command_line("teach", "--folders", tmp_path, "--dry-run")

    assert done.exit_code == 0
    assert "2 classes would be taught, 101 images" in done.stdout
    assert "1 image left out: more than the service takes of a class or in a request" in done.stdout


def test_a_request_carries_as_many_images_as_fit() -> None:
    """From the first one on."""
    images = [SentImage(ImageFile(name, bytes), EncodedImage(bytes(5000)), name) for name in "abc"]

    assert [one.digest for one in fitting(images, 13_000)] == ["a", "b"]
    assert fitting(images, 1000) == []


def test_a_service_that_goes_away_leaves_the_rest_for_another_run(birds: Path) -> None:
    """One sentence, and no traceback."""
    done = run_pq("teach", "--folders", birds, "--url", "http://127.0.0.1:1")

    assert done.exit_code == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_folders_of_folders_are_not_taught_as_classes(tmp_path: Path) -> None:
    """Data sets have a folder for training and one for tests."""
    paint(tmp_path / "train", {"owl": 1})
    paint(tmp_path / "test", {"owl": 1})

    done = run_pq("teach", "--folders", tmp_path)

    assert done.exit_code == 2
    assert "name one of them: test, train" in done.stderr


def test_what_a_zip_must_not_contain_is_refused(tmp_path: Path) -> None:
    """Paths that lead out of it, links, bombs: each with the reason."""
    link = zipfile.ZipInfo("owl/link.png")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    archive = tmp_path / "evil.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as writer:
        writer.writestr("owl/1.png", picture("owl", 1))
        writer.writestr(link, "/etc/passwd")
        for name in ("../out.png", "/etc/out.png", "owl/../../out.png", "C:\\out.png"):
            writer.writestr(name, b"x")
        writer.writestr("owl/bomb.png", bytes(5 * 2**20))

    found = read_class_folders(archive)

    assert [image.filename for one in found.classes for image in one.images] == ["1.png"]
    reasons = {Path(one.image.replace("\\", "/")).name: one.reason for one in found.refused}
    assert reasons == {
        "out.png": "its path leads out of the zip",
        "link.png": "it is a link",
        "bomb.png": "it unpacks to more than a hundred times its size",
    }
    assert len(found.refused) == 6


def test_names_in_a_zip_may_be_utf_8_that_does_not_say_so(tmp_path: Path) -> None:
    """As macOS writes them."""
    archive = zipped(tmp_path / "birds.zip", {"Käuze/1.png": picture("owl", 1)})
    data = archive.read_bytes()
    for head, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        at = data.index(head) + flags
        data = data[:at] + b"\0\0" + data[at + 2 :]
    archive.write_bytes(data)

    (owls,) = read_class_folders(archive).classes

    assert owls.name == "Käuze"
    assert owls.images[0].read() == picture("owl", 1)


def test_a_folder_that_cannot_be_listed_is_refused(birds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its class would be missing without a word."""
    scandir = os.scandir

    def refusing(path: str) -> Any:
        if path.endswith("bird 1"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)

    found = read_class_folders(birds)

    assert [one.name for one in found.classes] == ["bird 0", "bird 2", "bird 3"]
    assert found.refused == (Refusal(str(birds / "bird 1"), "permission denied"),)


def test_a_folder_whose_name_is_not_text_does_not_stop_the_others(command_line: CommandLine, birds: Path) -> None:
    """The file systems of Linux take any bytes as a name."""
    (birds / "bird 1").rename(birds / "bird \udcff")

    done = command_line("teach", "--folders", birds)

    assert done.exit_code == 3
    assert "not taught: 'bird ?' cannot be taught: its name is not text in UTF-8" in done.stdout
    assert set(shots(command_line)) == {"bird 0", "bird 2", "bird 3"}


def test_a_damaged_zip_names_the_image(tmp_path: Path) -> None:
    """The others can be read."""
    archive = zipped(tmp_path / "birds.zip", {"owl/1.png": picture("owl", 1), "owl/2.png": picture("owl", 2)})
    data = bytearray(archive.read_bytes())
    data[200:260] = bytes(60)
    archive.write_bytes(data)

    (owl,) = read_class_folders(archive).classes
    damaged, sound = owl.images

    with pytest.raises(Unreadable, match="the zip is damaged there"):
        damaged.read()
    assert sound.read() == picture("owl", 2)


def test_a_file_that_is_no_zip_is_wrong_use(tmp_path: Path) -> None:
    """With what to name instead."""
    (tmp_path / "birds.zip").write_bytes(b"not a zip")

    done = run_pq("teach", "--folders", tmp_path / "birds.zip")

    assert done.exit_code == 2
    assert "cannot be read as a zip" in done.stderr
