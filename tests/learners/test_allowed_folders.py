"""A base session learns only from folders that the operator has allowed."""

from pathlib import Path

import pytest

from learners.allowed_folders import read_allowed
from learners.base_folder import FolderError
from store.settings import Settings
from tests.painted import paint


def settings(*roots: Path) -> Settings:
    return Settings(base_folders=":".join(map(str, roots)))


@pytest.fixture
def allowed(tmp_path: Path) -> Path:
    paint(tmp_path / "allowed" / "birds", {"red": 2, "blue": 2})
    paint(tmp_path / "secret", {"red": 2})
    return tmp_path / "allowed"


def test_a_folder_inside_an_allowed_one_is_read(allowed: Path, tmp_path: Path) -> None:
    """Also by a link that leads there."""
    (tmp_path / "link").symlink_to(allowed)

    for folder in (allowed / "birds", tmp_path / "link" / "birds", allowed / "birds" / ".." / "birds"):
        found = read_allowed(str(folder), settings(tmp_path / "other", allowed))

        assert [one.name for one in found] == ["blue", "red"]


def test_without_an_allowed_folder_none_is_read(allowed: Path) -> None:
    """That is the default."""
    with pytest.raises(FolderError, match=r"no folder of this machine may be learned from; .*PROTOQUAD_BASE_FOLDERS"):
        read_allowed(str(allowed / "birds"), Settings())


@pytest.mark.parametrize("path", ["secret", "allowed/../secret", "allowed/nowhere/../../secret", "nowhere"])
def test_a_folder_elsewhere_is_refused(allowed: Path, tmp_path: Path, path: str) -> None:
    """In the same words, whether it exists or not."""
    with pytest.raises(FolderError, match=r"is not inside an allowed folder .*; to allow it, list it in PROTO"):
        read_allowed(f"{tmp_path}/{path}", settings(allowed))


def test_links_out_of_an_allowed_folder_are_refused(allowed: Path, tmp_path: Path) -> None:
    """Of the folder itself, of a class and of an image."""
    (allowed / "link").symlink_to(tmp_path / "secret")
    (allowed / "classes" / "blue").mkdir(parents=True)
    (allowed / "classes" / "red").symlink_to(tmp_path / "secret" / "red")
    paint(allowed / "images", {"red": 2})
    (allowed / "images" / "red" / "more.png").symlink_to(tmp_path / "secret" / "red" / "0.png")
    paint(allowed / "classes", {"blue": 2})

    for name in ("link", "classes", "images"):
        with pytest.raises(FolderError, match="is not inside an allowed folder"):
            read_allowed(str(allowed / name), settings(allowed))


def test_what_cannot_be_read_or_followed_is_a_sentence(allowed: Path) -> None:
    """Links in a circle, characters that no file can have, a name that is too long."""
    (allowed / "circle").symlink_to(allowed / "circle")

    with pytest.raises(FolderError, match=r"cannot be followed|does not exist|is a file"):
        read_allowed(str(allowed / "circle"), settings(allowed))
    with pytest.raises(FolderError, match="cannot be followed to a file or folder"):
        read_allowed(f"{allowed}/\ud800", settings(allowed))
    with pytest.raises(FolderError, match=r"cannot be (followed|read)"):
        read_allowed(f"{allowed}/{'x' * 300}", settings(allowed))


@pytest.mark.parametrize("path", ["birds", "", "~/birds", "/birds\0"])
def test_a_path_must_begin_at_the_root(allowed: Path, path: str) -> None:
    """There is no folder that it could be relative to."""
    with pytest.raises(FolderError, match="is not an absolute path"):
        read_allowed(path, settings(allowed))


def test_a_setting_that_is_no_list_of_absolute_paths_is_refused() -> None:
    """When the service starts."""
    with pytest.raises(ValueError, match="birds is not an absolute path"):
        Settings(base_folders="/data:birds")


def test_empty_parts_of_the_setting_do_not_count() -> None:
    """They would allow the folder in which the service was started."""
    assert Settings(base_folders=":/data::").base_roots == (Path("/data"),)
