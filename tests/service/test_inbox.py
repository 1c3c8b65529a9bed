"""The inbox: what predictions were unsure of is kept, if asked for, and becomes shots; never without bounds."""

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from PIL import Image

from service import capture
from store import catalogue

Draw = Callable[..., bytes]
Start = Callable[..., Any]
Until = Callable[[Callable[[], Any], str], None]


@pytest.fixture
def keeping(start: Start, until: Until) -> Callable[..., Any]:
    """A learner whose predictions are kept."""

    def started(mode: str = "all", **settings: Any) -> Any:
        learner = start(capture=mode, **settings).learner()
        learner.inbox_has = lambda number: until(
            lambda: learner.get("/inbox")["total"] == number, f"the inbox has {number} samples"
        )
        return learner

    return started


def samples(found: Any) -> list[int | None]:
    return [one["sample_id"] for one in found["predictions"]]


def test_nothing_is_kept_unless_asked_for(learner: Any) -> None:
    """The default: no sample, and an inbox that says why."""
    learner.taught("red")
    learner.predict("red", "stripes")

    assert learner.get("/inbox") == {"items": [], "next": None, "total": 0, "capture": "off"}


def test_every_image_is_kept_with_its_answer(keeping: Any, draw: Draw) -> None:
    """Under the id that the answer gave; its bytes can be looked at."""
    learner = keeping("all")
    learner.taught("red", "green")

    answer = learner.predict("red", "green")
    learner.inbox_has(2)

    found = {one["id"]: one for one in learner.get("/inbox")["items"]}
    first, second = (found[own] for own in samples(answer))
    assert [first["label"], second["label"]] == ["red", "green"]
    assert first["version"] == answer["version"]
    assert first["top"][0]["confidence"] == pytest.approx(answer["predictions"][0]["confidence"], abs=1e-5)
    image = learner.ask("GET", f"/inbox/{first['id']}/image")
    assert (image.content, image.headers["content-type"]) == (draw("red"), "image/png")
    small = learner.ask("GET", f"/inbox/{first['id']}/thumbnail")
    assert Image.open(io.BytesIO(small.content)).size == (40, 40)
    assert learner.get("/about")["capture"] == "all"


@pytest.mark.parametrize(("mode", "kept"), [("unknown", [False, True]), ("uncertain", [False, True])])
def test_only_what_was_asked_for_is_kept(keeping: Any, mode: str, kept: list[bool]) -> None:
    """The others have no sample id."""
    learner = keeping(mode)
    learner.taught("red", "green")
    learner.refine()

    answer = learner.predict("red", "stripes")

    assert [one["unknown"] for one in answer["predictions"]] == [False, True]
    assert [one is not None for one in samples(answer)] == kept


def test_another_version_s_answers_are_not_kept(keeping: Any) -> None:
    """Asking an old version is a question, not a use."""
    learner = keeping("all")
    learner.taught("red", "green")

    assert samples(learner.predict("red", version=1)) == [None]


def test_samples_become_shots(keeping: Any) -> None:
    """Of a class that exists: they leave the inbox in the same transaction, and the class waits for a session."""
    learner = keeping("all")
    red, _ = learner.taught("red", "green")
    kept = samples(learner.predict("red", "green"))
    learner.inbox_has(2)

    answer = learner.post("/inbox/resolve", json={"samples": kept[:1], "class_id": red["id"]})

    assert (answer.status_code, answer.json()["class"]["shots"]) == (202, 4)
    assert [one["id"] for one in learner.get("/inbox")["items"]] == kept[1:]
    assert learner.get(f"/classes/{red['id']}/shots")["total"] == 4
    assert learner.ask("GET", f"/inbox/{kept[0]}/image").status_code == 404
    again = learner.post("/inbox/resolve", json={"samples": kept[:1], "class_id": red["id"]})
    assert again.status_code == 404
    assert learner.get(f"/classes/{red['id']}/shots")["total"] == 4


def test_samples_become_a_class(keeping: Any) -> None:
    """It is served at once; a name that is taken changes nothing."""
    learner = keeping("unknown")
    learner.taught("red", "green")
    kept = samples(learner.predict("stripes", "stripes"))
    learner.inbox_has(2)

    taken = learner.post("/inbox/resolve", json={"samples": kept, "name": "red"})
    answer = learner.post("/inbox/resolve", json={"samples": kept, "name": "striped"})

    assert taken.status_code == 409
    assert (answer.status_code, answer.json()["class"]["name"]) == (202, "striped")
    assert learner.get("/inbox")["total"] == 0
    assert learner.labels("stripes") == ["striped"]


