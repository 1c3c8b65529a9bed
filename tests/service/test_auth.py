"""A request passes with a key of enough scope; with no key made, only from this machine and its own pages."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from fastapi import Depends, FastAPI
from sqlalchemy import text

from service import errors
from service.auth import KeyRing, is_loopback, requires
from service.metrics import Metrics
from service.request_middleware import RequestMiddleware
from store import api_keys
from store.database import Database
from store.models import Base

Ask = Callable[..., Any]
SCOPES = ("predict", "teach", "admin")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database(f"sqlite:///{tmp_path}/keys.db")
    Base.metadata.create_all(opened.engine)
    yield opened
    opened.close()


@pytest.fixture
def ring(database: Database) -> KeyRing:
    ring = KeyRing(database)
    ring.refresh()
    return ring


@pytest.fixture
def app(ring: KeyRing) -> FastAPI:
    app = FastAPI()
    app.state.keyring = ring
    errors.install(app)
    for scope in SCOPES:

        @app.get(f"/{scope}", dependencies=[Depends(requires(scope))])
        async def handler() -> str:
            structlog.get_logger().info("handled")
            return "in"

    app.add_middleware(RequestMiddleware, metrics=Metrics())
    return app


def make_key(database: Database, ring: KeyRing, *scopes: str) -> str:
    with database.write() as db:
        key = api_keys.create(db, "test", scopes)
    ring.refresh()
    return key


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


# With keys


@pytest.mark.parametrize("scope", SCOPES)
def test_a_scope_includes_the_smaller_ones(
    app: FastAPI, ring: KeyRing, database: Database, ask: Ask, scope: str
) -> None:
    """Who may administer may teach, who may teach may predict, and not the reverse."""
    key = make_key(database, ring, scope)

    answers = {path: ask(app, "GET", f"/{path}", headers=bearer(key)).status_code for path in SCOPES}

    reach = SCOPES.index(scope)
    assert answers == {path: 200 if place <= reach else 403 for place, path in enumerate(SCOPES)}


def test_too_small_a_scope_names_the_one_needed(app: FastAPI, ring: KeyRing, database: Database, ask: Ask) -> None:
    """And the one that the key has, by the key's public id."""
    key = make_key(database, ring, "predict")

    response = ask(app, "GET", "/teach", headers=bearer(key))

    body = response.json()
    assert (response.status_code, body["type"]) == (403, "/problems/insufficient-scope")
    assert "scope 'teach'" in body["detail"]
    assert "'predict'" in body["detail"]
    assert key not in response.text


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Basic abc", "pq_1_2", "Bearer a b", "Bearer pq_00000000_abc", "Bearer é"]
)
def test_a_missing_malformed_or_wrong_key_is_a_401(
    app: FastAPI, ring: KeyRing, database: Database, ask: Ask, header: str | None
) -> None:
    """Even from this machine: with one key made, everybody needs one."""
    make_key(database, ring, "admin")
    headers = {} if header is None else {"Authorization": header.encode("latin-1")}

    response = ask(app, "GET", "/predict", headers=headers)

    assert (response.status_code, response.json()["type"]) == (401, "/problems/unauthorized")
    assert response.headers["www-authenticate"].startswith("Bearer")


def test_a_key_whose_secret_differs_is_refused(app: FastAPI, ring: KeyRing, database: Database, ask: Ask) -> None:
    """The public id alone opens nothing."""
    key = make_key(database, ring, "admin")
    forged = key[:-1] + ("0" if key[-1] != "0" else "1")

    response = ask(app, "GET", "/predict", headers=bearer(forged))

    assert response.status_code == 401
    assert "unknown or revoked" in response.json()["detail"]


def test_revoking_the_last_key_opens_nothing(app: FastAPI, ring: KeyRing, database: Database, ask: Ask) -> None:
    """A service that had a key may be reached from elsewhere, where a Host header can be made up."""
    only = make_key(database, ring, "admin")
    with database.write() as db:
        api_keys.revoke(db, api_keys.key_id(only) or "")
    ring.refresh()

    answers = [ask(app, "GET", "/predict", headers=headers).status_code for headers in ({}, bearer(only))]

    assert answers == [401, 401]


