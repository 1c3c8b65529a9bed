"""`pq teach NAME IMAGES`: one class from a few images."""

import re
from pathlib import Path

import pytest

from tests.client.command_line import CommandLine, run_pq
from tests.painted import paint, picture


@pytest.fixture
def owls(tmp_path: Path) -> Path:
    """A folder of three images, and what systems leave in folders."""
    paint(tmp_path, {"owls": 3})
    (tmp_path / "owls" / ".DS_Store").write_bytes(b"hidden")
    return tmp_path / "owls"


def filenames(command_line: CommandLine, name: str) -> list[str]:
    own_id = command_line.learner.classes()[name]["id"]
    return [shot["filename"] for shot in command_line.learner.get(f"/classes/{own_id}/shots")["items"]]


def test_a_folder_of_images_becomes_a_class(command_line: CommandLine, owls: Path) -> None:
    """The answer says which version knows it and which session refines it."""
    done = command_line("teach", "owl", owls)

    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("'owl' taught with 3 images; version 1 knows it, session ")
    assert filenames(command_line, "owl") == ["0.png", "1.png", "2.png"]


def test_a_class_that_exists_gets_more_shots_only_if_asked(command_line: CommandLine, owls: Path) -> None:
    """Without --add it says so and changes nothing; with it, only new images are sent."""
    command_line("teach", "owl", owls / "0.png", owls / "1.png")

    refused = command_line("teach", "owl", owls)
    unchanged = command_line.kinds()
    added = command_line("teach", "owl", owls, "--add")

    assert refused.exit_code == 1
    assert refused.stderr == "error: 'owl' exists and has 2 of these 3 images; --add adds the rest\n"
    assert unchanged == ["base", "provisional"]
    assert added.exit_code == 0
    assert "'owl' has 1 more image, 3 in all" in added.stdout
    assert filenames(command_line, "owl") == ["0.png", "1.png", "2.png"]


def test_other_images_of_a_class_that_exists_are_not_taught_by_mistake(command_line: CommandLine, owls: Path) -> None:
    """Somebody else's class may have the same name."""
    command_line("teach", "owl", owls / "0.png")

    refused = command_line("teach", "owl", owls / "1.png")

    assert refused.exit_code == 1
    assert refused.stderr == "error: 'owl' exists and has 1 other shot; --add adds the rest\n"


def test_the_same_command_again_changes_nothing(command_line: CommandLine, owls: Path) -> None:
    """That the class is as it should be is success."""
    command_line("teach", "owl", owls)

    again = command_line("teach", "owl", owls)

    assert again.exit_code == 0
    assert again.stdout == "'owl' has these 3 images already\n"
    assert command_line.kinds() == ["base", "provisional"]


def test_a_class_that_was_deleted_or_renamed_is_taught_again(command_line: CommandLine, owls: Path) -> None:
    """The service remembers its answers for a day, but an answer about what is gone is of no use."""
    command_line("teach", "owl", owls)
    command_line.learner.delete(command_line.learner.classes()["owl"]["id"])
    after_deleting = command_line("teach", "owl", owls)
    command_line.learner.rename(command_line.learner.classes()["owl"]["id"], "barn owl")
    after_renaming = command_line("teach", "owl", owls)

    assert [done.exit_code for done in (after_deleting, after_renaming)] == [0, 0]
    assert filenames(command_line, "owl") == filenames(command_line, "barn owl") == ["0.png", "1.png", "2.png"]


def test_shots_that_were_deleted_are_added_again(command_line: CommandLine, owls: Path) -> None:
    """For the same reason."""
    command_line("teach", "owl", owls / "0.png")
    command_line("teach", "owl", owls, "--add")
    own_id = command_line.learner.classes()["owl"]["id"]
    for shot in command_line.learner.get(f"/classes/{own_id}/shots")["items"][1:]:
        command_line.learner.ask("DELETE", f"/classes/{own_id}/shots/{shot['id']}")
    assert filenames(command_line, "owl") == ["0.png"]

    done = command_line("teach", "owl", owls, "--add")

    assert "'owl' has 2 more images, 3 in all" in done.stdout
    assert filenames(command_line, "owl") == ["0.png", "1.png", "2.png"]