def test_samples_are_dismissed_and_the_inbox_emptied(keeping: Any) -> None:
    """They are gone; nothing is taught."""
    learner = keeping("all")
    learner.taught("red")
    kept = samples(learner.predict("red", "green", "blue"))
    learner.inbox_has(3)
    version = learner.version

    dismissed = learner.post("/inbox/resolve", json={"samples": kept[:1], "dismiss": True})
    left = learner.get("/inbox")["total"]
    emptied = learner.ask("DELETE", "/inbox")

    assert (dismissed.status_code, left, emptied.status_code) == (204, 2, 204)
    assert learner.get("/inbox")["total"] == 0
    assert learner.version == version


@pytest.mark.parametrize("what", [{}, {"class_id": 1, "name": "x"}, {"class_id": 1, "dismiss": True}, {"samples": []}])
def test_one_thing_is_done_with_samples(learner: Any, what: dict[str, Any]) -> None:
    """Neither none nor two."""
    assert learner.post("/inbox/resolve", json={"samples": [1], **what}).status_code == 422


def test_the_inbox_is_sorted_and_grouped(keeping: Any) -> None:
    """The most uncertain first, or the newest; what looks alike shares a number, on whichever page."""
    learner = keeping("all")
    learner.taught("red", "green")
    for look in ("red", "stripes", "red", "stripes", "green"):
        learner.predict(look)
    learner.inbox_has(5)

    newest = learner.get("/inbox", limit=2)
    rest = learner.get("/inbox", limit=3, cursor=newest["next"])
    margins = [one["margin"] for one in learner.get("/inbox", sort="margin")["items"]]

    items = newest["items"] + rest["items"]
    assert [one["id"] for one in items] == sorted((one["id"] for one in items), reverse=True)
    assert rest["next"] is None
    assert margins == sorted(margins)
    groups = [one["group"] for one in items]  # green, stripes, red, stripes, red
    assert groups[1] == groups[3] is not None
    assert groups[2] == groups[4] is not None


def test_the_inbox_is_bounded(keeping: Any, until: Until) -> None:
    """The oldest go first."""
    learner = keeping("all", capture_images=2)
    learner.taught("red")
    for look in ("red", "green", "blue"):
        kept = samples(learner.predict(look))
    until(lambda: [one["id"] for one in learner.get("/inbox")["items"]][:1] == kept, "the newest is stored")

    assert learner.get("/inbox")["total"] == 2
    assert learner.get("/inbox")["items"][0]["id"] == kept[0]


def test_a_full_queue_drops_and_predictions_go_on(start: Start, monkeypatch: pytest.MonkeyPatch, until: Until) -> None:
    """While the database is busy; what was dropped is counted, and the answer says that there is no sample."""
    monkeypatch.setattr(capture, "QUEUED", 2)
    monkeypatch.setattr(capture, "AT_ONCE", 1)
    service = start(capture="all")
    learner = service.learner()
    learner.taught("red")

    with service.database.write() as db:  # SQLite has one writer: the capture waits for it
        catalogue.get(db, "default")
        found = [samples(learner.predict("red"))[0] for _ in range(20)]

    assert sum(one is None for one in found) > 10
    until(lambda: 'outcome="dropped"' in service.http.get("/metrics").text, "what was dropped is counted")
    until(lambda: learner.get("/inbox")["total"] == sum(one is not None for one in found), "the others are stored")


def test_the_news_tell_of_the_inbox(keeping: Any) -> None:
    """So that nobody has to poll."""
    learner = keeping("all")
    learner.taught("red")

    with learner.service.http.stream("GET", "/events") as answer:
        lines: Iterator[str] = answer.iter_lines()
        while not next(lines).startswith("id: "):
            pass
        learner.predict("red")
        found = next(line for line in lines if line == "event: inbox")
        data = next(line for line in lines if line.startswith("data: "))

    assert found
    assert '"total": 1' in data


def test_a_comparison_says_what_would_change_in_the_inbox(keeping: Any) -> None:
    """Answered by both versions, under their own networks."""
    learner = keeping("all")
    learner.taught("red", "green")
    before = learner.version
    kept = samples(learner.predict("red", "blue"))
    learner.inbox_has(2)
    learner.taught("blue")
    learner.refine()

    found = learner.get("/versions/compare", **{"from": before, "to": learner.version})["samples"]

    assert [one["sample_id"] for one in found] == kept[1:]
    assert found[0]["to"]["label"] == "blue"
