"""What the client does, asked of a real service; each test runs with `Client` and with `AsyncClient`."""

import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from protoquad_client import Conflict, InvalidImage, NameTaken, NotFound, WaitTimeout
from protoquad_client.batching import in_order

from tests.service.conftest import Service
from tests.waiting import until

Draw = Callable[..., bytes]
Teach = Callable[..., list[Any]]


def test_a_class_is_taught_and_predicted(client: Any, teach: Teach, draw: Draw) -> None:
    """With what the service says about both."""
    red, blue = teach("red", "blue")

    found = client.predict(draw("red"), top_k=1, explain=True)

    assert (red.class_.name, red.class_.shots, red.class_.status) == ("red", 3, "provisional")
    assert (blue.version, blue.session.status) == (2, "queued")
    assert (found.label, found.class_id, found.unknown, found.version) == ("red", red.class_.id, False, 2)
    assert [candidate.label for candidate in found.top] == ["red"]
    assert found.neighbours[0].label == "red"
    assert found.model == client.model_name


def test_a_session_is_waited_for(teach: Teach, service: Service) -> None:
    """Until the worker is done with it; its events can be read afterwards too."""
    _, taught = teach("red", "blue")
    working = threading.Timer(0.2, service.worker.run_next, [taught.session.id])
    working.start()

    done = taught.session.wait(60)
    working.join()

    assert (done.status, done.over, done.verdict) == ("succeeded", True, "promoted")
    assert done.version == 3
    names = [event.name for event in done.events()]
    assert (names[0], names[-1]) == ("queued", "succeeded")
    assert "progress" in names
    middle = list(done.events())[2]
    assert [event.name for event in done.events(last=middle.id)] == names[3:]


def test_to_wait_has_an_end(client: Any, teach: Teach) -> None:
    """The session goes on, until it is cancelled."""
    (taught,) = teach("red")

    with pytest.raises(WaitTimeout, match=rf"session {taught.session.id} was not over after 0.3 seconds"):
        taught.session.wait(0.3)
    assert taught.session.cancel().status == "cancelled"
    assert client.sessions.wait(taught.session.id).status == "cancelled"
    assert [one.id for one in client.sessions.list()] == [taught.session.id]


def test_classes_are_listed_found_renamed_merged_and_deleted(client: Any, teach: Teach, draw: Draw) -> None:
    """By id, or by exactly their name."""
    red, green, blue = (one.class_.id for one in teach("red", "green", "blue"))

    client.classes.rename(red, "dark red")
    assert [one.name for one in client.classes.list(sort="name", order="desc")] == ["green", "dark red", "blue"]
    assert [one.id for one in client.classes.list(search="RED")] == [red]
    assert client.classes.list().first().total == 3
    assert client.classes.find("dark red").id == red
    assert client.classes.find("red") is None
    assert client.classes.add_shots(red, draw("red", 7)).class_.shots == 4
    assert client.classes.merge(green, into=blue).class_.shots == 6
    client.classes.delete(red)
    with pytest.raises(NotFound) as caught:
        client.classes.get(red)
    assert caught.value.status == 404
    assert caught.value.request_id in repr(caught.value)