def test_images_that_cannot_be_used_are_named_and_the_others_taught(command_line: CommandLine, owls: Path) -> None:
    """Those that the service refuses, and those that are not even sent."""
    (owls / "broken.jpg").write_bytes(b"not an image")
    (owls / "empty.png").touch()
    (owls / "notes.txt").write_text("seen at dusk")

    done = command_line("teach", "owl", owls)

    assert done.exit_code == 3
    assert "'owl' taught with 3 images" in done.stdout
    assert "2 images refused:" in done.stdout
    assert f"  {owls / 'empty.png'}: the file is empty\n" in done.stdout
    assert f"  {owls / 'broken.jpg'}: " in done.stdout
    assert "1 file left out: not images by their names" in done.stdout


def test_nothing_is_taught_if_no_image_can_be_used(command_line: CommandLine, tmp_path: Path) -> None:
    """Each is named all the same."""
    (tmp_path / "broken.jpg").write_bytes(b"not an image")

    done = command_line("teach", "owl", tmp_path / "broken.jpg")

    assert done.exit_code == 1
    assert "broken.jpg" in done.stdout
    assert done.stderr == "error: 'owl' cannot be taught: none of its images can be used\n"
    assert command_line.learner.classes() == {}


def test_wait_tells_how_the_session_ended(command_line: CommandLine, owls: Path) -> None:
    """With the version that it made, and the gate's verdict."""
    with command_line.worker():
        done = command_line("teach", "owl", owls, "--wait")

    assert done.exit_code == 0, done.output
    assert "made version 2, which was promoted" in done.stdout


def test_to_wait_may_have_an_end(command_line: CommandLine, owls: Path) -> None:
    """What was taught is said all the same, and the same command goes on waiting."""
    late = command_line("teach", "owl", owls, "--timeout", "0.1")
    with command_line.worker():
        done = command_line("teach", "owl", owls, "--wait")

    assert late.exit_code == 1
    assert late.stdout.startswith("'owl' taught with 3 images")
    assert re.match(r"error: session \d+ is still queued", late.stderr)
    assert "made version 2, which was promoted" in done.stdout


def test_programs_get_json(command_line: CommandLine, owls: Path) -> None:
    """One document, with what was refused."""
    (owls / "empty.png").touch()

    (only,) = command_line.json("teach", "owl", owls)["classes"]

    assert (only["name"], only["state"], only["images"], only["version"]) == ("owl", "taught", 3, 1)
    assert only["refused"] == [{"image": str(owls / "empty.png"), "reason": "the file is empty"}]


def test_a_name_with_blanks_around_it_is_the_same_name(command_line: CommandLine, tmp_path: Path) -> None:
    """As the service stores it: trimmed and composed."""
    image = tmp_path / "1.png"
    image.write_bytes(picture("owl", 1))
    command_line("teach", "Eul\u00eb", image)

    again = command_line("teach", " Eule\u0308 ", image)

    assert again.exit_code == 0
    assert "already" in again.stdout


@pytest.mark.parametrize(
    "arguments",
    [["teach"], ["teach", "owl"], ["teach", "owl", "nowhere.jpg"], ["teach", "owl", "--folders", "."]],
    ids=" ".join,
)
def test_wrong_use_is_exit_code_2(arguments: list[str]) -> None:
    """Before anything is sent."""
    done = run_pq(*arguments, "--url", "http://127.0.0.1:1")

    assert done.exit_code == 2
    assert "Usage: pq teach" in done.stderr


def test_a_folder_without_images_is_wrong_use(tmp_path: Path) -> None:
    """Which folder it is, is said."""
    done = run_pq("teach", "owl", tmp_path)

    assert done.exit_code == 2
    assert done.stderr == f"error: there are no images in {tmp_path}\n"
