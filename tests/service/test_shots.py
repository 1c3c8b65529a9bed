"""`/classes/{id}/shots`: the images of a class can be listed and looked at, and whatever was stored harms nobody."""

import hashlib
import io
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image

from store import catalogue, classes
from tests import bombs

Draw = Callable[..., bytes]


def shots(learner: Any, class_id: int, **params: Any) -> Any:
    return learner.get(f"/classes/{class_id}/shots", **params)


def store(learner: Any, class_id: int, *images: bytes, guard: bool = False) -> None:
    """As an earlier release, or an archive, may have stored them."""
    with learner.service.database.write() as db:
        model_id = catalogue.get(db, learner.name).id
        (classes.add_guard if guard else classes.add_shots)(db, model_id, class_id, images)


def test_shots_are_listed_with_what_is_known_of_them(learner: Any, draw: Draw) -> None:
    """File name, time, size and digest; page by page."""
    (red,) = learner.taught("red")

    first = shots(learner, red["id"], limit=2)
    second = shots(learner, red["id"], limit=2, cursor=first["next"])

    listed = first["items"] + second["items"]
    assert [one["filename"] for one in listed] == ["red-0.png", "red-1.png", "red-2.png"]
    assert [one["sha256"] for one in listed] == [hashlib.sha256(draw("red", n)).hexdigest() for n in range(3)]
    assert [one["bytes"] for one in listed] == [len(draw("red", n)) for n in range(3)]
    assert all(one["created_at"] >= red["created_at"] and one["kind"] == "shot" for one in listed)
    assert (first["total"], second["total"], second["next"]) == (3, 3, None)
    assert learner.get(f"/classes/{red['id']}/shots/{listed[1]['id']}") == listed[1]
    assert red["cover"] == listed[0]["id"]


def test_an_image_is_given_as_it_was_sent(learner: Any, draw: Draw) -> None:
    """A browser shows it as an image and runs nothing in it."""
    (red,) = learner.taught("red")
    shot = shots(learner, red["id"])["items"][0]

    answer = learner.ask("GET", f"/classes/{red['id']}/shots/{shot['id']}/image")

    assert answer.content == draw("red", 0)
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["etag"] == f'"{shot["sha256"]}"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert answer.headers["content-disposition"] == "inline; filename*=UTF-8''red-0.png"


@pytest.mark.parametrize("form", ["image", "thumbnail"])
def test_an_image_that_the_caller_has_is_not_sent_again(learner: Any, form: str) -> None:
    """Only an address with the digest belongs to one image for ever: ids may be used again."""
    (red,) = learner.taught("red")
    shot = shots(learner, red["id"])["items"][0]
    path = f"/classes/{red['id']}/shots/{shot['id']}/{form}"

    plain = learner.ask("GET", path)
    for_ever = learner.ask("GET", path, params={"sha256": shot["sha256"]})
    again = learner.ask("GET", path, headers={"If-None-Match": f'"other", W/{plain.headers["etag"]}'})
    changed = learner.ask("GET", path, headers={"If-None-Match": '"other"'})

    assert plain.headers["cache-control"] == "private, no-cache"
    assert for_ever.headers["cache-control"] == "private, max-age=31536000, immutable"
    assert (again.status_code, again.content) == (304, b"")
    assert changed.content == plain.content == for_ever.content


def test_a_thumbnail_is_small(learner: Any) -> None:
    """Whatever the size and form of the image: its longer side has at most 256 pixels."""
    (red,) = learner.taught("red")
    for size in ((2_000, 1_000), (100, 700), (30, 20)):
        image = io.BytesIO()
        Image.new("RGBA", size, (200, 40, 40, 128)).save(image, "PNG")
        store(learner, red["id"], image.getvalue())

    sizes = []
    for shot in shots(learner, red["id"])["items"][3:]:
        answer = learner.ask("GET", f"/classes/{red['id']}/shots/{shot['id']}/thumbnail")
        assert answer.headers["content-type"] == "image/webp"
        sizes.append(Image.open(io.BytesIO(answer.content)).size)

    assert sizes == [(256, 128), (37, 256), (30, 20)]


@pytest.mark.parametrize(
    "stored", [b"no image", b"", bombs.png_flat((30_000, 30_000)), bombs.png_flat((3_200, 3_200))[:-200]]
)
def test_a_stored_image_that_cannot_be_shown_is_refused(learner: Any, stored: bytes) -> None:
    """Within the limits of an upload; the service goes on."""
    (red,) = learner.taught("red")
    store(learner, red["id"], stored)
    shot = shots(learner, red["id"])["items"][-1]

    answer = learner.ask("GET", f"/classes/{red['id']}/shots/{shot['id']}/thumbnail")

    assert answer.status_code == 422
    assert answer.json()["type"] == "/problems/invalid-image"
    assert learner.labels("red") == ["red"]


def test_guard_images_are_listed_after_the_shots(learner: Any, draw: Draw) -> None:
    """With ids below zero, under which they can be looked at; a class with more images than are stored is guarded."""
    (red,) = learner.taught("red")
    store(learner, red["id"], draw("red", 7), guard=True)

    listed = shots(learner, red["id"])["items"]

    guard = listed[-1]
    assert [one["kind"] for one in listed] == ["shot", "shot", "shot", "guard"]
    assert guard["id"] < 0
    assert learner.ask("GET", f"/classes/{red['id']}/shots/{guard['id']}/image").content == draw("red", 7)
    assert not learner.classes()["red"]["guarded"]


@pytest.mark.parametrize("path", ["/classes/9/shots", "/classes/9/shots/1", "/classes/1/shots/999/image"])
def test_what_is_not_there_is_not_found(learner: Any, path: str) -> None:
    """Neither of a class that does not exist, nor of one that has no such image."""
    learner.taught("red")

    answer = learner.ask("GET", path)

    assert (answer.status_code, answer.json()["type"]) == (404, "/problems/not-found")


def test_classes_can_be_searched_and_sorted(learner: Any) -> None:
    """The total says how many match."""
    learner.taught("red", "green", "blue")

    found = learner.get("/classes", search="RE", sort="name", order="desc", limit=1)
    rest = learner.get("/classes", search="RE", sort="name", order="desc", limit=1, cursor=found["next"])

    assert [one["name"] for one in found["items"] + rest["items"]] == ["red", "green"]
    assert (found["total"], rest["next"]) == (2, None)
