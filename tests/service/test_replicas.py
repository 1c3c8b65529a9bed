"""Two replicas over one database: what happens on one is so on the other after a look."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from store import api_keys, catalogue
from store.database import Database
from tests.service.conftest import Learner, Service, running_service

Until = Callable[[Callable[[], Any], str], None]
Pair = tuple[Any, Any]


@pytest.fixture(scope="module")
def _replicas() -> Iterator[Callable[[Service], Service]]:
    """A second replica beside each service that all tests share."""
    running: dict[str, Service] = {}
    with ExitStack() as stack:

        def found(first: Service) -> Service:
            if first.url not in running:
                own = Database(first.database.url)
                stack.callback(own.close)
                running[first.url] = stack.enter_context(running_service(own, first.settings.home))
            return running[first.url]

        yield found


@pytest.fixture
def pair(learner: Learner, _replicas: Callable[[Service], Service]) -> Pair:
    """A model of this test's own, as each of two replicas knows it."""
    return learner, _replicas(learner.service).learner(learner.name)


@pytest.fixture
def own_pair(start: Callable[..., Any]) -> Pair:
    """The default model, as each of two replicas knows it that no other test uses."""
    return start().learner(), start(replica=True).learner()


def test_a_class_taught_on_one_is_served_by_the_other(pair: Pair, until: Until) -> None:
    """With the same answers."""
    here, there = pair

    here.taught("red", "green")

    until(lambda: there.labels("red", "green") == ["red", "green"], "the other replica knows both")
    looks = ("red", "green", "blue")
    assert there.predict_one_by_one(*looks) == here.predict_one_by_one(*looks)


def test_a_rename_on_one_is_heard_by_the_other(pair: Pair, until: Until) -> None:
    """No version is made for it, and it is noticed all the same."""
    here, there = pair
    (red,) = here.taught("red")
    until(lambda: there.labels("red") == ["red"], "the other replica knows it")

    here.rename(red["id"], "scarlet")

    until(lambda: there.labels("red") == ["scarlet"], "the other replica knows the new name")
    assert there.predict("red")["version"] == 1


def test_a_class_deleted_on_one_is_gone_from_the_other(pair: Pair, until: Until) -> None:
    """As is its place among the nearest."""
    here, there = pair
    red, _ = here.taught("red", "green")
    until(lambda: there.labels("red") == ["red"], "the other replica knows it")

    here.delete(red["id"])

    until(
        lambda: [one["label"] for one in there.predict("red")["predictions"][0]["top"]] == ["green"],
        "the other replica has dropped it",
    )


def test_an_activation_on_one_holds_on_the_other(pair: Pair, until: Until) -> None:
    """Back and forward, also over a version with other weights."""
    here, there = pair
    here.taught("red", "green", "blue")
    before = here.predict_one_by_one("red", "stripes")
    here.refine()
    after = here.predict_one_by_one("red", "stripes")
    until(lambda: there.predict_one_by_one("red", "stripes") == after, "the other replica serves the refined version")

    here.activate(before["version"])

    until(lambda: there.predict_one_by_one("red", "stripes") == before, "the other replica has rolled back")
    there.activate(after["version"])
    until(lambda: here.predict_one_by_one("red", "stripes") == after, "the first replica has rolled forward")


def test_a_model_made_on_one_is_there_on_the_other_and_so_is_its_end(pair: Pair, until: Until) -> None:
    """Models are looked up when they are asked for, and dropped after a look."""
    here, there = pair
    here.service.http.post("/models", json={"name": "birds"})
    birds = there.service.learner("birds")
    assert birds.teach("red").status_code == 202

    here.service.http.delete("/models/birds")

    until(lambda: birds.ask("GET", "/versions").status_code == 404, "the other replica knows of the deletion")
    until(
        lambda: not [s for s in there.service.context.versions.all_active() if s.model == "birds"], "it is not served"
    )


def test_two_replicas_teach_one_model_at_the_same_time(pair: Pair, until: Until) -> None:
    """Each writes on top of what the other wrote: no class, no number and no version is lost or given twice."""
    looks = ["red", "green", "blue", "yellow", "violet", "orange"]

    def teach(number: int) -> Any:
        return pair[number % 2].teach(looks[number // 2], name=f"{looks[number // 2]} {number % 2}")

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(teach, range(12)))

    assert {answer.status_code for answer in answers} == {202}
    assert sorted(answer.json()["class"]["id"] for answer in answers) == list(range(1, 13))
    assert sorted(answer.json()["version"] for answer in answers) == list(range(1, 13))
    for one in pair:
        until(lambda one=one: one.predict("red")["version"] == 12, "both serve the last version")
    assert pair[0].predict("red", top_k=100) == pair[1].predict("red", top_k=100)
    assert len(pair[0].predict("red", top_k=100)["predictions"][0]["top"]) == 12


def test_one_name_taught_on_both_at_the_same_time_is_one_class(pair: Pair) -> None:
    """One of them is told that the name is taken."""
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda one: one.teach("red"), pair))

    assert sorted(answer.status_code for answer in answers) == [202, 409]
    assert len(pair[0].get("/classes")["items"]) == 1


def test_one_key_used_on_both_at_the_same_time_is_one_class(pair: Pair) -> None:
    """Whichever comes second gets the first one's answer, or is told to come back."""
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda one: one.teach("red", Idempotency_Key="a"), pair))

    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json() == answers[1].json()


def test_a_model_that_cannot_be_loaded_holds_up_neither_others_nor_keys(
    own_pair: Pair, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One replica fails to load a version, without saying why: it goes on with the rest, and serves what it had."""
    here, there = own_pair
    here.service.http.post("/models", json={"name": "birds"})
    birds, same_birds = (one.service.learner("birds") for one in own_pair)
    before = there.predict("red"), same_birds.predict("red")
    source: Any = there.service.context.versions.source
    plain = source.load_head

    def load_head(model: str, *arguments: Any) -> Any:
        if model == "default":
            raise RuntimeError
        return plain(model, *arguments)

    monkeypatch.setattr(source, "load_head", load_head)
    here.taught("red")
    birds.taught("red")

    until(lambda: same_birds.labels("red") == ["red"], "the other model is served")
    assert before[1]["version"] == 0
    assert there.predict("red") == before[0]
    with here.service.database.write() as db:
        key = api_keys.create(db, "late", ["predict"])
    until(lambda: there.ask("GET", "/classes").status_code == 401, "a key is needed")
    assert there.ask("GET", "/classes", headers={"Authorization": f"Bearer {key}"}).status_code == 200


def test_replicas_that_start_at_once_on_a_new_database_all_start(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has looked before another made the default model, and finds the name taken when it makes its own."""
    start()
    truth, too_early = catalogue.find, iter([None])
    monkeypatch.setattr(catalogue, "find", lambda *asked: next(too_early, truth(*asked)))
    there = start(replica=True)

    assert [model["name"] for model in there.http.get("/models").json()["items"]] == ["default"]
