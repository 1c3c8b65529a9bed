"""`pq classes`, `versions`, `rollback`, `correct` and `inbox`: what a model knows, and making it right."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.client.command_line import CommandLine
from tests.service.conftest import Draw

Until = Callable[[Callable[[], Any], str], None]


@pytest.fixture
def taught(command_line: CommandLine) -> CommandLine:
    """Commands about a model with two classes of three images each."""
    command_line.learner.taught("red", "green")
    return command_line


@pytest.fixture
def violet(tmp_path: Path, draw: Draw) -> Path:
    """An image that nothing was taught with."""
    (tmp_path / "violet.png").write_bytes(draw("violet"))
    return tmp_path / "violet.png"


def samples(command_line: CommandLine) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = command_line.learner.get("/inbox")["items"]
    return found


def test_classes_are_a_table(taught: CommandLine) -> None:
    """With a heading, and a row for each."""
    lines = [line.split() for line in taught("classes").stdout.splitlines()]

    assert lines[0] == ["id", "name", "shots", "status", "accuracy", "taught"]
    assert [line[1:4] for line in lines[1:]] == [["red", "3", "provisional"], ["green", "3", "provisional"]]


def test_classes_can_be_searched_and_sorted(taught: CommandLine) -> None:
    """By the service, so that it works for thousands."""
    assert [one["name"] for one in taught.json("classes", "--search", "RE")] == ["red", "green"]
    assert [one["name"] for one in taught.json("classes", "--sort", "name")] == ["green", "red"]
    assert [one["name"] for one in taught.json("classes", "--search", "gre")] == ["green"]


def test_nothing_to_list_is_said_on_standard_error(command_line: CommandLine) -> None:
    """A program that reads the output gets nothing."""
    done = command_line("classes")

    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "nothing was taught yet; `pq teach` does that\n"


def test_versions_mark_the_active_one_and_rollback_moves_it(taught: CommandLine) -> None:
    """What the older version does not know is named."""
    before = taught("versions").stdout.splitlines()
    rolled_back = taught("rollback", "1")
    after = taught("versions").stdout.splitlines()

    assert [line.split()[0] for line in before] == ["version", "2*", "1", "0"]
    assert rolled_back.stdout == "version 1 is active; it knows 1 class\nnot served by it: 'green'\n"
    assert [line.split()[0] for line in after] == ["version", "2", "1*", "0"]


def test_a_version_that_does_not_exist_cannot_be_activated(taught: CommandLine) -> None:
    """One sentence."""
    done = taught("rollback", "99")

    assert done.exit_code == 1
    assert done.stderr.count("\n") == 1
    assert "99" in done.stderr


def test_correct_makes_an_image_a_shot(taught: CommandLine, violet: Path) -> None:
    """And says what the service had said."""
    done = taught("correct", "green", violet)

    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"{violet}: was ")
    assert "is a shot of 'green' now (added)" in done.stdout
    assert taught.learner.classes()["green"]["shots"] == 4


def test_correct_moves_a_shot_of_another_class(taught: CommandLine, tmp_path: Path, draw: Draw) -> None:
    """An image cannot show two classes."""
    (tmp_path / "red.png").write_bytes(draw("red", 1))

    moved = taught("correct", "green", tmp_path / "red.png")
    again = taught("correct", "green", tmp_path / "red.png")

    assert "is a shot of 'green' now (moved)" in moved.stdout
    assert "is a shot of 'green' already" in again.stdout
    assert {name: one["shots"] for name, one in taught.learner.classes().items()} == {"red": 2, "green": 4}


def test_correct_makes_a_new_class_only_if_asked(taught: CommandLine, violet: Path) -> None:
    """A slip of the pen must not be a class."""
    mistyped = taught("correct", "gren", violet)
    made = taught("correct", "violet", violet, "--new")
    again = taught("correct", "violet", violet, "--new")

    assert mistyped.exit_code == 1
    assert mistyped.stderr == "error: there is no class 'gren'; did you mean 'green'? Otherwise --new makes one\n"
    assert made.exit_code == 0, made.output
    assert taught.learner.classes()["violet"]["shots"] == 1
    assert again.stderr == "error: the class 'violet' exists already; leave out --new\n"


def test_correct_takes_an_image_out_of_the_inbox(taught: CommandLine, violet: Path, until: Until) -> None:
    """It has become a shot, so nobody need look at it again."""
    taught("predict", violet)
    until(lambda: samples(taught), "the image is in the inbox")

    done = taught("correct", "violet", violet, "--new")

    assert "(named)" in done.stdout
    assert taught.learner.classes()["violet"]["shots"] == 1
    digests = {one["sha256"] for one in samples(taught)}
    assert digests == set()


def test_an_image_that_cannot_be_used_is_exit_code_3(taught: CommandLine, violet: Path) -> None:
    """The others become shots."""
    broken = violet.with_name("broken.png")
    broken.write_bytes(b"broken")

    done = taught("correct", "green", broken, violet)

    assert done.exit_code == 3
    assert f"{broken}: refused: " in done.stdout
    assert taught.learner.classes()["green"]["shots"] == 4


def test_samples_of_the_inbox_are_listed_named_and_dismissed(
    taught: CommandLine, violet: Path, tmp_path: Path, draw: Draw, until: Until
) -> None:
    """`pq inbox` alone lists them."""
    (tmp_path / "blue.png").write_bytes(draw("blue"))
    taught("predict", violet, tmp_path / "blue.png")
    until(lambda: len(samples(taught)) == 2, "both images are in the inbox")
    first, second = (one["id"] for one in samples(taught))

    listed = taught("inbox")
    sorted_ = taught.json("inbox", "list", "--sort", "margin")
    named = taught("inbox", "name", "violet", str(first), "--new")
    dismissed = taught("inbox", "dismiss", str(second))
    empty = taught("inbox")

    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["sample", str(first), str(second)]
    assert {one["id"] for one in sorted_} == {first, second}
    assert named.stdout.startswith("'violet' has 1 shot now; version 3 knows it")
    assert dismissed.stdout == "1 sample dismissed\n"
    assert (empty.stdout, empty.stderr) == ("", "the inbox is empty\n")


def test_the_whole_inbox_can_be_dismissed(taught: CommandLine, violet: Path, until: Until) -> None:
    """But not by leaving the samples out."""
    taught("predict", violet)
    until(lambda: samples(taught), "the image is in the inbox")

    forgotten = taught("inbox", "dismiss")
    done = taught("inbox", "dismiss", "--all")

    assert forgotten.exit_code == 2
    assert done.stdout == "1 sample dismissed\n"
    assert samples(taught) == []
