"""Keys: made and revoked with the client, and what one without the right scope is told."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from protoquad_client import Client, Conflict, InsufficientScope, Unauthorized

from store.database import Database
from tests.service.conftest import Service, running_service


@pytest.fixture
def own_service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    """One for this test alone: its first key ends open access for good."""
    path = tmp_path / "protoquad.db"
    path.write_bytes(request.getfixturevalue("_migrated_file").read_bytes())
    database = Database(f"sqlite:///{path}")
    with running_service(database, tmp_path) as running:
        yield running
    database.close()


def test_keys_are_made_listed_and_revoked(own_service: Service) -> None:
    """The first must have the scope `admin`; a revoked one is refused."""
    url = own_service.url
    with Client(url) as anyone:
        with pytest.raises(Conflict):
            anyone.keys.create("camera", ["predict"])
        boss = Client(url, anyone.keys.create("boss", ["admin"]).key)
        with pytest.raises(Unauthorized) as refused:
            anyone.whoami()
    made = boss.keys.create("camera", ["predict"])
    camera = Client(url, made.key)

    assert (refused.value.status, bool(refused.value.request_id)) == (401, True)
    assert (camera.whoami().name, camera.whoami().scopes) == ("camera", ("predict",))
    assert made.key not in repr(made)
    with pytest.raises(InsufficientScope):
        camera.keys.list().first()
    assert [key.name for key in boss.keys.list()] == ["boss", "camera"]
    boss.keys.revoke(made.id)
    with pytest.raises(Unauthorized):
        camera.whoami()
    boss.close()
    camera.close()
