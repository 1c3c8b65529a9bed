"""Archives over HTTP: a model comes back as it was, and a file that is no archive changes nothing."""

import errno
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.archives import write_without_room

Draw = Callable[..., bytes]
TYPE = {"Content-Type": "application/octet-stream"}


@pytest.fixture
def name(service: Any) -> Iterator[str]:
    """For a model that is made in a test."""
    yield "imported"
    service.http.delete("/models/imported")


def imported(service: Any, data: bytes, **params: str) -> httpx.Response:
    answer: httpx.Response = service.http.post("/models/import", content=data, headers=TYPE, params=params)
    return answer


def test_a_model_comes_back_as_it_was(learner: Any, name: str) -> None:
    """It answers the same, under another name; nothing is left in the home folder."""
    service = learner.service
    learner.taught("red", "green")
    archive = service.http.get(f"{learner.prefix}/export")

    answer = imported(service, archive.content, name=name)

    assert archive.headers["content-disposition"] == f'attachment; filename="{learner.name}.pq"'
    assert (answer.status_code, answer.headers["location"]) == (201, "/models/imported")
    assert answer.json() | {"name": name, "version": 2, "classes": 2} == answer.json()
    copy = service.learner(name)
    assert copy.predict("red", "green")["predictions"] == learner.predict("red", "green")["predictions"]
    assert [one["filename"] for one in copy.get("/classes/1/shots")["items"]] == ["red-0.png", "red-1.png", "red-2.png"]
    assert list(service.settings.home.glob(".protoquad-*")) == []


def test_a_name_that_is_taken_is_refused(learner: Any) -> None:
    """Also the archive's own; nothing changes."""
    learner.taught("red")
    archive = learner.service.http.get(f"{learner.prefix}/export").content

    answers = [imported(learner.service, archive), imported(learner.service, archive, name="default")]

    assert {(one.status_code, one.json()["type"]) for one in answers} == {(409, "/problems/name-taken")}
    assert learner.version == 1


@pytest.mark.parametrize("spoil", [lambda _: b"no archive", lambda _: b"", lambda data: data[: len(data) // 2]])
def test_what_is_no_archive_is_refused(learner: Any, name: str, spoil: Callable[[bytes], bytes]) -> None:
    """Without a word about where it was stored."""
    learner.taught("red")
    archive = learner.service.http.get(f"{learner.prefix}/export").content

    answer = imported(learner.service, spoil(archive), name=name)

    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/invalid-archive")
    assert str(learner.service.settings.home) not in answer.text
    assert learner.service.http.get(f"/models/{name}").status_code == 404
    assert list(learner.service.settings.home.glob(".protoquad-*")) == []


def test_an_archive_is_bounded_and_has_a_type(start: Any) -> None:
    """As every body."""
    service = start(max_request_bytes=10_000)

    large = imported(service, bytes(20_000))
    typed = service.http.post("/models/import", content=b"x", headers={"Content-Type": "text/plain"})

    assert (large.status_code, typed.status_code) == (413, 415)


def test_one_archive_at_a_time(service: Any) -> None:
    """Another is told to come back."""
    with service.context.archives.take():
        answers = [service.http.get("/models/default/export"), imported(service, b"x")]

    assert {(one.status_code, one.json()["type"]) for one in answers} == {(503, "/problems/busy")}
    assert all("retry-after" in one.headers for one in answers)


def test_a_model_that_does_not_exist_is_not_exported(service: Any) -> None:
    """As any other question about it."""
    assert service.http.get("/models/nowhere/export").status_code == 404


def test_an_export_that_has_no_room_is_told_so(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not an error of the service: somebody makes room, and asks again."""
    with monkeypatch.context() as patch:
        patch.setattr("store.archive.seal", write_without_room)
        answer = service.http.get("/models/default/export")

    assert (answer.status_code, answer.json()["type"]) == (507, "/problems/insufficient-storage")
    assert list(service.settings.home.glob(".protoquad-*")) == []
    assert service.http.get("/models/default/export").status_code == 200


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_an_import_that_has_no_room_is_told_so(service: Any, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """A full disk, a quota that is used up, and a file that may grow no larger."""

    async def full(*_: object) -> None:
        raise OSError(number, "no room")

    monkeypatch.setattr("service.routes.archives.spool", full)

    answer = imported(service, b"x", name="imported")

    assert (answer.status_code, answer.json()["type"]) == (507, "/problems/insufficient-storage")
    assert list(service.settings.home.glob(".protoquad-*")) == []
