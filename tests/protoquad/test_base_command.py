"""`protoquad base DIR`, as somebody types it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from click.testing import Result
from safetensors.torch import load, save_file
from sqlalchemy import select
from typer.testing import CliRunner

from core.backbones.resnet import CifarResNet
from core.progress import Progress, Report
from core.torchvision_ops import make_torchvision_importable
from engine.backbone_cache import BackboneCache
from engine.version_cache import VersionCache
from learners.stored_images import views_of
from learners.version_loader import VersionLoader
from migrations import schema
from protoquad.base_command import base
from store import catalogue, classes, versions
from store.bank_rows import PrototypeRow
from store.database import Database
from store.models import Model, VersionNumber
from tests.painted import paint, picture

make_torchvision_importable()
import timm  # noqa: E402

RED_BLUE = {"red": 4, "blue": 4}
SMALL = ("--backbone", "resnet32", "--epochs", "1")

app = typer.Typer()
app.command()(base)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home of its own, on one thread: the networks here are small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setenv("PROTOQUAD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PROTOQUAD_ENGINE", "torch")
    yield tmp_path / "home"
    torch.set_num_threads(threads)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return paint(tmp_path / "pictures", RED_BLUE)


@pytest.fixture
def own_database(home: Path) -> Iterator[Database]:
    """The database of the home, as the command leaves it."""
    with closing(Database(f"sqlite:///{home / 'protoquad.db'}")) as database:
        schema.upgrade(database)
        yield database


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def sentence(result: Result) -> str:
    """What a refused command said, which is all it said on standard error."""
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.stderr
    return " ".join(result.stderr.split())


def models(database: Database) -> list[Model]:
    with database.read() as db:
        return catalogue.everything(db)


def teach(database: Database, name: str) -> None:
    with database.write() as db:
        model = catalogue.find(db, "default") or catalogue.create(db, "default", "resnet32", 1.0)
        own = classes.add(db, model, name, shots=1, since=VersionNumber(model.last_version + 1))
        classes.add_shots(db, model.id, own.id, [picture(name, 0)])
        parent = versions.get(db, model.id, model.head)
        row = PrototypeRow(own.id, bytes(4 * 64), 1, restart=True)
        versions.add(
            db,
            model,
            versions.NewVersion(
                "provisional",
                parent=parent,
                classes=parent.classes + 1,
                temperature=1.0,
                threshold=None,
                prototypes=[row],
            ),
        )


def test_a_folder_becomes_a_model(database: Database, pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In whichever database the settings name; the summary says what was learnt."""
    monkeypatch.setenv("PROTOQUAD_DATABASE_URL", database.url)

    result = run(pictures, "--model", "colours", *SMALL)

    assert result.exit_code == 0, result.output
    assert "version 1 of model 'colours': 2 classes from 8 images in " in result.stdout
    assert "accuracy on 4 images held out: " in result.stdout
    with database.read() as db:
        model = catalogue.get(db, "colours")
        assert (model.backbone, model.head) == ("resnet32", 1)
        assert classes.names(db, model.id) == {1: "blue", 2: "red"}