def test_a_revoked_key_is_refused_after_a_refresh(app: FastAPI, ring: KeyRing, database: Database, ask: Ask) -> None:
    """The other keys go on."""
    revoked, other = make_key(database, ring, "admin"), make_key(database, ring, "predict")
    with database.write() as db:
        api_keys.revoke(db, api_keys.key_id(revoked) or "")
    ring.refresh()

    answers = [ask(app, "GET", "/predict", headers=bearer(key)).status_code for key in (revoked, other)]

    assert answers == [401, 200]


@pytest.mark.parametrize(
    "header",
    [
        b"Bearer " + b"x" * 60_000,
        b"Bearer " + b" " * 60_000,
        b"Bearer pq_" + b"_" * 60_000,
        b"Bearer \xff\xfe\x80",
        b"\xc3\xa9" * 500,
    ],
)
def test_no_header_is_too_odd_to_be_refused(
    app: FastAPI, ring: KeyRing, database: Database, ask: Ask, header: bytes
) -> None:
    """What is far too long is not hashed, and bytes that are no text raise nothing."""
    make_key(database, ring, "admin")

    response = ask(app, "GET", "/predict", headers={"Authorization": header})

    assert (response.status_code, response.json()["type"]) == (401, "/problems/unauthorized")


def test_a_key_with_a_known_id_and_an_endless_secret_is_refused_unhashed(
    app: FastAPI, ring: KeyRing, database: Database, ask: Ask
) -> None:
    """The public id gets nobody to have the service hash what they like."""
    key = make_key(database, ring, "admin")

    response = ask(app, "GET", "/predict", headers=bearer(key + "0" * 60_000))

    assert response.status_code == 401
    assert "cannot be read" in response.json()["detail"]


def test_two_keys_in_one_request_are_refused(app: FastAPI, ring: KeyRing, database: Database, ask: Ask) -> None:
    """A proxy might have checked the one and the service the other."""
    key = make_key(database, ring, "admin")

    response = ask(app, "GET", "/predict", headers=[("Authorization", f"Bearer {key}")] * 2)

    assert response.status_code == 401


def test_the_scheme_is_read_in_any_case(app: FastAPI, ring: KeyRing, database: Database, ask: Ask) -> None:
    """As RFC 9110 has it."""
    key = make_key(database, ring, "predict")

    response = ask(app, "GET", "/predict", headers={"Authorization": f"bearer  {key}"})

    assert response.status_code == 200


def test_a_host_does_not_matter_to_a_key(app: FastAPI, ring: KeyRing, database: Database, ask: Ask) -> None:
    """Whoever has a key may come from anywhere."""
    key = make_key(database, ring, "predict")
    headers = bearer(key) | {"Host": "api.example.org", "Origin": "https://example.org"}

    response = ask(app, "GET", "/predict", headers=headers)

    assert response.status_code == 200


def test_the_log_knows_the_key_by_its_id_alone(
    app: FastAPI, ring: KeyRing, database: Database, ask: Ask, lines: list[Any]
) -> None:
    """Every line of the request says whose it is, and none says the secret."""
    key = make_key(database, ring, "predict")

    ask(app, "GET", "/predict", headers=bearer(key))

    assert {line["event"]: line["key"] for line in lines} == dict.fromkeys(["handled", "request"], api_keys.key_id(key))
    assert key.split("_")[2] not in str(lines)


