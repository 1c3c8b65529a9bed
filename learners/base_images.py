"""What a base session sees of its pictures: views of each, behind the trunk, on disk instead of in memory.

The rows lie in a file that has no name: however the process ends, nothing is left of it.
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
from core.images import MAX_PIXELS, Framing
from core.views import LabelledViews
from engine.compiled_module import CompiledModule
from engine.cores import usable_cores
from engine.decoding import decode_ahead
from learners.base_folder import ClassFolder, FolderError, require_enough
from learners.stored_images import AT_ONCE, AUGMENTED, views_of

SPARE_BYTES = 64 * 2**20  # left free on the disk: others write there too
GIGABYTE = 2**30

Told = Callable[[int], None]  # how many more files were looked at


@dataclass(frozen=True)
class Skipped:
    """A file that is no usable picture."""

    file: Path
    reason: str


@dataclass(frozen=True, eq=False)
class Looked:
    """Pictures by the place of their class in the folder, (n, v, …) backed by a file."""

    training: LabelledViews
    guard: LabelledViews | None
    guard_files: tuple[Path, ...]  # of `guard`, in its order
    skipped: tuple[Skipped, ...]

    def __len__(self) -> int:
        return len(self.training) + len(self.guard_files)


@dataclass(frozen=True, eq=False)
class _Look:
    place: int
    file: Path
    views: Tensor  # (v, 3, s, s) bytes


def look(
    folders: Sequence[ClassFolder],
    backbone: Backbone,
    trunk: CompiledModule | None,
    room: Path,
    *,
    augmented: int = AUGMENTED,
    max_pixels: int = MAX_PIXELS,
    told: Told = lambda _: None,
) -> Looked:
    """Every picture through the trunk, or as it is where `trunk` is None; some are held out to guard with.

    `room`: the folder on whose disk the rows may lie.
    """
    files = [(place, file) for place, folder in enumerate(folders) for file in folder.files]
    rows = _Rows(backbone, trunk, augmented)
    _require_room(room, len(files) * rows.row_bytes, len(files))
    skipped: list[Skipped] = []
    places: list[int] = []
    seen: list[Path] = []
    with TemporaryFile(dir=room) as file:
        for some in _readable(files, backbone.framing, augmented, max_pixels, skipped, told):
            file.write(rows.of([one.views for one in some]).tobytes())
            places += [one.place for one in some]
            seen += [one.file for one in some]
        readable = np.bincount(places, minlength=len(folders)).tolist()
        require_enough({folder.name: count for folder, count in zip(folders, readable, strict=True)}, len(skipped))
        return _divided(rows.mapped(file, len(seen)), torch.tensor(places), seen, tuple(skipped))


class _Rows:
    """Views of a picture as one row of fixed size."""

    def __init__(self, backbone: Backbone, trunk: CompiledModule | None, augmented: int) -> None:
        self._trunk = trunk
        example = backbone.framing.blank()
        shape = (trunk(example) if trunk else example).shape[1:]
        self.shape = (1 + augmented, *shape)
        # Half precision halves the disk and moves no prototype by more than its own noise.
        self.kind = np.dtype(np.float16 if trunk else np.uint8)
        self.row_bytes = int(np.prod(self.shape)) * self.kind.itemsize

    def of(self, pictures: Sequence[Tensor]) -> np.ndarray[Any, Any]:
        inputs = torch.stack(list(pictures))  # (b, v, 3, s, s)
        if self._trunk is not None:
            inputs = self._trunk(inputs.flatten(0, 1)).unflatten(0, inputs.shape[:2])
        return inputs.numpy().astype(self.kind, copy=False)

    def mapped(self, file: IO[bytes], count: int) -> np.ndarray[Any, Any]:
        file.flush()
        rows: np.ndarray[Any, Any] = np.memmap(file, self.kind, "r+", shape=(count, *self.shape))
        return rows


def _require_room(room: Path, needed: int, pictures: int) -> None:
    free = shutil.disk_usage(room).free - SPARE_BYTES
    if needed > free:
        raise FolderError(
            f"looking at {pictures} pictures needs {needed / GIGABYTE:.1f} GB on the disk of {room}, where "
            f"{max(0, free) / GIGABYTE:.1f} GB are free; make room there or set PROTOQUAD_HOME to another disk"
        )


def _readable(
    files: Sequence[tuple[int, Path]],
    framing: Framing,
    augmented: int,
    max_pixels: int,
    skipped: list[Skipped],
    told: Told,
) -> Iterator[list[_Look]]:
    """Pictures a few at a time, decoded ahead of whoever takes them; the others are noted as skipped."""

    def decoded(entry: tuple[int, Path]) -> _Look | Skipped:
        place, file = entry
        try:
            views = views_of(file.read_bytes(), framing, augmented=augmented, max_pixels=max_pixels)
        except (ImageError, OSError) as error:
            return Skipped(file, str(error))
        return _Look(place, file, views)

    some: list[_Look] = []
    for found in decode_ahead(decoded, files, usable_cores() + AT_ONCE):
        told(1)
        if isinstance(found, Skipped):
            skipped.append(found)
        else:
            some.append(found)
        if len(some) == AT_ONCE:
            yield some
            some = []
    if some:
        yield some


def _divided(rows: np.ndarray[Any, Any], places: Tensor, files: Sequence[Path], skipped: tuple[Skipped, ...]) -> Looked:
    """Training pictures first, guard pictures last: then each is a slice, and no row need be in memory."""
    training, guard = hold_out(places)
    cut = len(training)
    early, late = guard[guard < cut], training[training >= cut]
    order = torch.arange(len(places))
    order[early], order[late] = late, early
    for one, other in zip(early.tolist(), late.tolist(), strict=True):
        rows[[one, other]] = rows[[other, one]]
    inputs, labels = torch.from_numpy(rows), places[order]
    return Looked(
        LabelledViews(inputs[:cut], labels[:cut]),
        LabelledViews(inputs[cut:], labels[cut:]) if len(guard) else None,
        tuple(files[row] for row in order[cut:].tolist()),
        skipped,
    )