def test_a_pair_from_weight_files_learns_a_folder(
    own_database: Database, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both networks count as pretrained, so both tails are trained on activations; the version can be served."""
    (tmp_path / "weights").mkdir()
    save_file(CifarResNet(blocks=5).state_dict(), tmp_path / "weights" / "resnet32.safetensors")
    vit = timm.create_model("test_vit", num_classes=0)
    save_file(vit.state_dict(), tmp_path / "weights" / "timm:test_vit.safetensors")
    monkeypatch.setenv("PROTOQUAD_WEIGHTS", str(tmp_path / "weights"))

    result = run(pictures, "--backbone", "resnet32+timm:test_vit", "--epochs", "1")

    assert result.exit_code == 0, result.output
    assert "version 1 of model 'default': 2 classes from 8 images" in result.stdout
    backbones = BackboneCache(torch.device("cpu"), "torch", tmp_path, weights=tmp_path / "weights")
    loaded = VersionCache(VersionLoader(own_database, backbones)).active("default")
    with own_database.read() as db:
        stored = versions.weights(db, loaded.model_id, VersionNumber(1))
    assert stored is not None
    assert {name.split(".")[2] for name in load(stored) if name.startswith("weights.tail")} == {"first", "second"}
    assert not [name for name in load(stored) if "trunk" in name]
    view = views_of(picture("red", 0), loaded.network.framing, augmented=0)
    assert loaded.network.tail(loaded.network.trunk(view)).shape == (1, 128)


def test_files_that_are_no_pictures_are_listed(pictures: Path) -> None:
    """Twenty by name, the rest as a number."""
    for number in range(23):
        (pictures / "red" / f"note {number:02}").write_text("no picture")

    result = run(pictures, *SMALL)

    assert result.exit_code == 0, result.output
    assert "skipped 23 files:" in result.stdout
    assert result.stdout.count("this is not a known image format") == 20
    assert "red/note 19: this is not a known image format" in result.stdout
    assert "and 3 more" in result.stdout


def test_classes_taught_before_are_kept(own_database: Database, pictures: Path) -> None:
    """They are counted apart from those of the folder; the model's own backbone is taken without naming it."""
    teach(own_database, "violet")

    result = run(pictures, "--epochs", "1")

    assert result.exit_code == 0, result.output
    assert "version 2 of model 'default': 2 classes from 8 images" in result.stdout
    assert "kept 1 class taught before" in result.stdout


def test_a_single_class_is_learned_without_training(tmp_path: Path, own_database: Database) -> None:
    """It is allowed, and the summary says what it means."""
    result = run(paint(tmp_path / "pictures", {"red": 3}), *SMALL)

    assert result.exit_code == 0, result.output
    assert "there is only one class, so there is nothing to tell apart: the network was not trained" in result.stdout
    assert models(own_database)[0].head == 1


def test_a_name_is_stored_as_the_service_stores_it(tmp_path: Path, own_database: Database) -> None:
    """Trimmed and composed: a folder copied from another system names the same class."""
    run(paint(tmp_path / "pictures", {" cafe\u0301 ": 2, "red": 2}), *SMALL)

    with own_database.read() as db:
        assert sorted(classes.names(db, models(own_database)[0].id).values()) == ["caf\u00e9", "red"]


def test_a_running_service_serves_the_result(
    own_database: Database, pictures: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The default backbone, trained in its tail; the service finds the new head by looking, and answers with it."""
    with own_database.write() as db:
        catalogue.create(db, "default", "efficientnet_lite0", 0.1)
    monkeypatch.setenv("PROTOQUAD_BACKBONE", "resnet18")  # of new models alone
    backbones = BackboneCache(torch.device("cpu"), "torch", tmp_path)
    version_cache = VersionCache(VersionLoader(own_database, backbones))
    before = version_cache.active("default")

    result = run(pictures, "--epochs", "1")

    assert result.exit_code == 0, result.output
    version_cache.poll()
    served = version_cache.active("default")
    views = torch.cat([views_of(picture(name, 9), served.network.framing, augmented=0) for name in RED_BLUE])
    answers = served.classifier.predict(served.network.tail(served.network.trunk(views)), top_k=1)
    assert (before.number, served.number) == (0, 1)
    assert [served.name(answer.top[0].class_id) for answer in answers] == ["red", "blue"]


# Refused


def test_a_folder_that_cannot_be_learned_from_is_a_sentence(tmp_path: Path, home: Path) -> None:
    """Nothing is looked at and no database is made for it."""
    few = paint(tmp_path / "few", {"red": 1, "blue": 2})

    assert "nowhere does not exist; give a folder" in sentence(run(tmp_path / "nowhere"))
    assert "a class needs at least 2 images: 'red' has only one" in sentence(run(few))
    assert not home.exists()


def test_a_name_that_cannot_be_stored_is_a_sentence(tmp_path: Path) -> None:
    """The service would refuse it too."""
    folder = paint(tmp_path / "pictures", {"red\u202e": 2})

    assert "cannot name a class: the name contains a character that turns the direction" in sentence(run(folder))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--model", "My Model"], "'My Model' cannot name a model"),
        (["--backbone", "resnet1000"], "there is no backbone 'resnet1000'"),
    ],
)
def test_a_wrong_option_is_a_sentence(
    pictures: Path, own_database: Database, options: list[str], complaint: str
) -> None:
    """And no model is made."""
    assert complaint in sentence(run(pictures, *options))

    assert models(own_database) == []


def test_what_could_not_be_written_is_not_learned(
    own_database: Database, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is taken, another backbone, a second base session: all told before the first picture."""

    def never(*_: Any) -> Any:
        raise AssertionError("a picture was looked at")

    teach(own_database, "red")
    with monkeypatch.context() as patched:
        patched.setattr("learners.base_run.read_images", never)
        taken = sentence(run(pictures))
        other = sentence(run(paint(pictures.parent / "more", {"pink": 2}), "--backbone", "efficientnet_lite0"))
    run(paint(pictures.parent / "more", {"pink": 2}), *SMALL)
    monkeypatch.setattr("learners.base_run.read_images", never)
    second = sentence(run(paint(pictures.parent / "third", {"grey": 2})))

    assert "model 'default' has classes of these names already: 'red'" in taken
    assert "model 'default' stands on resnet32, not on efficientnet_lite0" in other
    assert "model 'default' stands on a base session already (version 2)" in second


def test_a_database_of_another_release_is_a_sentence(
    empty_database: Database, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is not embedded is its administrator's to migrate; the embedded one is migrated on the way."""
    monkeypatch.setenv("PROTOQUAD_DATABASE_URL", empty_database.url)

    result = run(pictures, *SMALL)

    if empty_database.is_sqlite:
        assert result.exit_code == 0, result.output
    else:
        assert "the database is empty, this release needs" in sentence(result)


def test_stopping_writes_nothing(
    own_database: Database, pictures: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the midst of learning: exit code 130, no model, no file left in the home."""

    @contextmanager
    def interrupted(_: str) -> Iterator[Report]:
        def report(_: Progress) -> None:
            raise KeyboardInterrupt

        yield report

    before = {file.name for file in home.iterdir()}
    monkeypatch.setattr("protoquad.base_command.training_bar", interrupted)

    result = run(pictures, *SMALL)

    assert result.exit_code == 130
    assert "stopped; nothing was written" in result.stderr
    assert models(own_database) == []
    assert {file.name for file in home.iterdir()} == before


def test_a_full_disk_is_a_sentence(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system says of it, without a traceback."""

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("learners.base_images.TemporaryFile", full)

    assert "home: No space left on device" in sentence(run(pictures, *SMALL))


def test_an_unfinished_transaction_is_not_seen(
    own_database: Database, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped while the result is written, the command leaves neither class nor model."""

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(versions, "add", interrupted)

    result = run(pictures, *SMALL)

    assert result.exit_code == 130
    with own_database.read() as db:
        assert db.scalars(select(Model)).all() == []
