"""`pq predict`: answers as text, CSV and JSON, and what happens to images that are refused."""

import csv
import json
from pathlib import Path

import pytest

from tests.client.command_line import CommandLine
from tests.service.conftest import Draw


@pytest.fixture
def images(tmp_path: Path, draw: Draw) -> Path:
    """A folder with an image of two classes and one of none."""
    for name, look in (("1.png", "red"), ("2.png", "green"), ("3.png", "stripes")):
        (tmp_path / name).write_bytes(draw(look))
    return tmp_path


@pytest.fixture
def command_line(command_line: CommandLine) -> CommandLine:
    """With two classes."""
    command_line.learner.taught("red", "green")
    return command_line


def test_each_image_gets_a_line(command_line: CommandLine, images: Path) -> None:
    """The file, the label and how certain it is; one that is like nothing that was taught is unknown."""
    done = command_line("predict", images / "1.png", images / "3.png")

    known, unknown = done.stdout.splitlines()
    assert done.exit_code == 0, done.output
    assert known.startswith(f"{images / '1.png'}: red (")
    assert unknown.startswith(f"{images / '3.png'}: unknown (nearest: ")


def test_a_folder_stands_for_its_images(command_line: CommandLine, images: Path) -> None:
    """In the order of their names."""
    lines = command_line("predict", images).stdout.splitlines()

    assert [Path(line.split(":")[0]).name for line in lines] == ["1.png", "2.png", "3.png"]


def test_json_is_an_object_a_line(command_line: CommandLine, images: Path) -> None:
    """With the file, and the answer as the service gives it."""
    done = command_line("predict", images / "1.png", images / "3.png", "--json", "--top-k", "1", "--views", "2")

    known, unknown = (json.loads(line) for line in done.stdout.splitlines())
    assert (known["file"], known["label"], known["version"]) == (str(images / "1.png"), "red", 2)
    assert len(known["top"]) == 1
    assert (unknown["label"], unknown["unknown"]) == (None, True)


def test_csv_has_a_heading_and_a_row_for_each_image(command_line: CommandLine, images: Path) -> None:
    """Also for a refused one; with --top-k, columns for the nearest classes."""
    (images / 'a, "b".png').write_bytes(b"broken")

    done = command_line("predict", images, "--csv", "--top-k", "2")

    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert done.exit_code == 3
    assert [row["label"] for row in rows] == ["red", "green", "", ""]
    assert [row["unknown"] for row in rows] == ["false", "false", "true", ""]
    assert rows[0]["label_1"] == "red"
    assert rows[0]["label_2"] == "green"
    assert rows[3]["file"].endswith('a, "b".png')
    assert rows[3]["error"]


def test_refused_images_keep_their_places_and_are_exit_code_3(command_line: CommandLine, images: Path) -> None:
    """Those that the service refuses, and those that cannot be read; all others are answered."""
    (images / "broken.png").write_bytes(b"broken")
    files = [images / name for name in ("nowhere.png", "1.png", "broken.png", "2.png", "gone.png")]

    done = command_line("predict", *files, "--json")

    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 3
    assert [one["file"] for one in found] == [str(file) for file in files]
    assert [one.get("label") for one in found] == [None, "red", None, "green", None]
    assert found[0]["error"] == "no such file or directory"
    assert all(found[number]["error"] for number in (0, 2, 4))


def test_as_text_refused_images_are_on_standard_error(command_line: CommandLine, images: Path) -> None:
    """So that the answers can be read by another program."""
    done = command_line("predict", images / "nowhere.png", images / "1.png")

    assert done.exit_code == 3
    assert done.stderr == f"{images / 'nowhere.png'}: refused: no such file or directory\n"
    assert len(done.stdout.splitlines()) == 1


def test_more_images_than_a_request_carries_are_answered_in_order(command_line: CommandLine, images: Path) -> None:
    """In batches, several at a time."""
    files = [images / ("1.png" if number % 3 else "2.png") for number in range(70)]

    done = command_line("predict", *files, "--json")

    labels = [json.loads(line)["label"] for line in done.stdout.splitlines()]
    assert labels == ["red" if number % 3 else "green" for number in range(70)]


def test_standard_input_is_an_image(command_line: CommandLine, draw: Draw) -> None:
    """Named by a dash."""
    done = command_line("predict", "-", stdin=draw("green"))

    assert done.stdout.startswith("-: green (")


def test_standard_input_may_hold_the_names_of_images(command_line: CommandLine, images: Path) -> None:
    """One a line, as find prints them."""
    names = f"{images / '1.png'}\n{images / '2.png'}\nno\0file\n"

    done = command_line("predict", "--files-from", "-", stdin=names.encode())

    assert [line.split(": ")[1].split(" ")[0] for line in done.stdout.splitlines()] == ["red", "green"]
    assert (done.exit_code, done.stderr) == (3, "no?file: refused: no file can have such a name\n")


def test_another_version_can_be_asked(command_line: CommandLine, images: Path) -> None:
    """Version 1 knew one class only."""
    done = command_line("predict", images / "2.png", "--version", "1", "--json")

    answer = json.loads(done.stdout)
    assert answer["version"] == 1
    assert [one["label"] for one in answer["top"]] == ["red"]


def test_a_version_that_does_not_exist_is_a_failure(command_line: CommandLine, images: Path) -> None:
    """With the sentence of the service, and nothing else."""
    done = command_line("predict", images / "2.png", "--version", "99")

    assert done.exit_code == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert "99" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["a.jpg", "--csv", "--json"], ["a.jpg", "--views", "9"]], ids=" ".join)
def test_wrong_use_is_exit_code_2(command_line: CommandLine, arguments: list[str]) -> None:
    """Before anything is sent."""
    done = command_line("predict", *arguments)

    assert done.exit_code == 2
    assert "Usage: pq predict" in done.stderr
