"""The files of a run, so that it can be stopped and continued."""

import io
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter

from bench.feature_map import FeatureMap
from core.guard import Verdict
from core.snapshot import from_bytes, to_bytes
from core.state import LearnerState


@dataclass(frozen=True)
class Record:
    """One session: the predictions after it, the seconds of training, and the gate's verdict if there is one."""

    predicted: list[int]  # class ids, for the test images of all sessions so far
    seconds: float
    verdict: Verdict | None
    features: FeatureMap | None = None  # after the last session


_RECORDS = TypeAdapter(list[Record])


class RunFolder:
    """Records of the finished sessions, and the state after the last of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records = self._read_records()

    def state(self) -> LearnerState | None:
        """The state after the last recorded session, if it is still needed."""
        file = self._state_file(len(self.records))
        return from_bytes(file.read_bytes()) if self.records and file.exists() else None

    def append(self, state: LearnerState, record: Record, *, last: bool) -> None:
        """Store a session. The state is written before its record; then the previous state is deleted."""
        number = len(self.records) + 1
        if not last:
            write_atomically(self._state_file(number), to_bytes(state))
        self.records.append(record)
        write_atomically(self._records_file, _RECORDS.dump_json(self.records))
        self._state_file(number - 1).unlink(missing_ok=True)

    @property
    def _records_file(self) -> Path:
        return self.path / "sessions.json"

    def _state_file(self, number: int) -> Path:
        return self.path / f"state_{number}.safetensors"

    def _read_records(self) -> list[Record]:
        return _RECORDS.validate_json(self._records_file.read_bytes()) if self._records_file.exists() else []


class EpochFile:
    """A base session after its last finished epoch (`core.base_training.Checkpoint`), with the seconds it has taken."""

    def __init__(self, path: Path, started: float) -> None:
        """`started`: the time, by `time.perf_counter`, from which on this process has worked."""
        self.path = path
        self.started = started
        self._before = 0.0

    def seconds(self) -> float:
        """Of training, those before an interruption included."""
        return self._before + time.perf_counter() - self.started

    def load(self) -> dict[str, Any] | None:
        if not self.path.exists():
            return None
        content: dict[str, Any] = torch.load(self.path, weights_only=True)
        self._before = float(content.pop("seconds"))
        return content

    def save(self, content: dict[str, Any]) -> None:
        written = io.BytesIO()
        torch.save({**content, "seconds": self.seconds()}, written)
        write_atomically(self.path, written.getvalue())

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file atomically: a run killed here leaves no partial file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(path.suffix + ".partial")
    partial.write_bytes(data)
    partial.replace(path)
