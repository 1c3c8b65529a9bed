"""`protoquad folders OUT`: class folders out of a dataset, for `protoquad base`, or to teach with."""

import re
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from core.pixels import signature
from protoquad.huggingface import Wanted, labelled_images
from protoquad.plain_errors import Refused, plain_errors
from protoquad.progress_bar import counting_bar
from store.errors import UnusableName
from store.names import class_name

ENDINGS = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp", "BMP": "bmp", "GIF": "gif", "TIFF": "tif"}
NOT_IN_NAMES = re.compile(r"[/\\\0]|^\.+")  # what a folder cannot be called, or would be hidden by


def folders(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write; it must be new or empty.")],
    from_huggingface: Annotated[
        str,
        typer.Option(metavar="NAME_OR_PATH", help="A dataset of the hub, or a folder or file of one on this disk."),
    ],
    split: Annotated[str, typer.Option(help="Which part of the dataset.")] = "train",
    config: Annotated[str | None, typer.Option(help="Which configuration, if it has several.")] = None,
    image_column: Annotated[str | None, typer.Option(help="The column of images; found by its type.")] = None,
    label_column: Annotated[str | None, typer.Option(help="The column of labels; found by its type.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Most images of each class.")] = None,
) -> None:
    """Write the images of a dataset as one folder per class, each image as the dataset has it.

    Example: protoquad folders birds --from-huggingface owner/birds --limit 50, then protoquad base birds
    """
    with plain_errors(f"stopped; {out} is not complete"):
        _require_new(out)
        wanted = Wanted(from_huggingface, split, config, image_column, label_column, limit)
        written = _Writer(out)
        with counting_bar("writing", None) as advance:
            for label, data in labelled_images(wanted):
                written.add(label, data)
                advance(1)
        written.summarise()


def _require_new(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise Refused(f"{out} exists and is not empty; name another folder, or delete it first")


class _Writer:
    """One folder per label; images are numbered in the order of the dataset."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.folders: dict[str, Path] = {}
        self.written: Counter[str] = Counter()
        self.skipped = 0

    def add(self, label: str, data: bytes) -> None:
        ending = ENDINGS.get(signature(data) or "")
        if ending is None:
            self.skipped += 1
            return
        folder = self.folders.get(label) or self._new_folder(label)
        self.written[label] += 1
        (folder / f"{self.written[label]:06}.{ending}").write_bytes(data)

    def _new_folder(self, label: str) -> Path:
        """Named as the class will be."""
        try:
            folder = self.out / class_name(NOT_IN_NAMES.sub("-", label))
            folder.mkdir(parents=True)
        except UnusableName as error:
            raise Refused(f"the label {label!a} cannot name a class: {error}") from error
        except FileExistsError:
            taken = next(other for other, own in self.folders.items() if own == folder)
            raise Refused(f"the labels {taken!a} and {label!a} would both be the folder {folder}; rename one") from None
        self.folders[label] = folder
        return folder

    def summarise(self) -> None:
        if not self.folders:
            raise Refused("the dataset has no images with labels in this split; nothing was written")
        images = sum(self.written.values())
        typer.echo(f"{images:,} images of {len(self.folders):,} classes in {self.out}")
        few = [label for label, number in self.written.items() if number < 2]
        if few:
            typer.echo(f"{len(few)} classes have only one image, which is too few for `protoquad base`")
        if self.skipped:
            typer.echo(f"skipped {self.skipped:,} images of other formats than {', '.join(ENDINGS)}")