def test_a_list_asks_for_page_after_page(
    client: Any, teach: Teach, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And for a page only when it is needed."""
    teach("red", "green", "blue", "yellow", "cyan")
    monkeypatch.setattr("protoquad_client.operations.classes.PAGE", 2)

    listed = client.classes.list()

    assert [len(page.items) for page in listed.pages()] == [2, 2, 1]
    assert [one.name for one in listed] == ["red", "green", "blue", "yellow", "cyan"]
    items = iter(listed)
    assert next(items).name == "red"
    service.http.request("DELETE", f"/models/{client.model_name}/classes/{list(listed)[-1].id}")
    assert [one.name for one in items] == ["green", "blue", "yellow"]


def test_shots_are_looked_at_moved_and_deleted(client: Any, draw: Draw, tmp_path: Path) -> None:
    """Their files have the names that they were sent with."""
    path = tmp_path / 'a "red" one é.png'
    path.write_bytes(draw("red", 1))
    taught = client.classes.teach("red", [path, draw("red", 2), draw("blue")])
    own = taught.class_.id
    first, second, third = client.shots.list(own)

    assert (first.filename, second.filename) == (path.name, None)
    assert client.shots.image(own, first.id) == path.read_bytes()
    assert client.shots.thumbnail(own, first.id)[8:12] == b"WEBP"
    assert client.shots.get(own, first.id).sha256 == first.sha256
    moved = client.shots.move(own, third.id, to_new="blue")
    assert (moved.class_.name, moved.class_.shots) == ("blue", 1)
    assert client.shots.delete(own, second.id).class_.shots == 1
    with pytest.raises(Conflict):
        client.shots.delete(own, first.id)
    with pytest.raises(ValueError, match="either `to`"):
        client.shots.move(own, first.id)


def test_versions_are_listed_measured_and_activated(client: Any, teach: Teach) -> None:
    """Each change makes one."""
    teach("red", "blue")

    assert [one.number for one in client.versions.list()] == [2, 1, 0]
    assert client.versions.accuracy(2).images == 6
    assert {one.label for one in client.versions.map(2, limit=2).prototypes} == {"red", "blue"}
    assert [one.label for one in client.versions.compare(1, 2).added] == ["blue"]
    assert client.versions.activate(1).active
    assert not client.versions.get(2).active


def test_the_inbox_is_resolved_and_dismissed(client: Any, teach: Teach, draw: Draw) -> None:
    """Samples become shots, or are erased."""
    (red,) = teach("red")
    found = [client.predict(draw("blue", number)) for number in range(4)]
    _until_there(client, 4)
    one, two, three, _ = (prediction.sample_id for prediction in found)

    assert client.inbox.image(one) == draw("blue", 0)
    assert client.inbox.thumbnail(one)
    assert client.inbox.list().first().capture == "all"
    assert client.inbox.resolve([one], name="blue").class_.name == "blue"
    assert client.inbox.resolve([two], class_id=red.class_.id).class_.shots == 4
    client.inbox.dismiss([three])
    assert len(list(client.inbox.list(sort="margin"))) == 1
    client.inbox.clear()
    assert list(client.inbox.list()) == []
    with pytest.raises(ValueError, match="either `class_id`"):
        client.inbox.resolve([one])


def _until_there(client: Any, samples: int) -> None:
    until(lambda: len(list(client.inbox.list())) == samples, f"{samples} samples are in the inbox")


def test_many_images_are_predicted_in_order(client: Any, teach: Teach, draw: Draw) -> None:
    """In as many requests as it takes, smaller ones where the service wants that; as one by one."""
    teach("red", "blue")
    looks = [("red", "blue")[number % 3 == 0] for number in range(50)]

    found = list(client.predict_many((draw(look, place) for place, look in enumerate(looks)), batch=32, parallel=2))

    assert [one.label or one.top[0].label for one in found] == looks
    alone = client.predict(draw(looks[7], 7))
    assert found[7].confidence == pytest.approx(alone.confidence, abs=1e-4)


def test_images_that_cannot_be_used_are_named_by_their_place(client: Any, teach: Teach, draw: Draw) -> None:
    """Among all images, not among those of a request."""
    teach("red")
    images = [draw("red", number) for number in range(12)]
    images[5], images[6] = b"nonsense", b""

    with pytest.raises(InvalidImage, match="image 5: ") as caught:
        list(client.predict_many(images, batch=4))
    assert [one.index for one in caught.value.images] == [5, 6]
    found = list(client.predict_many(images, batch=4, refused="yield"))
    assert [place for place, one in enumerate(found) if isinstance(one, InvalidImage)] == [5, 6]
    assert found[6].images[0].index == 6
    assert "no bytes" in found[6].detail
    assert {one.label or one.top[0].label for one in found[7:]} == {"red"}


def test_no_more_images_are_read_than_are_needed(client: Any, teach: Teach, draw: Draw) -> None:
    """A caller may have millions, and may stop at any time."""
    teach("red")
    read = []

    def images() -> Any:
        for number in range(1000):
            read.append(number)
            yield draw("red", number % 5)

    found = client.predict_many(images(), batch=2, parallel=2)
    first = [next(found) for _ in range(3)]
    found.close()

    assert len(first) == 3
    assert len(read) <= 2 * 2 * 2 + 4


def test_to_stop_does_not_wait_for_requests_that_are_on_their_way() -> None:
    """Neither does the end of the program: after Ctrl-C a service that does not answer would hold it up."""
    begun, released, finished = threading.Event(), threading.Event(), list[int]()

    def work(number: int) -> list[int]:
        if number:
            begun.set()
            released.wait(10)
        finished.append(number)
        return [number]

    found = in_order(work, range(9), parallel=1)
    first = next(found)
    begun.wait(10)
    found.close()

    assert (first, finished) == (0, [0])
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "protoquad")
    released.set()


def test_a_model_is_made_exported_and_imported(client: Any, teach: Teach, draw: Draw, tmp_path: Path) -> None:
    """As a path or an open file; the copy answers the same."""
    teach("red", "blue")
    memory = io.BytesIO(b"before")
    memory.seek(0, io.SEEK_END)

    size = client.models.export(client.model_name, tmp_path / "model.pq")
    assert client.models.export(client.model_name, memory) == len(memory.getvalue()) - 6
    copy = client.models.import_(tmp_path / "model.pq", f"{client.model_name}-copy")
    memory.seek(6)
    other = client.models.import_(memory, f"{client.model_name}-other")

    assert (tmp_path / "model.pq").stat().st_size == size
    assert [path.name for path in tmp_path.iterdir()] == ["model.pq"]
    assert client.models.get(copy.name) == copy
    assert {copy.name, other.name, "default"} <= {one.name for one in client.models.list()}
    image = draw("red")
    assert client.model(copy.name).predict(image).top == client.predict(image).top
    with pytest.raises(NameTaken):
        client.models.import_(tmp_path / "model.pq", copy.name)
    with pytest.raises(NotFound):
        client.models.export("nowhere", tmp_path / "nothing.pq")
    assert [path.name for path in tmp_path.iterdir()] == ["model.pq"]
    for name in (copy.name, other.name):
        client.models.delete(name)


def test_a_model_is_watched(client: Any, teach: Teach) -> None:
    """What happened after an event comes again after it."""
    (taught,) = teach("red")
    events = client.events()
    renaming = threading.Timer(0.3, client.classes.rename, [taught.class_.id, "dark red"])
    renaming.start()

    first = next(event for event in events if event.name == "renamed")
    events.close()
    renaming.join()
    client.classes.rename(taught.class_.id, "bright red")

    assert first.data["model"] == client.model_name
    again = client.events(last=first.id)
    assert next(again).name == "renamed"
    again.close()


def test_the_deployment_shows_itself(client: Any) -> None:
    """Limits, health, the caller, and images to try."""
    about = client.about()

    assert (about.backbone, about.limits["max_images"], about.capture) == ("resnet32", 20, "all")
    assert client.whoami().scopes == ("predict", "teach", "admin")
    assert (client.alive(), client.ready()) == (True, True)
    assert "protoquad_" in client.metrics()
    fish = client.samples()[0]
    assert (fish.name, len(fish.shots)) == ("fish", 5)
    assert client.sample_image(fish.tests[0])[:3] == b"\xff\xd8\xff"