# Without keys


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "LOCALHOST", "127.0.0.1:80", "127.3.2.1", "[::1]:9"])
def test_without_keys_this_machine_may_do_everything(app: FastAPI, ask: Ask, host: str) -> None:
    """By any of its names."""
    response = ask(app, "GET", "/admin", headers={"Host": host})

    assert response.status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "testserver",
        "example.org",
        "10.0.0.1",
        "0.0.0.0",
        "localhost.example.org",
        "127.0.0.1.example.org",
        "127.1",
        "[::2]",
        "::1",
        "localhost:port",
        "evil@localhost",
        "localhost/x",
        "",
    ],
)
def test_without_keys_another_host_is_refused(app: FastAPI, ask: Ask, host: str) -> None:
    """A page whose name was pointed at this machine asks under that name; the answer says how to open the service."""
    response = ask(app, "GET", "/predict", headers={"Host": host})

    body = response.json()
    assert (response.status_code, body["type"]) == (403, "/problems/local-only")
    assert "protoquad keys create" in body["detail"]


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("localhost:8000", "http://localhost:8000", 200),
        ("localhost", "http://localhost", 200),
        ("localhost:80", "http://localhost", 200),
        ("localhost", "https://localhost:443", 200),
        ("[::1]:8000", "http://[::1]:8000", 200),
        ("localhost:8000", "http://localhost:3000", 403),
        ("localhost:8000", "http://localhost", 403),
        ("localhost:8000", "http://127.0.0.1:8000", 403),
        ("localhost:8000", "https://example.org", 403),
        ("localhost:8000", "http://localhost:8000@example.org", 403),
        ("localhost:8000", "ftp://localhost:8000", 403),
        ("localhost:8000", "null", 403),
        ("localhost:8000", "", 403),
    ],
)
def test_without_keys_only_its_own_pages_may_ask(app: FastAPI, ask: Ask, host: str, origin: str, status: int) -> None:
    """A browser says which page a request comes from: another site's must not teach, nor delete."""
    response = ask(app, "GET", "/predict", headers={"Host": host, "Origin": origin})

    assert response.status_code == status
    assert status == 200 or "another origin" in response.json()["detail"]


@pytest.mark.parametrize(
    ("site", "status"), [("same-origin", 200), ("none", 200), ("same-site", 403), ("cross-site", 403), ("", 403)]
)
def test_without_keys_a_browser_must_say_that_the_page_is_ours(app: FastAPI, ask: Ask, site: str, status: int) -> None:
    """An image or a form of another site sends no Origin; Sec-Fetch-Site it does send."""
    response = ask(app, "GET", "/predict", headers={"Sec-Fetch-Site": site})

    assert response.status_code == status
    assert status == 200 or "Sec-Fetch-Site" in response.json()["detail"]


@pytest.mark.parametrize(
    "header",
    [
        "Forwarded",
        "Via",
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Forwarded-Anything",
        "X-Real-IP",
        "CF-Connecting-IP",
        "True-Client-IP",
    ],
)
def test_without_keys_nothing_that_a_proxy_forwards_passes(app: FastAPI, ask: Ask, header: str) -> None:
    """A proxy on this machine that rewrites the Host would open the service to the world."""
    response = ask(app, "GET", "/predict", headers={header: "127.0.0.1"})

    body = response.json()
    assert (response.status_code, body["type"]) == (403, "/problems/local-only")
    assert header.lower() in body["detail"]
    assert "protoquad keys create" in body["detail"]


@pytest.mark.parametrize("header", ["Host", "Origin", "Sec-Fetch-Site"])
def test_without_keys_a_second_header_hides_nothing(app: FastAPI, ask: Ask, header: str) -> None:
    """Each of several is looked at, whichever a proxy or a parser would take."""
    good = {"Host": "localhost:8000", "Origin": "http://localhost:8000", "Sec-Fetch-Site": "same-origin"}
    headers = [*good.items(), (header, "cross-site")]

    answers = [ask(app, "GET", "/predict", headers=found).status_code for found in (headers, headers[:-1])]

    assert answers == [403, 200]


