"""Images with labels out of a Hugging Face dataset: one on the hub, or one on this disk, which needs no internet.

`datasets` is not a dependency of the service; it is imported here, when somebody asks for it.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from protoquad.plain_errors import Refused

SAVED = "state.json"  # in a folder that `save_to_disk` wrote, or `dataset_dict.json` for several splits
SAVED_SPLITS = "dataset_dict.json"


@dataclass(frozen=True)
class Wanted:
    """What to take; a column of None is found by its type."""

    source: str  # the name of a dataset, or a path
    split: str
    config: str | None = None
    image_column: str | None = None
    label_column: str | None = None
    limit: int | None = None  # images of each label


def labelled_images(wanted: Wanted) -> Iterator[tuple[str, bytes]]:
    """Label and image of each row, as the dataset has them; nothing is downloaded ahead or decoded."""
    library = _library()
    rows = _opened(library, wanted)
    features = _features(rows)
    image = _column(features, wanted.image_column, library.Image, "image")
    label = _column(features, wanted.label_column, library.ClassLabel, "label")
    _require_images(features[image], library.Image, image)
    kinds = features[label].names if isinstance(features[label], library.ClassLabel) else None
    seen: Counter[str] = Counter()
    # Without decoding, and without reading the other columns.
    for row in _each(
        rows.select_columns([image, label]).cast_column(image, library.Image(decode=False)), wanted.source
    ):
        name = _label(row[label], kinds)
        if name is None or row[image] is None:  # a row without a label, as in the test split of a contest
            continue
        if wanted.limit is not None and seen[name] >= wanted.limit:
            if kinds is not None and all(seen[kind] >= wanted.limit for kind in kinds):
                return
            continue
        seen[name] += 1
        yield name, _bytes(row[image])


def _library() -> Any:
    try:
        return import_module("datasets")
    except ImportError as error:
        raise Refused(
            "Hugging Face's library is not installed; install it with `pip install 'protoquad[huggingface]'`, "
            "or `pip install datasets`"
        ) from error


def _opened(library: Any, wanted: Wanted) -> Any:
    path = Path(wanted.source)
    with _plain_errors(wanted.source):
        if (path / SAVED_SPLITS).is_file():
            splits = library.load_from_disk(str(path))
            if wanted.split not in splits:
                raise Refused(f"{path} has no split '{wanted.split}'; it has {', '.join(splits)}")
            return splits[wanted.split]
        if (path / SAVED).is_file():
            return library.load_from_disk(str(path))
        if path.is_file():
            kind = {".parquet": "parquet", ".arrow": "arrow"}.get(path.suffix)
            if kind is None:
                raise Refused(f"{path} is a file; give a .parquet or .arrow file, a folder, or the name of a dataset")
            return library.load_dataset(kind, data_files={wanted.split: str(path)}, split=wanted.split, streaming=True)
        return library.load_dataset(wanted.source, wanted.config, split=wanted.split, streaming=True)


def _each(rows: Any, source: str) -> Iterator[dict[str, Any]]:
    with _plain_errors(source):
        yield from rows


@contextmanager
def _plain_errors(source: str) -> Iterator[None]:
    """The library's own errors, of files, formats and the network, are of these kinds."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:500]
        raise Refused(f"the dataset '{source}' cannot be read: {reason}") from error


def _features(rows: Any) -> Any:
    features = rows.features or rows._resolve_features().features  # a stream may have to look at its first row
    if not features:
        raise Refused("the dataset has no rows")
    return features


def _column(features: Any, asked: str | None, kind: type, usual: str) -> str:
    if asked is not None:
        if asked not in features:
            raise Refused(f"the dataset has no column '{asked}'; it has {', '.join(features)}")
        return asked
    fitting: list[str] = [name for name, feature in features.items() if isinstance(feature, kind)]
    if len(fitting) == 1:
        return fitting[0]
    if usual in features:
        return usual
    raise Refused(f"which column is the {usual}? The dataset has {', '.join(features)}; name it with --{usual}-column")


def _require_images(feature: Any, kind: type, column: str) -> None:
    if not isinstance(feature, kind):
        raise Refused(
            f"the column '{column}' is of the type {type(feature).__name__} and not an image; name another with "
            "--image-column, or cast it first: dataset.cast_column(column, datasets.Image())"
        )


def _label(value: Any, kinds: list[str] | None) -> str | None:
    if value is None or (kinds is not None and value < 0):
        return None
    return kinds[value] if kinds is not None else str(value)


def _bytes(image: dict[str, Any]) -> bytes:
    if image["bytes"] is not None:
        return bytes(image["bytes"])
    with import_module("fsspec").open(image["path"], "rb") as file:  # also within a zip, or on the hub
        data: bytes = file.read()
    return data
