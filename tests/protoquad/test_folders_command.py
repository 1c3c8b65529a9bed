"""`protoquad folders OUT --from-huggingface …`, as somebody types it, with datasets made on the spot."""

import io
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from click.testing import Result
from PIL import Image
from typer.testing import CliRunner

from learners.base_folder import read_folder
from protoquad.folders_command import folders
from tests.painted import picture

datasets = pytest.importorskip("datasets", reason="Hugging Face's library is optional")

app = typer.Typer()
app.command()(folders)
LABELS = ["wren", "owl"]


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is looked up, and what the library keeps is thrown away."""
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


def dataset(numbers: range = range(6), **columns: Any) -> Any:
    """Wrens and owls in turn."""
    rows: dict[str, Any] = {
        "image": [{"bytes": picture(LABELS[n % 2], n), "path": None} for n in numbers],
        "label": [n % 2 for n in numbers],
        "note": ["seen" for _ in numbers],
    }
    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=LABELS), "note": datasets.Value("string")}
    return datasets.Dataset.from_dict({**rows, **columns}, features=datasets.Features(features))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def sentence(result: Result) -> str:
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.stderr
    return " ".join(result.stderr.split())


def written(out: Path) -> dict[str, list[bytes]]:
    return {folder.name: [file.read_bytes() for file in sorted(folder.iterdir())] for folder in sorted(out.iterdir())}


EXPECTED = {"owl": [picture("owl", n) for n in (1, 3, 5)], "wren": [picture("wren", n) for n in (0, 2, 4)]}


def test_a_saved_dataset_becomes_class_folders(tmp_path: Path) -> None:
    """Images are written byte for byte, and `protoquad base` can read them."""
    dataset().save_to_disk(str(tmp_path / "saved"))

    result = run(tmp_path / "out", "--from-huggingface", tmp_path / "saved")

    assert result.exit_code == 0, result.output
    assert result.stdout == f"6 images of 2 classes in {tmp_path / 'out'}\n"
    assert written(tmp_path / "out") == EXPECTED
    assert [folder.name for folder in read_folder(tmp_path / "out")] == ["owl", "wren"]
    assert (tmp_path / "out" / "owl" / "000001.png").is_file()


def test_a_split_of_several_is_chosen(tmp_path: Path) -> None:
    """One that is not there is answered with those that are."""
    splits = datasets.DatasetDict({"train": dataset(), "test": dataset(range(10, 12))})
    splits.save_to_disk(str(tmp_path / "saved"))

    result = run(tmp_path / "out", "--from-huggingface", tmp_path / "saved", "--split", "test")
    missing = run(tmp_path / "other", "--from-huggingface", tmp_path / "saved", "--split", "validation")

    assert result.exit_code == 0, result.output
    assert written(tmp_path / "out") == {"owl": [picture("owl", 11)], "wren": [picture("wren", 10)]}
    assert "2 classes have only one image" in result.stdout
    assert "has no split 'validation'; it has train, test" in sentence(missing)


@pytest.mark.parametrize("path", ["data/train.parquet", "data"])
def test_parquet_is_read_as_a_stream(tmp_path: Path, path: str) -> None:
    """A file, or a folder of them as the hub has it; nothing is put into the library's cache."""
    (tmp_path / "data").mkdir()
    dataset().to_parquet(tmp_path / "data" / "train.parquet")

    result = run(tmp_path / "out", "--from-huggingface", tmp_path / path)

    assert result.exit_code == 0, result.output
    assert written(tmp_path / "out") == EXPECTED
    assert not list((tmp_path / "cache").rglob("*.arrow"))


def test_a_folder_of_images_is_a_dataset_too(tmp_path: Path) -> None:
    """The library finds the labels in the names of the folders."""
    for name, number in (("owl", 1), ("owl", 3), ("wren", 0)):
        (tmp_path / "images" / "train" / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / "train" / name / f"{number}.png").write_bytes(picture(name, number))

    result = run(tmp_path / "out", "--from-huggingface", tmp_path / "images")

    assert result.exit_code == 0, result.output
    assert written(tmp_path / "out") == {"owl": EXPECTED["owl"][:2], "wren": EXPECTED["wren"][:1]}


def test_the_limit_is_of_each_class(tmp_path: Path) -> None:
    """The first ones of each."""
    dataset().save_to_disk(str(tmp_path / "saved"))

    run(tmp_path / "out", "--from-huggingface", tmp_path / "saved", "--limit", 2)

    assert written(tmp_path / "out") == {name: images[:2] for name, images in EXPECTED.items()}


def test_columns_may_have_other_names_and_labels_be_texts(tmp_path: Path) -> None:
    """Columns are found by their types, or named; a label that cannot be a folder's name becomes one that can."""
    renamed = dataset().rename_columns({"image": "photo", "label": "kind"})
    texts = dataset(note=["a/b", "..c", "a/b", "..c", "a/b", "..c"])
    renamed.save_to_disk(str(tmp_path / "renamed"))
    texts.save_to_disk(str(tmp_path / "texts"))

    found = run(tmp_path / "found", "--from-huggingface", tmp_path / "renamed")
    named = run(tmp_path / "named", "--from-huggingface", tmp_path / "texts", "--label-column", "note")

    assert (found.exit_code, named.exit_code) == (0, 0), found.output + named.output
    assert written(tmp_path / "found") == EXPECTED
    assert set(written(tmp_path / "named")) == {"a-b", "-c"}


def test_what_cannot_be_used_is_a_sentence(tmp_path: Path) -> None:
    """Columns, types, places: each says what there is."""
    dataset().save_to_disk(str(tmp_path / "saved"))
    saved = ("--from-huggingface", tmp_path / "saved")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    out = tmp_path / "out"

    assert "has no column 'photo'; it has image, label, note" in sentence(run(out, *saved, "--image-column", "photo"))
    assert "'note' is of the type Value and not an image" in sentence(run(out, *saved, "--image-column", "note"))
    assert "exists and is not empty" in sentence(run(tmp_path / "full", *saved))
    assert "cannot be read" in sentence(run(out, "--from-huggingface", "nobody/nothing-of-this-name"))
    assert "give a .parquet or .arrow file" in sentence(run(out, "--from-huggingface", tmp_path / "full" / "file"))
    assert not out.exists()


def test_images_of_other_formats_are_counted_not_written(tmp_path: Path) -> None:
    """The service would refuse them."""
    icon = io.BytesIO()
    Image.new("RGB", (16, 16)).save(icon, "ICO")
    images = [{"bytes": icon.getvalue(), "path": None}, *({"bytes": picture("owl", n), "path": None} for n in range(5))]
    dataset(image=images).save_to_disk(str(tmp_path / "saved"))

    result = run(tmp_path / "out", "--from-huggingface", tmp_path / "saved")

    assert "5 images of 2 classes" in result.stdout
    assert "skipped 1 images of other formats than JPEG, PNG" in result.stdout


def test_without_the_library_the_command_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service does not need it."""
    monkeypatch.setitem(sys.modules, "datasets", None)

    result = run(tmp_path / "out", "--from-huggingface", "owner/birds")

    assert "install it with `pip install 'protoquad[huggingface]'`" in sentence(result)
