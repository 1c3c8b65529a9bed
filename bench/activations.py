"""Trunk activations on disk: computed once for each image, reused by every later run.

A store is a folder with two files: rows of fixed size, one for each image, and the list of the images' keys. A row
counts only once its key is written, so a run that was killed continues where it stopped. Runs may share a store: a
file lock lets one of them compute at a time.
"""

import fcntl
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bench.datasets import DataError, DatasetImage
from core.backbones import Backbone
from core.errors import ImageError
from core.images import decode, views
from core.views import LabelledViews, Scope
from engine.compiled_module import CompiledModule, Engine
from engine.graph_template import compile_module
from engine.map_ahead import map_ahead

IMAGES_AT_ONCE = 8
SHARPNESS = 2  # decode at this multiple of the framing, so that small augmented crops stay sharp

Done = Callable[[int], None]  # called with the number of images just computed


class ActivationStore:
    """Inputs of the trained part of a backbone, for images in `1 + augmented` views."""

    def __init__(
        self,
        folder: Path,
        backbone: Backbone,
        *,
        augmented: int,
        scope: Scope = "tail",
        device: torch.device,
        engine: Engine = "auto",
    ) -> None:
        self.backbone = backbone
        self.augmented = augmented
        self.scope = scope
        self.device = device
        self.engine: Engine = engine
        folder.mkdir(parents=True, exist_ok=True)
        self._rows_file = folder / "rows.bin"
        self._keys_file = folder / "keys.txt"
        self._row = self._known_rows()
        self._forward: CompiledModule | None = None
        example = backbone.framing.blank()
        with torch.no_grad():
            shape = example.shape[1:] if scope == "all" else backbone.trunk(example).shape[1:]
        self._shape = (1 + augmented, *shape)
        self._type = np.dtype(np.uint8 if scope == "all" else np.float16)

    def missing(self, images: Sequence[DatasetImage]) -> list[DatasetImage]:
        self._row = self._known_rows()
        return [image for image in images if image.key not in self._row]

    def views(self, images: Sequence[DatasetImage], done: Done | None = None) -> LabelledViews:
        """The images' activations; computes those that are missing."""
        if self.missing(images):
            self._add(images, done)
        rows = np.memmap(self._rows_file, self._type, "r", shape=(len(self._row), *self._shape))
        chosen = rows[[self._row[image.key] for image in images]]
        return LabelledViews(torch.from_numpy(chosen), torch.tensor([image.class_id for image in images]))

    def _add(self, images: Sequence[DatasetImage], done: Done | None) -> None:
        with self._rows_file.open("ab") as rows, self._keys_file.open("a") as keys:
            fcntl.flock(keys, fcntl.LOCK_EX)
            self._drop_partial_key()
            missing = self.missing(images)  # another run may have computed some while this one waited
            rows.truncate(len(self._row) * self._row_bytes)  # what a killed run wrote without its key
            chunks = [missing[start : start + IMAGES_AT_ONCE] for start in range(0, len(missing), IMAGES_AT_ONCE)]
            for chunk, inputs in zip(chunks, map_ahead(self._decode, chunks), strict=True):
                rows.write(self._activations(inputs).numpy().astype(self._type).tobytes())
                rows.flush()
                keys.writelines(f"{image.key}\n" for image in chunk)
                keys.flush()
                self._row |= {image.key: len(self._row) + n for n, image in enumerate(chunk)}
                if done:
                    done(len(chunk))

    def _decode(self, images: Sequence[DatasetImage]) -> Tensor:
        return torch.stack([self._views_of(image) for image in images])  # (images, views, 3, s, s)

    def _views_of(self, image: DatasetImage) -> Tensor:
        framing = self.backbone.framing
        try:
            decoded = decode(image.read(), short_side=SHARPNESS * framing.short_side)
        except ImageError as error:
            raise DataError(f"{image.key}: {error}") from error
        return views(decoded, framing, self.augmented, generator_for(image.key))

    def _activations(self, inputs: Tensor) -> Tensor:
        if self.scope == "all":
            return inputs
        if self._forward is None:
            self._forward = compile_module(self.backbone.trunk, inputs[0, :1], device=self.device, engine=self.engine)
        activations: Tensor = self._forward(inputs.flatten(0, 1)).unflatten(0, inputs.shape[:2])
        return activations

    @property
    def _row_bytes(self) -> int:
        return int(np.prod(self._shape)) * self._type.itemsize

    def _known_rows(self) -> dict[str, int]:
        text = self._keys_file.read_text() if self._keys_file.exists() else ""
        return {key: row for row, key in enumerate(text[: text.rfind("\n") + 1].splitlines())}

    def _drop_partial_key(self) -> None:
        """A run that was killed while it wrote keys may have left the beginning of one."""
        text = self._keys_file.read_text()
        os.truncate(self._keys_file, len(text[: text.rfind("\n") + 1].encode()))


def generator_for(key: str) -> torch.Generator:
    """The generator of one image: its augmented views are the same in every run and every data set."""
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little", signed=False) >> 1
    return torch.Generator().manual_seed(seed)
