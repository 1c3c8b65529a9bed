"""Loading never blocks what is loaded: pinned versions and slow backbones cost nobody else anything."""

import asyncio
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from anyio.to_thread import run_sync

from engine.preparation import prepare
from engine.single_flight import Busy
from engine.version_cache import PINNED
from learners import version_loader
from service.app import create_app
from service.server import SECONDS_TO_FINISH
from store.database import Database
from store.settings import Settings
from tests import processes
from tests.slow_preparing import SlowCommand, runs
from tests.waiting import until

Draw = Callable[..., bytes]
VERSIONS = 12
CALLERS = 50
NAMES = 5  # that they ask for, where each makes a model
LOOKS = ("red", "green", "blue", "yellow", "violet", "orange")
BACKBONE = "timm:slow"


def seconds_of(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


@contextmanager
def at_work(work: Callable[[int], object], callers: int) -> Iterator[list[Future[Any]]]:
    """So many threads that do this again and again; an error of any of them is the test's."""
    enough = threading.Event()

    def go_on(number: int) -> int:
        times = 0
        while not enough.is_set():
            work(number + times)
            times += 1
        return times

    with ThreadPoolExecutor(callers) as pool:
        running = [pool.submit(go_on, number) for number in range(callers)]
        try:
            yield running
        finally:
            enough.set()
    for caller in running:
        caller.result()


# Pinned versions


@pytest.fixture
def pinnable(learner: Any) -> list[int]:
    """Twelve versions, each with one class more or less than the one before."""
    numbers = []
    for number in range(VERSIONS // 2):
        (made,) = learner.taught(LOOKS[number])
        numbers.append(learner.version)
        learner.teach(LOOKS[number], name=f"another {number}")
        numbers.append(learner.version)
        if number % 2:
            learner.delete(made["id"])
    return numbers[:VERSIONS]


def at(version_cache: Any, model: str, number: int) -> Any:
    """A version by its number, loaded if it is not in memory."""
    return version_cache.ready(model, number) or version_cache.start_loading(model, number).result()


def test_fifty_callers_of_twelve_versions_get_no_error_and_teaching_goes_on(
    learner: Any, pinnable: list[int], draw: Draw
) -> None:
    """Over HTTP: every answer is of the version that was asked for, while classes are taught."""
    picture = draw("red")
    taught = iter(range(10_000))

    def ask(number: int) -> None:
        version = pinnable[number % VERSIONS]
        answer = learner.post(f"/predict?version={version}", files={"images": picture})
        assert (answer.status_code, answer.json().get("version")) == (200, version), answer.text

    def teach() -> None:
        assert learner.teach("cyan", name=f"cyan {next(taught)}").status_code == 202

    with at_work(ask, CALLERS) as callers:
        for _ in range(5):
            teach()
        until(lambda: learner.predict("red")["version"] == learner.version, "the active version answers")

    assert sum(caller.result() for caller in callers) > 2 * VERSIONS


def test_fifty_threads_on_twelve_versions_load_one_at_a_time(
    learner: Any, pinnable: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No error, no more than four kept, and never two loads at once, while versions are taught and activated."""
    version_cache = learner.service.context.versions
    source = version_cache.source
    plain, running, most = source.load, [], []

    def pin(*arguments: Any) -> Any:
        running.append(1)
        most.append(len(running))
        try:
            return plain(*arguments)
        finally:
            running.pop()

    monkeypatch.setattr(source, "load", pin)

    def ask(number: int) -> None:
        version = pinnable[number % VERSIONS]
        assert at(version_cache, learner.name, version).number == version

    with at_work(ask, CALLERS):
        learner.taught("cyan")
        assert learner.activate(pinnable[0])["number"] == pinnable[0]
        assert learner.predict("red")["version"] == pinnable[0]
        until(lambda: len(most) > VERSIONS, "versions are loaded again and again")

    assert set(most) == {1}
    assert len(version_cache.pinned) <= PINNED


def test_fifty_callers_of_one_version_load_it_once(
    learner: Any, pinnable: list[int], draw: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it takes: nobody is refused, and no thread of the service waits with them."""
    version_cache, picture = learner.service.context.versions, draw("red")
    plain, loads, go_on = version_cache.source.load, [], threading.Event()

    def pin(*arguments: Any) -> Any:
        loads.append(arguments)
        assert go_on.wait(60)
        return plain(*arguments)

    monkeypatch.setattr(version_cache.source, "load", pin)

    url = f"{learner.service.url}{learner.prefix}/predict?version={pinnable[0]}"
    with ThreadPoolExecutor(CALLERS) as pool:
        answers = pool.map(
            lambda _: httpx.post(url, files={"images": picture}, timeout=60, verify=False), range(CALLERS)
        )
        until(lambda: loads, "it loads")
        learner.taught("cyan")  # in threads that all routes share
        assert len(learner.get("/classes")["items"]) > 1
        assert learner.predict("red")["version"] == learner.version
        go_on.set()

    assert {answer.status_code for answer in answers} == {200}
    assert len(loads) == 1


def test_too_many_versions_at_once_are_refused_for_a_moment(
    learner: Any, pinnable: list[int], draw: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """503 with Retry-After; the active version goes on answering."""
    version_cache, go_on = learner.service.context.versions, threading.Event()
    plain = version_cache.source.load
    monkeypatch.setattr(version_cache.pinned.loads, "most", 2)
    monkeypatch.setattr(version_cache.source, "load", lambda *asked: go_on.wait(60) and plain(*asked))
    waiting = [version_cache.start_loading(learner.name, number) for number in pinnable[:2]]

    refused = learner.post(f"/predict?version={pinnable[2]}", files={"images": draw("red")})
    active = learner.predict("red")

    go_on.set()
    assert (refused.status_code, refused.json()["type"]) == (503, "/problems/busy")
    assert int(refused.headers["retry-after"]) > 0
    assert active["version"] == learner.version
    assert [one.result(60).number for one in waiting] == pinnable[:2]


def test_numbers_that_are_not_served_load_nothing(
    learner: Any, pinnable: list[int], draw: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are refused by a look into the table, also while as much loads as may."""
    version_cache = learner.service.context.versions
    monkeypatch.setattr(version_cache.pinned.loads, "most", 0)

    for number in (pinnable[-1] + 100, 2**31 - 1):
        assert learner.post(f"/predict?version={number}", files={"images": draw("red")}).status_code == 404
    assert learner.post(f"/predict?version={pinnable[0]}", files={"images": draw("red")}).status_code == 503


def test_the_bound_on_classes_counts_what_is_still_predicted_with(
    learner: Any, pinnable: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version in use is not freed under its caller; until it is done there is no room for another large one."""
    version_cache = learner.service.context.versions
    counts = {number: learner.get(f"/versions/{number}")["classes"] for number in pinnable}
    first, second = sorted(pinnable, key=lambda number: counts[number])[-2:]
    monkeypatch.setattr(version_cache.pinned, "max_classes", counts[second])
    version_cache.pinned.keep_only([])
    until(lambda: version_cache.pinned.classes_in_memory == 0, "nothing is pinned")
    mine = at(version_cache, learner.name, first)

    with pytest.raises(Busy, match=f"pinned versions with {counts[first]} classes"):
        at(version_cache, learner.name, second)

    assert len(mine.classifier) == counts[first] == version_cache.pinned.classes_in_memory
    del mine
    assert at(version_cache, learner.name, second).number == second
    assert version_cache.pinned.classes_in_memory == counts[second]


def test_pinned_versions_and_networks_of_a_deleted_model_are_dropped(service: Any) -> None:
    service.http.post("/models", json={"name": "birds"})
    birds, version_cache = service.learner("birds"), service.context.versions
    birds.taught("red")
    birds.predict("red", version=0)
    model_id = version_cache.active("birds").model_id

    service.http.delete("/models/birds")

    assert "birds" not in [version.model for version in version_cache.all_active()]
    assert version_cache.pinned.get((model_id, 0)) is None
    assert version_cache.source.networks.get((model_id, 0)) is None


def test_a_model_can_be_deleted_while_another_cannot_be_loaded(
    learner: Any, service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is about the model that was deleted, not about the other one's trouble."""
    service.http.post("/models", json={"name": "birds"})
    version_cache = service.context.versions
    current = version_cache.active(learner.name)
    monkeypatch.setitem(version_cache._active, learner.name, replace(current, renames=current.renames - 1))
    monkeypatch.setattr(version_cache.source, "load_head", lambda *_: 1 / 0)

    assert service.http.delete("/models/birds").status_code == 204


def test_callers_of_a_model_that_is_not_loaded_leave_threads_to_others(
    learner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty wait for it or are told to come back; the other models are taught and listed meanwhile."""
    learner.taught("red")
    service, version_cache = learner.service, learner.service.context.versions
    del version_cache._active[learner.name]
    plain, loads, go_on = version_cache.source.load_head, [], threading.Event()

    def load_head(model: str, *arguments: Any) -> Any:
        if model == learner.name:
            loads.append(model)
            assert go_on.wait(60)
        return plain(model, *arguments)

    monkeypatch.setattr(version_cache.source, "load_head", load_head)
    url = f"{service.url}{learner.prefix}/classes"
    with ThreadPoolExecutor(CALLERS) as pool:
        answers = pool.map(lambda _: httpx.get(url, timeout=60, verify=False), range(CALLERS))
        until(lambda: loads, "it loads")
        default = service.learner()
        (made,) = default.taught("red")
        default.delete(made["id"])
        assert default.predict("red")["version"] == default.version
        go_on.set()

    statuses = [answer.status_code for answer in answers]
    assert set(statuses) == {200, 503}
    assert len(loads) == 1


# Backbones that have to be prepared


@pytest.fixture
def slow(
    prepared_backbones: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> SlowCommand:
    """Any other backbone than ResNet-32 is one that takes until it is let go."""
    prepare("resnet32", prepared_backbones)
    (ready,) = prepared_backbones.glob("resnet32-*/")
    return SlowCommand(tmp_path_factory.mktemp("notes"), ready, monkeypatch)


@pytest.fixture
def served(start: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory, slow: SlowCommand) -> Any:
    """The service on OpenVINO, with a cache of its own that has ResNet-32."""
    cache = tmp_path_factory.mktemp("cache")
    (cache / slow.ready.name).symlink_to(slow.ready)
    return start(engine="openvino", cache=cache)


def make(service: Any, name: str, backbone: str = BACKBONE) -> httpx.Response:
    return httpx.post(f"{service.url}/models", json={"name": name, "backbone": backbone}, timeout=120, verify=False)


def test_while_a_backbone_is_prepared_everything_else_goes_on(served: Any, slow: SlowCommand) -> None:
    """Fifty callers wait for one preparation; others teach, predict, pin, activate and make models meanwhile."""
    learner = served.learner()
    with ThreadPoolExecutor(CALLERS) as pool:
        waiting = [pool.submit(make, served, f"slow-{number % NAMES}") for number in range(CALLERS)]
        slow.wait_until_started()

        learner.taught("red", "green")
        assert learner.labels("red") == ["red"]
        assert learner.predict("red", version=1)["version"] == 1
        assert learner.activate(1)["number"] == 1
        assert set(learner.classes()) == {"red", "green"}
        assert make(served, "quick", "resnet32").status_code == 201
        assert served.learner("quick").taught("blue")
        refused = make(served, "third", "timm:another")
        assert not [one for one in waiting if one.done()]
        slow.end()

    assert (refused.status_code, refused.json()["type"]) == (503, "/problems/busy")
    assert int(refused.headers["retry-after"]) > 0
    statuses = sorted(one.result().status_code for one in waiting)
    assert statuses == [201] * NAMES + [409] * (CALLERS - NAMES)  # the first of each name has it
    assert [name for name, *_ in slow.started] == [BACKBONE]
    assert served.learner("slow-3").taught("red")


def test_a_caller_that_leaves_gets_no_model(served: Any, slow: SlowCommand) -> None:
    """The preparation goes on for whoever asks next; who left can make the model then, under the same name."""
    body = b'{"name": "birds", "backbone": "%s"}' % BACKBONE.encode()
    head = b"POST /models HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head % len(body) + body)
        slow.wait_until_started()

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(make, served, "other")
        slow.end()
        assert other.result().status_code == 201

    assert served.http.get("/models/birds").status_code == 404
    assert make(served, "birds").status_code == 201
    assert len(slow.started) == 1


def test_a_name_that_is_taken_prepares_nothing(served: Any, slow: SlowCommand) -> None:
    answer = make(served, "default")

    assert answer.status_code == 409
    assert not slow.started


def test_a_backbone_that_takes_too_long_is_refused_with_the_reason(
    served: Any, slow: SlowCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """422 names the setting; the process is gone, and the next caller hears the same without another one."""
    monkeypatch.setattr(served.context.backbones, "prepare_seconds", 1.0)

    answers = [make(served, "birds") for _ in range(3)]

    slow.wait_until_gone()
    assert [answer.status_code for answer in answers] == [422] * 3
    assert "PROTOQUAD_PREPARE_SECONDS" in answers[0].json()["detail"]
    assert len(slow.started) == 1


def test_a_model_whose_backbone_is_not_prepared_here_is_refused_until_it_is(
    served: Any, slow: SlowCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a second machine: nobody waits a minute, and the preparation goes on by itself."""
    monkeypatch.setattr(version_loader, "SECONDS_FOR_A_BACKBONE", 0.1)
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(make, served, "birds")
        slow.wait_until_started()
        slow.end()
        assert made.result().status_code == 201
    birds = served.learner("birds")
    backbones = served.context.backbones
    backbones._compiled.drop(lambda name: name == BACKBONE)
    for entry in backbones.folder.glob("timm-slow-*/"):
        entry.rename(entry.with_name("elsewhere"))
    (slow.notes / "end").unlink()

    refused = birds.teach("red")
    slow.end()

    assert (refused.status_code, refused.json()["type"]) == (503, "/problems/busy")
    until(lambda: birds.teach("red").status_code == 202, "it is prepared and can be taught")
    assert len(slow.started) == 2


def test_a_service_that_stops_kills_the_process_that_prepares(
    database: Database, prepared_backbones: Path, tmp_path: Path, slow: SlowCommand
) -> None:
    """And its children; whoever waited for it is told."""
    settings = Settings(backbone="resnet32", engine="openvino", cache=prepared_backbones, home=tmp_path)
    app = create_app(settings, database)

    async def live() -> "Future[Any]":
        async with app.router.lifespan_context(app):
            preparing: Future[Any] = app.state.context.backbones.load(BACKBONE)
            await run_sync(slow.wait_until_started)
        return preparing

    waiting = asyncio.run(live())

    with pytest.raises(Busy, match="stopping"):
        waiting.result(60)
    slow.wait_until_gone()


def test_a_service_that_is_told_to_stop_waits_for_no_preparation(prepared_backbones: Path, tmp_path: Path) -> None:
    """As a user runs it: the caller who waited is answered 503 at once, and no process is left."""
    prepare("resnet32", prepared_backbones)
    (ready,) = prepared_backbones.glob("resnet32-*/")
    shutil.copytree(ready, tmp_path / "cache" / ready.name)
    places = {"PROTOQUAD_HOME": str(tmp_path / "home"), "PROTOQUAD_CACHE": str(tmp_path / "cache")}
    running = processes.Service({**places, "PROTOQUAD_ENGINE": "openvino", "PROTOQUAD_WORKER": "false"})
    with closing(running), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(make, running, "birds", "efficientnet_lite0")
        own = psutil.Process(running.process.pid)
        until(own.children, "a process prepares the backbone")
        (child,) = own.children()

        seconds = seconds_of(running.stop)

        assert waiting.result().status_code == 503
        assert seconds < SECONDS_TO_FINISH
        until(lambda: not runs(child.pid), "the process is gone")
