"""`/predict?views=n`: several looks at an image, one answer."""

from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from core.images import MAX_VIEWS, centre_view, decode, fixed_views
from tests.service.scraping import value
from tests.waiting import until

Draw = Callable[..., bytes]
ABOUT = 2e-4  # of distances: rows of a batch differ by rounding


def lopsided() -> Image.Image:
    """An image that differs much from its mirror image."""
    coarse = np.random.default_rng(1).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((60, 44), Image.Resampling.BICUBIC)


def png(image: Image.Image) -> bytes:
    buffer = BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def ask(learner: Any, image: bytes, **params: Any) -> Any:
    answer = learner.post("/predict", files={"images": image}, params=params)
    assert answer.status_code == 200, answer.text
    (found,) = answer.json()["predictions"]
    return found


def distances(found: Any) -> dict[int, float]:
    return {one["class_id"]: one["distance"] for one in found["top"]}


def expected_distances(learner: Any, looks: torch.Tensor) -> dict[int, float]:
    """By hand: the mean over the views of 1 − cosine, class by class."""
    version = learner.service.context.versions.active(learner.name)
    network, known = version.network, version.classifier
    embeddings = network.space.embed(network.tail(network.trunk(looks)))
    cosines = torch.nn.functional.cosine_similarity(embeddings[:, None], known.prototypes[None], dim=-1)  # (v, K)
    return dict(zip(known.class_ids, (1 - cosines).mean(0).tolist(), strict=True))


def test_one_view_is_what_is_looked_at_anyway(learner: Any, draw: Draw) -> None:
    """The same bytes with the parameter and without."""
    learner.taught("red", "green", "blue")
    files = [("images", draw(look)) for look in ("red", "blue", "stripes")]

    plain, one = (learner.post(f"/predict{query}", files=files) for query in ("", "?views=1"))

    assert plain.status_code == 200
    assert plain.content == one.content


def test_two_views_are_the_centre_and_its_mirror_image(learner: Any) -> None:
    """The distance is the mean of both; it is that of neither alone."""
    learner.taught("red", "green", "blue")
    image = lopsided()
    framing = learner.service.context.versions.active(learner.name).network.framing
    centre = centre_view(decode(png(image), short_side=framing.short_side), framing)

    found = distances(ask(learner, png(image), views=2))

    assert found == pytest.approx(expected_distances(learner, torch.stack([centre, centre.flip(-1)])), abs=ABOUT)
    for alone in (centre, centre.flip(-1)):
        assert found != pytest.approx(expected_distances(learner, alone[None]), abs=ABOUT)


def test_all_views_are_averaged(learner: Any) -> None:
    """Also the other crops and their mirror images."""
    learner.taught("red", "green", "blue")
    framing = learner.service.context.versions.active(learner.name).network.framing

    found = distances(ask(learner, png(lopsided()), views=MAX_VIEWS))

    looks = fixed_views(lopsided(), framing, MAX_VIEWS)
    assert found == pytest.approx(expected_distances(learner, looks), abs=ABOUT)


def test_an_image_and_its_mirror_image_get_the_same_answer_with_two_views(learner: Any) -> None:
    """With one they do not."""
    learner.taught("red", "green", "blue")
    sides = png(lopsided()), png(ImageOps.mirror(lopsided()))

    one, two = ([distances(ask(learner, side, views=views)) for side in sides] for views in (1, 2))

    assert two[0] == pytest.approx(two[1], abs=ABOUT)
    assert one[0] != pytest.approx(one[1], abs=10 * ABOUT)


def test_each_image_gets_its_answer_from_its_own_views(learner: Any) -> None:
    """In order, and as many answers as images."""
    learner.taught("red", "green", "blue")

    answer = learner.predict("blue", "red", "green", views=3)

    assert [found["label"] for found in answer["predictions"]] == ["blue", "red", "green"]


def test_what_is_unknown_stays_so_with_more_views(learner: Any) -> None:
    """The threshold is the version's."""
    learner.taught("red", "green", "blue")

    answer = learner.predict("stripes", "red", views=MAX_VIEWS)

    assert [found["unknown"] for found in answer["predictions"]] == [True, False]


def test_json_is_answered_as_a_form_is(learner: Any) -> None:
    """The parameter is in the address of both."""
    learner.taught("red", "green", "blue")
    sent = {"images": [b64encode(png(lopsided())).decode()]}

    answer = learner.post("/predict?views=2", json=sent)

    (found,) = answer.json()["predictions"]
    assert distances(found) == pytest.approx(distances(ask(learner, png(lopsided()), views=2)), abs=ABOUT)


def test_a_pinned_version_answers_with_as_many_views_as_it_did(learner: Any) -> None:
    """Whatever has been taught since."""
    learner.taught("red", "green")
    pinned = learner.version
    before = distances(ask(learner, png(lopsided()), views=2))
    learner.taught("blue")

    again = distances(ask(learner, png(lopsided()), views=2, version=pinned))

    assert again == pytest.approx(before, abs=ABOUT)
    assert len(again) == 2


def test_with_nothing_taught_everything_is_unknown(learner: Any) -> None:
    """However often it is looked at."""
    found = ask(learner, png(lopsided()), views=2)

    assert (found["unknown"], found["top"]) == (True, [])


@pytest.mark.parametrize("views", ["0", "-1", str(MAX_VIEWS + 1), "two", "", "1.5"])
def test_a_number_of_views_that_cannot_be_is_refused(learner: Any, draw: Draw, views: str) -> None:
    """422 names the parameter and says what is possible."""
    answer = learner.post(f"/predict?views={views}", files={"images": draw("red")})

    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["where"] == "query views"


def test_the_documentation_says_how_many_views_are_possible(service: Any) -> None:
    """In `/openapi.json`, with what they cost."""
    document = service.http.get("/openapi.json").json()

    (views,) = (one for one in document["paths"]["/predict"]["post"]["parameters"] if one["name"] == "views")
    assert (views["schema"]["minimum"], views["schema"]["maximum"]) == (1, MAX_VIEWS)
    assert (views["schema"]["default"], views["required"]) == (1, False)


def test_the_largest_request_with_all_views_is_answered(learner: Any, draw: Draw) -> None:
    """64 images."""
    learner.taught("red", "green")
    looks = ["red", "green"] * 32
    files = [("images", (str(number), draw(look, number))) for number, look in enumerate(looks)]

    answer = learner.post(f"/predict?views={MAX_VIEWS}", files=files)

    assert [found["top"][0]["label"] for found in answer.json()["predictions"]] == looks
    assert learner.service.context.predictor.queued == 0


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_every_view_takes_room_in_the_queue(start: Callable[..., Any], draw: Draw) -> None:
    """Two images of two views fill a queue of four; the metrics count them so, and a fifth is rejected at once."""
    service = start(queue_images=4)
    learner = service.learner()
    learner.taught("red", "green")
    with ThreadPoolExecutor() as pool:
        with service.held_up():
            accepted = pool.submit(learner.predict, "red", "green", views=2)
            until(lambda: service.context.predictor.queued == 4, "four views wait")
            waiting = value(service.context.metrics, "protoquad_queue_images")
            refused = learner.post("/predict", files={"images": draw("red")})
        answer = accepted.result()

    assert waiting == 4
    assert (refused.status_code, refused.json()["type"]) == (503, "/problems/overloaded")
    assert [found["label"] for found in answer["predictions"]] == ["red", "green"]
    answered = value(service.context.metrics, "protoquad_predictions_total", model="default", outcome="known")
    assert answered == 2, "images are counted as predictions, not views"
