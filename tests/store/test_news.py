"""The news of a model: what changed since a moment, whoever changed it."""

import pytest
from sqlalchemy.orm import Session

from store import catalogue, classes, news, sessions, versions
from store.models import Model, Version
from store.news import Moment, NewsItem
from store.versions import NewVersion


def add(db: Session, model: Model, kind: str = "provisional", **details: int) -> Version:
    parent = versions.get(db, model.id, model.head)
    new = NewVersion(kind, parent, classes=1, temperature=1.0, threshold=None, details=dict(details))
    return versions.add(db, model, new)


def kinds(items: list[NewsItem]) -> list[str]:
    return [item.event for item in items]


def test_nothing_happened_yet(db: Session, model: Model) -> None:
    """A newcomer hears what comes, not what was."""
    add(db, model, **{"class": 1})
    start = news.now_of(db, model.id)

    assert start.items == []
    assert news.since(db, model.id, start.moment) == start


def test_teaching_and_deleting_are_news(db: Session, model: Model) -> None:
    """With the class and the version; a merge is both."""
    start = news.now_of(db, model.id).moment
    add(db, model, **{"class": 1})
    add(db, model, **{"class": 1, "merged": 2})
    add(db, model, "delete", **{"class": 1})

    found = news.since(db, model.id, start)

    assert kinds(found.items) == ["version", "taught", "version", "taught", "deleted", "version", "deleted", "head"]
    assert [item.data["class_id"] for item in found.items if item.event == "deleted"] == [2, 1]
    assert found.items[-1].data == {"version": 3}
    assert news.since(db, model.id, found.moment).items == []


def test_a_head_that_moves_back_and_a_new_name_are_news(db: Session, model: Model) -> None:
    """No version is made for them."""
    classes.add(db, model, "wren", shots=1, since=catalogue.UNTAUGHT)
    add(db, model, **{"class": 1})
    start = news.now_of(db, model.id).moment

    versions.activate(db, model, 0, [1])
    classes.rename(db, model, 1, "robin")

    assert news.since(db, model.id, start).items == [NewsItem("head", {"version": 0}), NewsItem("renamed", {})]


def test_every_step_of_a_session_is_news(db: Session, model: Model) -> None:
    """Of this model's sessions only, in their order; who was away gets all of them."""
    start = news.now_of(db, model.id).moment
    for own in (model, catalogue.create(db, "cars", "resnet18", 1.0)):
        row = sessions.enqueue(db, own, delay=0, patience=0)
        sessions.claim(db, "worker", lease=60, attempts=3, session_id=row.id)
        sessions.record_progress(db, row.id, 1, {"stage": "learning", "done": 0.5})
        sessions.finish(db, row.id, 1, "succeeded", verdict="promoted")

    found = news.since(db, model.id, start)

    assert [item.data["event"] for item in found.items] == ["queued", "running", "progress", "succeeded"]
    assert found.items[2].data["stage"] == "learning"
    assert {item.data["session"] for item in found.items} == {1}
    assert news.since(db, model.id, found.moment).items == []
    assert news.now_of(db, model.id).moment == found.moment


def test_a_deleted_model_has_no_more_news(db: Session, model: Model) -> None:
    """Whoever watches it can stop."""
    model_id, start = model.id, news.now_of(db, model.id).moment
    catalogue.delete(db, "birds")

    assert news.since(db, model_id, start).over
    assert news.now_of(db, model_id).over


@pytest.mark.parametrize("moment", [Moment(), Moment(12, 10, 3, 2**40, 5, 2**52, 7)])
def test_a_moment_is_read_back_from_its_text(moment: Moment) -> None:
    """As it is sent in the id of an event."""
    assert Moment.parse(str(moment)) == moment


@pytest.mark.parametrize(
    "text", ["", "1", "1-2", "a-b-c-d-e-f-g", "1-2-3-4-5-6-7-8", "1-2-3-4-5-6-٣", "9" * 40 + "-1-1-1-1-1-1"]
)
def test_any_other_text_is_no_moment(text: str) -> None:
    """A caller may send anything."""
    assert Moment.parse(text) is None
