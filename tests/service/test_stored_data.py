"""A data folder that an earlier release made is served as that release served it.

`tests/data/stored-home.db.xz` is the database of a home that release 0.1.0 made (commit 74035fc): two models, one of
them with a base session, with classes taught, shown more shots, renamed and deleted, and sessions in between.
`tests/data/stored-answers.json` is what that release answered.
"""

import json
import lzma
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from learners.refining import Claim, SessionConfig, read_material
from migrations import schema
from store import catalogue
from store.database import Database, now
from store.models import IdempotencyKey, SessionId
from tests.painted import picture
from tests.service.conftest import Learner, Service, promoted, running_service

DATA = Path(__file__).parent.parent / "data"
STORED = json.loads((DATA / "stored-answers.json").read_text())
ROUNDING = 2e-6  # of six decimals; other processors may also add in another order


@contextmanager
def running_on_a_copy(home: Path) -> Iterator[Service]:
    (home / "protoquad.db").write_bytes(lzma.decompress((DATA / "stored-home.db.xz").read_bytes()))
    database = Database(f"sqlite:///{home / 'protoquad.db'}")
    schema.upgrade(database)
    with database.write() as db:
        db.execute(update(IdempotencyKey).values(created_at=now(db)))  # else they have expired
    with running_service(database, home) as service:
        yield service
    database.close()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with running_on_a_copy(tmp_path_factory.mktemp("stored")) as service:
        yield service.http


@pytest.fixture
def going_on(tmp_path: Path) -> Iterator[Service]:
    """The service on a copy of the folder that may be changed."""
    with running_on_a_copy(tmp_path) as service:
        yield service


def prefix(model: str) -> str:
    return "" if model == "default" else f"/models/{model}"


@pytest.mark.parametrize(
    ("model", "number"), [(model, n) for model, known in STORED["models"].items() for n in known["predictions"]]
)
def test_every_version_answers_as_it_did(client: httpx.Client, model: str, number: str) -> None:
    """The same labels in the same order, at the same distances, with the same confidence."""
    files = [("images", (f"{name}.png", picture(name, 99), "image/png")) for name in STORED["images"]]
    params = {"version": number, "top_k": 10}

    answer = client.post(f"{prefix(model)}/predict", params=params, files=files).raise_for_status().json()

    for found, expected in zip(answer["predictions"], STORED["models"][model]["predictions"][number], strict=True):
        assert (found["label"], found["unknown"]) == (expected["label"], expected["unknown"])
        assert [one["class_id"] for one in found["top"]] == [one["class_id"] for one in expected["top"]]
        assert numbers(found["top"]) == pytest.approx(numbers(expected["top"]), abs=ROUNDING)


def numbers(top: list[dict[str, Any]]) -> list[float]:
    return [value for one in top for value in (one["confidence"], one["distance"])]


@pytest.mark.parametrize("model", list(STORED["models"]))
def test_versions_and_classes_are_listed_as_they_were(client: httpx.Client, model: str) -> None:
    """With every field that there was, and what was measured."""
    versions = client.get(f"{prefix(model)}/versions", params={"limit": 100}).json()["items"]
    classes = client.get(f"{prefix(model)}/classes").json()

    stored = STORED["models"][model]
    assert versions == stored["versions"]
    assert [known | one for known, one in zip(classes["items"], stored["classes"]["items"], strict=True)] == classes[
        "items"
    ]
    assert classes["next"] is None


def test_an_answer_that_was_remembered_is_given_again(client: httpx.Client) -> None:
    """The key belongs to a request that the earlier release answered; nothing is taught twice."""
    files = [("shots", (f"{i}.png", picture("gnu", i), "image/png")) for i in range(5)]
    (gnu,) = [one for one in STORED["models"]["default"]["classes"]["items"] if one["name"] == "gnu"]

    answer = client.post("/classes", data={"name": "gnu"}, files=files, headers={"Idempotency-Key": "fixture"})

    assert answer.status_code == 202
    assert (answer.json()["class"]["id"], answer.json()["version"]) == (gnu["id"], gnu["since"])


BASE_CLASSES = {"default": set[int](), "based": {1, 2, 3}}


@pytest.mark.parametrize("model", list(STORED["models"]))
def test_it_can_be_taught_and_refined_further(going_on: Service, model: str) -> None:
    """Old and new classes are known after two sessions; what was served before them is still answered the same."""
    learner = going_on.learner(model)
    known = [one["name"] for one in learner.get("/classes")["items"]]
    looks = [name.removeprefix("sea ") for name in known]  # renamed after it was taught
    worker = going_on.make_worker(SessionConfig(augmented=2, judge=promoted))  # learns as a deployment does
    before, answers = learner.version, asked(learner, looks, learner.version)

    for name in ("hen", "yak"):
        files = [("shots", (f"{i}.png", picture(name, i), "image/png")) for i in range(5)]
        learner.post("/classes", data={"name": name}, files=files).raise_for_status()
        session = learner.refine(worker)
        assert (session["status"], session["verdict"]) == ("succeeded", "promoted"), session

    newest = asked(learner, [*looks, "hen", "yak"], learner.version)
    assert [found["top"][0]["label"] for found in newest] == [*known, "hen", "yak"]
    assert asked(learner, looks, before) == answers


def asked(learner: Learner, looks: list[str], version: int) -> list[Any]:
    """Of one image at a time: kernels for batches of other sizes round differently in the last digit."""
    return [_one_asked(learner, name, version) for name in looks]


def _one_asked(learner: Learner, name: str, version: int) -> Any:
    files = [("images", (f"{name}.png", picture(name, 99), "image/png"))]
    answer = learner.post("/predict", params={"version": version}, files=files)
    return answer.raise_for_status().json()["predictions"][0]


@pytest.mark.parametrize("model", list(STORED["models"]))
def test_only_taught_classes_are_replayed_from_it(going_on: Service, model: str) -> None:
    """Of the classes of a base session no training image is stored: their guard images are measured on."""
    worker = going_on.make_worker()
    with going_on.database.read() as db:
        row = catalogue.get(db, model)
    living = {one["id"] for one in STORED["models"][model]["classes"]["items"]}

    material = read_material(going_on.database, worker.backbones, Claim(SessionId(1), 1, row.id, None), worker.settings)

    assert {image.class_id for image in material.replay} == living - BASE_CLASSES[model]
    assert {image.class_id for image in material.guard} == BASE_CLASSES[model]
