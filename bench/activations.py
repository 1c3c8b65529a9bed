"""Trunk activations on disk: computed once for each picture, used by every run after that.

A store is a folder with two files: fixed-size rows, one for each picture, and the list of the pictures' keys. A row
counts only once its key is written, so a run that was killed goes on where it stopped. Runs side by side may share a
store: one of them computes at a time.
"""

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bench.datasets import DataError, Picture
from core.backbones import Backbone
from core.errors import ImageError
from core.images import decode, views
from core.views import LabelledViews, Scope
from engine.compiled_module import CompiledModule, Engine
from engine.cores import usable_cores
from engine.graph_template import compile_module

PICTURES_AT_ONCE = 8
SHARPNESS = 2  # decode at this multiple of the framing, so that small augmented crops stay sharp

Done = Callable[[int], None]  # told how many more pictures are ready


class ActivationStore:
    """What the trained part of a backbone takes as input, for pictures in `1 + augmented` views."""

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

    def missing(self, pictures: Sequence[Picture]) -> list[Picture]:
        self._row = self._known_rows()
        return [picture for picture in pictures if picture.key not in self._row]

    def views(self, pictures: Sequence[Picture], done: Done | None = None) -> LabelledViews:
        """The pictures' activations, computing those that are not there yet."""
        if self.missing(pictures):
            self._add(pictures, done)
        rows = np.memmap(self._rows_file, self._type, "r", shape=(len(self._row), *self._shape))
        chosen = rows[[self._row[picture.key] for picture in pictures]]
        return LabelledViews(torch.from_numpy(chosen), torch.tensor([picture.class_id for picture in pictures]))

    def _add(self, pictures: Sequence[Picture], done: Done | None) -> None:
        with self._rows_file.open("ab") as rows, self._keys_file.open("a") as keys:
            fcntl.flock(keys, fcntl.LOCK_EX)
            self._drop_half_line()
            missing = self.missing(pictures)  # another run may have computed some while this one waited
            rows.truncate(len(self._row) * self._row_bytes)  # what a killed run wrote without its key
            for some, inputs in self._prepared(missing):
                rows.write(self._activations(inputs).numpy().astype(self._type).tobytes())
                rows.flush()
                keys.writelines(f"{picture.key}\n" for picture in some)
                keys.flush()
                self._row |= {picture.key: len(self._row) + n for n, picture in enumerate(some)}
                if done:
                    done(len(some))

    def _prepared(self, pictures: Sequence[Picture]) -> Iterator[tuple[Sequence[Picture], Tensor]]:
        """Decoded views, (pictures, views, 3, s, s), a few pictures ahead of the trunk."""
        threads = usable_cores()
        with ThreadPoolExecutor(threads) as pool:
            chunks = [pictures[start : start + PICTURES_AT_ONCE] for start in range(0, len(pictures), PICTURES_AT_ONCE)]
            waiting = [pool.submit(self._decoded, chunk) for chunk in chunks[: threads + 1]]
            for number, chunk in enumerate(chunks):
                inputs = waiting.pop(0).result()
                if number + threads + 1 < len(chunks):
                    waiting.append(pool.submit(self._decoded, chunks[number + threads + 1]))
                yield chunk, inputs

    def _decoded(self, pictures: Sequence[Picture]) -> Tensor:
        return torch.stack([self._views_of(picture) for picture in pictures])

    def _views_of(self, picture: Picture) -> Tensor:
        framing = self.backbone.framing
        try:
            image = decode(picture.read(), short_side=SHARPNESS * framing.short_side)
        except ImageError as error:
            raise DataError(f"{picture.key}: {error}") from error
        return views(image, framing, self.augmented, seeded(picture.key))

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

    def _drop_half_line(self) -> None:
        """A run that was killed while writing keys may have left the beginning of one."""
        text = self._keys_file.read_text()
        os.truncate(self._keys_file, len(text[: text.rfind("\n") + 1].encode()))


def seeded(key: str) -> torch.Generator:
    """A picture's own source of randomness: its augmented views are the same in every run and every set."""
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little", signed=False) >> 1
    return torch.Generator().manual_seed(seed)
