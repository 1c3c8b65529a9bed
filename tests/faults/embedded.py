"""The embedded service, on a home whose disk can be filled.

The disk is a small tmpfs, mounted in a namespace of our own (`within_namespace`), which needs no privilege where the
kernel allows it. A quota works everywhere: no file of the service's processes may grow.
"""

import contextlib
import os
import resource
import subprocess
from pathlib import Path

import psutil

from store.database import Database
from tests.faults.stage import SETTINGS, Deployment, Replica

MEGABYTE = 1024 * 1024
SIZE = 24 * MEGABYTE
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]
INSIDE = "PROTOQUAD_TEST_NAMESPACE"


def namespaces() -> bool:
    """Whether this machine lets us mount a disk of our own."""
    try:
        mount = [*NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"]
        return subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def within_namespace(command: list[str]) -> tuple[list[str], dict[str, str]]:
    """The command and environment to run it with a disk of its own, if that can be."""
    if not namespaces():
        return command, dict(os.environ)
    return [*NAMESPACE, *command], {**os.environ, INSIDE: "1"}


class Disk:
    """A home folder that can be filled to the last byte."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.small = INSIDE in os.environ
        folder.mkdir()
        if self.small:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", folder], check=True)

    @property
    def filler(self) -> Path:
        return self.folder / "filler"

    def fill(self) -> None:
        with contextlib.suppress(OSError), self.filler.open("ab", buffering=0) as file:
            while file.write(bytes(4096)):
                pass

    def make_room(self) -> None:
        self.filler.unlink(missing_ok=True)

    def unmount(self) -> None:
        if self.small:
            subprocess.run(["umount", "--lazy", self.folder], check=True)


class EmbeddedStage(Deployment):
    """`protoquad serve` with no settings to speak of: SQLite and a worker beside it."""

    def __init__(self, **settings: str) -> None:
        super().__init__()
        self.disk = Disk(self.folder / "home")
        environment = {**SETTINGS, "PROTOQUAD_WORKER": "true", "PROTOQUAD_HOME": str(self.disk.folder), **settings}
        self.replicas = [Replica("service", environment)]
        self.workers = []
        self.database = Database(f"sqlite:///{self.disk.folder / 'protoquad.db'}")

    def heal(self) -> None:
        self.disk.make_room()
        self.limit(resource.RLIM_INFINITY)
        super().heal()

    def use_up_quota(self) -> None:
        """No file may grow beyond the largest there is."""
        files = [file for file in self.disk.folder.rglob("*") if file.is_file()]
        self.limit(max(file.stat().st_size for file in files))

    def limit(self, size: int) -> None:
        if self.replicas[0].dead:
            return
        service = psutil.Process(self.replicas[0].pid)
        for process in (service, *service.children(recursive=True)):
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def close(self) -> None:
        super().close()
        self.disk.unmount()
