"""A key is replaced as docs/operations.md says: the new one taken, the old one refused, in the time it promises."""

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy.conftest import prepared
from tests.deploy.page import PAGE
from tests.postgresql_server import PostgresqlServer
from tests.processes import Service

(PROMISED,) = {float(seconds) for seconds in re.findall(r"Every replica \w+ it within (\d+) seconds", PAGE)}

Shell = Callable[..., str]


@pytest.fixture(scope="module")
def database(postgresql: PostgresqlServer) -> str:
    postgresql.administer("CREATE DATABASE {}", "rotation")
    return postgresql.url("rotation")


def test_a_new_key_is_taken_and_a_revoked_one_refused_on_every_replica(
    database: str, start: Callable[..., Service], shell: Shell, tmp_path: Path
) -> None:
    """Two of them over one database, with the default settings, and nobody is without a key in between."""
    here = {"PROTOQUAD_DATABASE_URL": database, "PROTOQUAD_HOME": f"{tmp_path}/home"}
    old = prepared(database)
    replicas = [start(**here), start(**here)]
    assert [_status(replica, old) for replica in replicas] == [200, 200]

    new = shell("protoquad keys create new", **here).strip()
    for replica in replicas:
        _becomes(200, replica, new)
    assert [_status(replica, old) for replica in replicas] == [200, 200]
    shell(f"protoquad keys revoke {old.split('_')[1]}", **here)
    for replica in replicas:
        _becomes(401, replica, old)

    assert [_status(replica, new) for replica in replicas] == [200, 200]


def _status(replica: Service, key: str) -> int:
    return replica.client.get("/classes", headers={"Authorization": f"Bearer {key}"}).status_code


def _becomes(status: int, replica: Service, key: str) -> None:
    """Within the time that the page promises, counted from the end of the command."""
    deadline = time.monotonic() + PROMISED
    while _status(replica, key) != status:
        assert time.monotonic() < deadline, f"still {_status(replica, key)} after {PROMISED} s"
        threading.Event().wait(0.05)