@pytest.mark.parametrize(
    ("peer", "status"),
    [
        (("127.0.0.1", 5000), 200),
        (("127.8.8.8", 5000), 200),
        (("::1", 5000), 200),
        (("::ffff:127.0.0.1", 5000), 200),
        (("10.0.0.9", 5000), 403),
        (("::ffff:10.0.0.9", 5000), 403),
        (("2001:db8::1", 5000), 403),
        (("testclient", 5000), 403),
        (None, 403),
    ],
)
def test_without_keys_the_connection_must_come_from_this_machine(
    app: FastAPI, ask: Ask, peer: tuple[str, int] | None, status: int
) -> None:
    """A Host header can be made up, the address of a connection cannot."""

    async def from_peer(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "client": peer}, receive, send)

    response = ask(from_peer, "GET", "/predict")

    assert response.status_code == status
    assert status == 200 or "from this machine" in response.json()["detail"]


def test_with_keys_a_proxy_may_forward(app: FastAPI, ring: KeyRing, database: Database, ask: Ask) -> None:
    """Whoever has a key is known, by whichever way the request comes."""
    headers = bearer(make_key(database, ring, "predict")) | {"X-Forwarded-For": "10.0.0.9", "Sec-Fetch-Site": "none"}

    response = ask(app, "GET", "/predict", headers=headers)

    assert response.status_code == 200


# The ring


def test_a_first_key_closes_the_door_at_the_next_refresh(
    app: FastAPI, ring: KeyRing, database: Database, ask: Ask
) -> None:
    """Open access ends for everybody."""
    before = ask(app, "GET", "/predict").status_code
    make_key(database, ring, "predict")

    after = ask(app, "GET", "/predict").status_code

    assert (before, after) == (200, 401)


def test_known_keys_outlive_the_database(
    app: FastAPI, ring: KeyRing, database: Database, ask: Ask, lines: list[Any]
) -> None:
    """With the database gone, who had a key still has it and nobody else gets in; one warning says so, once."""
    key = make_key(database, ring, "predict")
    break_keys(database)
    ring.refresh()
    ring.refresh()

    answers = [ask(app, "GET", "/predict", headers=headers).status_code for headers in (bearer(key), {})]

    assert answers == [200, 401]
    assert [line["event"] for line in lines].count("keys not refreshed") == 1


def test_a_second_outage_is_warned_of_again(ring: KeyRing, database: Database, lines: list[Any]) -> None:
    """Once per outage, not once for ever."""
    break_keys(database)
    ring.refresh()
    mend_keys(database)
    ring.refresh()
    break_keys(database)
    ring.refresh()

    assert [line["event"] for line in lines] == ["keys not refreshed"] * 2


def test_keys_that_were_never_read_open_nothing(app: FastAPI, database: Database, ask: Ask, lines: list[Any]) -> None:
    """A service that starts while its database is down does not take *not known* for *none made*."""
    break_keys(database)
    app.state.keyring = KeyRing(database)
    app.state.keyring.refresh()

    response = ask(app, "GET", "/predict")

    assert (response.status_code, response.json()["type"]) == (503, "/problems/database-unavailable")
    assert "retry-after" in response.headers
    assert lines[0]["event"] == "keys not refreshed"


def break_keys(database: Database) -> None:
    with database.engine.begin() as connection:
        connection.execute(text("ALTER TABLE api_keys RENAME TO hidden"))


def mend_keys(database: Database) -> None:
    with database.engine.begin() as connection:
        connection.execute(text("ALTER TABLE hidden RENAME TO api_keys"))


def test_the_document_shows_where_a_key_goes(app: FastAPI, ask: Ask) -> None:
    """So that /docs has a field to enter it."""
    document = ask(app, "GET", "/openapi.json").json()

    [(name, scheme)] = document["components"]["securitySchemes"].items()
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert document["paths"]["/teach"]["get"]["security"] == [{name: []}]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("[::1]", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.0.1", False),
        ("::ffff:192.168.0.1", False),
        ("localhost.example.org", False),
        ("", False),
    ],
)
def test_only_this_machines_own_addresses_are_loopback(host: str, expected: bool) -> None:
    """For a request's host and for the address that `protoquad serve` listens on."""
    assert is_loopback(host) is expected
