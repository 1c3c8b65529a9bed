"""Pairs, vision transformers and ConvNeXts from weight files are served, taught, refined and moved like the default."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from core.torchvision_ops import make_torchvision_importable
from engine import preparation
from learners.archive_import import checked
from migrations import schema
from store import archive
from store.database import Database
from store.errors import UnusableArchive
from store.settings import Settings
from tests import archives
from tests.service.conftest import Learner, running_service

make_torchvision_importable()
import timm  # noqa: E402

LOOKS = ("red", "green", "blue", "yellow")
NETWORKS = ("test_vit", "test_convnext", "test_resnet")
# On the default engine only one: that every graph computes what its network does is tested without a service.
BACKBONES = (
    ("timm:test_vit", "auto"),
    ("timm:test_convnext@192", "torch"),
    ("timm:test_resnet+timm:test_vit", "torch"),
)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of weights with a classifier, as a hub has them; random, which is enough to tell colours apart."""
    folder = tmp_path_factory.mktemp("weights")
    with torch.random.fork_rng():
        torch.manual_seed(4)
        for name in NETWORKS:
            save_file(timm.create_model(name, num_classes=5).state_dict(), folder / f"timm:{name}.safetensors")
    return folder


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("backbone", "engine"), BACKBONES)
def test_it_learns_rolls_back_and_moves_to_another_home(
    start: Callable[..., Any],
    database: Database,
    weights: Path,
    prepared_backbones: Path,
    tmp_path: Path,
    backbone: str,
    engine: str,
) -> None:
    """Taught, refined, rolled back exactly; then exported and imported, answering the same."""
    if engine == "auto":
        preparation.prepare(backbone, prepared_backbones, weights=weights)  # however long a busy machine takes
    served = {"backbone": backbone, "engine": engine, "weights": weights}
    service = start(**served)
    learner = service.learner()
    learner.taught(*LOOKS)
    first = learner.version
    provisional = answers(learner)
    assert [found["label"] for found in provisional] == list(LOOKS)

    session = learner.refine()
    second = learner.version
    refined = answers(learner)
    assert (session["status"], session["verdict"]) == ("succeeded", "promoted")
    assert [found["label"] for found in refined] == list(LOOKS)
    assert learner.activate(first)["active"] is True
    assert answers(learner) == provisional
    learner.activate(second)

    file = archives.export(database, "default", tmp_path / "archive")
    (tmp_path / "other").mkdir()
    with closing(Database(f"sqlite:///{tmp_path / 'other' / 'protoquad.db'}")) as other:
        schema.upgrade(other)
        with checked(file, Settings(home=tmp_path / "other", weights=weights)) as found:
            archive.read(found.path, other, "copy")
        with running_service(other, tmp_path / "other", **served) as elsewhere:
            copied = answers(elsewhere.learner("copy"))

    assert copied == refined


def answers(learner: Learner) -> list[Any]:
    """Of one image at a time: kernels for batches of other sizes round differently in the last digit."""
    return [learner.predict(look)["predictions"][0] for look in LOOKS]


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_an_archive_is_refused_where_its_weights_are_not(
    start: Callable[..., Any], database: Database, weights: Path, tmp_path: Path
) -> None:
    """Refined weights are a difference from the file's: without the file, or with another one, they mean nothing."""
    learner = start(backbone="timm:test_convnext", weights=weights).learner()
    learner.taught(*LOOKS[:3])
    learner.refine()
    file = archives.export(database, "default", tmp_path / "archive")
    others = tmp_path / "others"
    others.mkdir()
    save_file(timm.create_model("test_convnext").state_dict(), others / "timm:test_convnext.safetensors")

    with (
        pytest.raises(UnusableArchive, match="written against other base weights"),
        checked(file, Settings(home=tmp_path / "home", weights=others)),
    ):
        pass


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_weight_file_with_another_digest_makes_no_model(
    start: Callable[..., Any], tmp_path: Path, weights: Path, prepared_backbones: Path
) -> None:
    """The process that prepares it says why, and so does the answer."""
    own = tmp_path / "weights"
    own.mkdir()
    name = "timm:test_vit.safetensors"
    (own / name).write_bytes((weights / name).read_bytes())
    (own / f"{name}.sha256").write_text("0" * 64)
    preparation.prepare("resnet32", prepared_backbones)
    service = start(engine="openvino", weights=own)

    refused = service.http.post("/models", json={"name": "birds", "backbone": "timm:test_vit"})

    assert refused.status_code == 422
    assert f"{name} has the SHA-256" in refused.json()["detail"]
