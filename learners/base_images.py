"""The images of a base session: views of each, passed through the trunk, on disk instead of in memory.

The rows are in a file without a name: however the process ends, nothing of it is left.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from core.backbones import Backbone
from core.errors import ImageError
from core.guard import hold_out
from core.images import MAX_PIXELS
from core.views import LabelledViews
from engine.compiled_module import CompiledModule
from engine.map_ahead import map_ahead
from learners.base_folder import ClassFolder, FolderError, ImageFile, require_enough
from learners.stored_images import AUGMENTED, IMAGES_AT_ONCE, views_of

SPARE_BYTES = 64 * 2**20  # left free on the disk: others write there too
GIGABYTE = 2**30

Advance = Callable[[int], None]  # how many more files were read


@dataclass(frozen=True)
class Skipped:
    """A file that is not a usable image."""

    file: ImageFile
    reason: str


@dataclass(frozen=True, eq=False)
class BaseImages:
    """Images by the place of their class in the folder, (n, v, …) backed by a file."""

    training: LabelledViews
    guard: LabelledViews | None
    guard_files: tuple[ImageFile, ...]  # of `guard`, in its order
    skipped: tuple[Skipped, ...]

    def __len__(self) -> int:
        return len(self.training) + len(self.guard_files)


@dataclass(frozen=True, eq=False)
class _Decoded:
    place: int
    file: ImageFile
    views: Tensor  # (v, 3, s, s) bytes


@dataclass(frozen=True)
class ImageReader:
    """How files become views."""

    backbone: Backbone
    trunk: CompiledModule | None  # None: views stay images, for a session that trains the whole network
    augmented: int = AUGMENTED
    max_pixels: int = MAX_PIXELS

    def decode(self, entry: tuple[int, ImageFile]) -> _Decoded | Skipped:
        place, file = entry
        try:
            data, framing = file.read_bytes(), self.backbone.framing
            views = views_of(data, framing, augmented=self.augmented, max_pixels=self.max_pixels)
        except (ImageError, OSError) as error:
            return Skipped(file, str(error))
        return _Decoded(place, file, views)


def read_images(
    folders: Sequence[ClassFolder], reader: ImageReader, disk: Path, advance: Advance = lambda _: None
) -> BaseImages:
    """Every image of the folders; some are held out as guard images. `disk`: a folder on the disk to use."""
    files = [(place, file) for place, folder in enumerate(folders) for file in folder.files]
    rows = _Rows(reader)
    _require_disk_space(disk, len(files) * rows.row_bytes, len(files))
    skipped: list[Skipped] = []
    places: list[int] = []
    used: list[ImageFile] = []
    with TemporaryFile(dir=disk) as file:
        for some in _in_batches(map_ahead(reader.decode, files, IMAGES_AT_ONCE), skipped, advance):
            file.write(rows.of([one.views for one in some]).tobytes())
            places += [one.place for one in some]
            used += [one.file for one in some]
        readable = np.bincount(places, minlength=len(folders)).tolist()
        require_enough({folder.name: count for folder, count in zip(folders, readable, strict=True)}, len(skipped))
        return _divided(rows.mapped(file, len(used)), torch.tensor(places), used, tuple(skipped))


class _Rows:
    """The views of an image as one row of fixed size."""

    def __init__(self, reader: ImageReader) -> None:
        self._trunk = trunk = reader.trunk
        example = reader.backbone.framing.blank()
        shape = (trunk(example) if trunk else example).shape[1:]
        self.shape = (1 + reader.augmented, *shape)
        # Half precision halves the disk space and moves no prototype by more than its own noise.
        self.kind = np.dtype(np.float16 if trunk else np.uint8)
        self.row_bytes = int(np.prod(self.shape)) * self.kind.itemsize

    def of(self, images: Sequence[Tensor]) -> np.ndarray[Any, Any]:
        inputs = torch.stack(list(images))  # (b, v, 3, s, s)
        if self._trunk is not None:
            inputs = self._trunk(inputs.flatten(0, 1)).unflatten(0, inputs.shape[:2])
        return inputs.numpy().astype(self.kind, copy=False)

    def mapped(self, file: IO[bytes], count: int) -> np.ndarray[Any, Any]:
        file.flush()
        rows: np.ndarray[Any, Any] = np.memmap(file, self.kind, "r+", shape=(count, *self.shape))
        return rows


def _require_disk_space(disk: Path, needed: int, images: int) -> None:
    free = shutil.disk_usage(disk).free - SPARE_BYTES
    if needed > free:
        raise FolderError(
            f"a base session of {images} images needs {needed / GIGABYTE:.1f} GB on the disk of {disk}, where "
            f"{max(0, free) / GIGABYTE:.1f} GB are free; make room there or set PROTOQUAD_SCRATCH to another disk"
        )


def _in_batches(
    results: Iterator[_Decoded | Skipped], skipped: list[Skipped], advance: Advance
) -> Iterator[list[_Decoded]]:
    """Decoded images, a few at a time; the others are added to `skipped`."""
    some: list[_Decoded] = []
    for found in results:
        advance(1)
        if isinstance(found, Skipped):
            skipped.append(found)
        else:
            some.append(found)
        if len(some) == IMAGES_AT_ONCE:
            yield some
            some = []
    if some:
        yield some


def _divided(
    rows: np.ndarray[Any, Any], places: Tensor, files: Sequence[ImageFile], skipped: tuple[Skipped, ...]
) -> BaseImages:
    """Training images first, guard images last: then each is a slice, and no row has to be in memory."""
    training, guard = hold_out(places)
    cut = len(training)
    early, late = guard[guard < cut], training[training >= cut]
    order = torch.arange(len(places))
    order[early], order[late] = late, early
    for one, other in zip(early.tolist(), late.tolist(), strict=True):
        rows[[one, other]] = rows[[other, one]]
    inputs, labels = torch.from_numpy(rows), places[order]
    return BaseImages(
        LabelledViews(inputs[:cut], labels[:cut]),
        LabelledViews(inputs[cut:], labels[cut:]) if len(guard) else None,
        tuple(files[row] for row in order[cut:].tolist()),
        skipped,
    )
