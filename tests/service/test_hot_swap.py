"""Versions are swapped under load: no request fails, each is answered by one version whole, and nothing piles up."""

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from engine.network import Network
from tests.waiting import until

Draw = Callable[..., bytes]
CONNECTIONS = 3
SWAPS = 50
CHANGES = 15


class Traffic:
    """Predictions without a pause on several connections, and every answer they got."""

    def __init__(self, learner: Any, image: bytes) -> None:
        self.url = f"{learner.service.url}{learner.prefix}/predict"
        self.image = image
        self.answers: list[httpx.Response] = []
        self.enough = threading.Event()

    @contextmanager
    def flowing(self) -> Iterator[None]:
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            callers = [pool.submit(self._call) for _ in range(CONNECTIONS)]
            try:
                yield
            finally:
                self.enough.set()
        _raise_first(callers)

    def _call(self) -> None:
        with httpx.Client(timeout=60, verify=False) as http:
            while not self.enough.is_set():
                self.answers.append(http.post(self.url, files={"images": self.image}))

    def answered(self) -> list[tuple[int, str, float]]:
        """Version, label and distance of every answer."""
        bodies = [answer.json() for answer in self.answers]
        nearest = [body["predictions"][0]["top"][0] for body in bodies]
        return [(body["version"], one["label"], one["distance"]) for body, one in zip(bodies, nearest, strict=True)]


def _raise_first(callers: list[Future[None]]) -> None:
    for caller in callers:
        caller.result()


@pytest.fixture
def versions(learner: Any) -> dict[int, tuple[str, float]]:
    """Two refined versions with other weights, which call the same image by other names: label and distance."""
    expected = {}
    for name in ("apple", "brick"):
        learner.activate(0)
        assert learner.teach("red", name=name).status_code == 202
        for look in ("green", "blue"):
            assert learner.teach(look, name=f"{look} of {name}").status_code == 202
        session = learner.refine()
        (nearest,) = learner.predict("red", top_k=1)["predictions"][0]["top"]
        expected[session["version"]] = (nearest["label"], nearest["distance"])
    return expected


def networks_in_memory() -> int:
    gc.collect()
    return sum(type(one) is Network for one in gc.get_objects())


def test_versions_are_swapped_under_load(
    learner: Any, versions: dict[int, tuple[str, float]], draw: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty swaps between two networks while connections predict: every answer fits the version that it names."""
    monkeypatch.setattr(
        learner.service.context.versions.source.networks, "keep", 1
    )  # each swap compiles its network anew
    traffic = Traffic(learner, draw("red"))
    before = networks_in_memory()

    with traffic.flowing():
        for swap in range(SWAPS):
            learner.activate(list(versions)[swap % 2])

    assert {answer.status_code for answer in traffic.answers} == {200}
    assert {number for number, _, _ in traffic.answered()} == set(versions)
    for number, label, distance in traffic.answered():
        assert (label, distance) == (versions[number][0], pytest.approx(versions[number][1], abs=1e-5))
    assert len(traffic.answers) > SWAPS // 2  # a busy machine swaps faster than it answers
    until(lambda: networks_in_memory() <= before + 1, "the networks of earlier swaps are freed")


def test_a_model_is_taught_and_deleted_from_under_load(learner: Any, draw: Draw) -> None:
    """Versions come and go by teaching and deleting: an answer knows just the classes of its version."""
    (red,) = learner.taught("red")
    alone, known = learner.version, {}
    traffic = Traffic(learner, draw("red"))

    with traffic.flowing():
        for swap in range(CHANGES):
            taught = learner.teach("green", name=f"green {swap}").json()
            known[taught["version"]] = {"red", f"green {swap}"}
            learner.delete(taught["class"]["id"])

    assert {answer.status_code for answer in traffic.answers} == {200}
    for body in (answer.json() for answer in traffic.answers):
        labels = {one["label"] for one in body["predictions"][0]["top"]}
        assert labels == known.get(body["version"], {"red"})
        assert body["predictions"][0]["class_id"] == red["id"]
    assert max(answer.json()["version"] for answer in traffic.answers) > alone
    assert learner.version == alone + 2 * CHANGES
