"""`/whoami`, `/keys` and `/about`: who calls, who may call, and what is running."""

from collections.abc import Callable
from typing import Any

import pytest

Start = Callable[..., Any]


def asked(service: Any, method: str, path: str, key: str | None = None, **options: Any) -> Any:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return service.http.request(method, path, headers=headers, **options)


def test_an_open_service_asks_for_no_key(service: Any) -> None:
    """Everything is allowed, and it says so."""
    assert asked(service, "GET", "/whoami").json() == {
        "key_id": None,
        "name": None,
        "scopes": ["predict", "teach", "admin"],
        "keys_required": False,
    }


@pytest.mark.parametrize(
    ("scope", "expected"),
    [("predict", ["predict"]), ("teach", ["predict", "teach"]), ("admin", ["predict", "teach", "admin"])],
)
def test_a_key_knows_what_it_may_do(locked_service: Any, scope: str, expected: list[str]) -> None:
    """A scope includes the smaller ones; no part of the secret is shown."""
    key = locked_service.keys[scope]

    answer = asked(locked_service, "GET", "/whoami", key).json()

    assert answer == {"key_id": key.split("_")[1], "name": scope, "scopes": expected, "keys_required": True}


def test_a_key_is_made_used_and_revoked(locked_service: Any) -> None:
    """It is shown once; from then on only its id is."""
    admin = locked_service.keys["admin"]

    made = asked(locked_service, "POST", "/keys", admin, json={"name": "camera", "scopes": ["predict"]})
    own = made.json()
    before = asked(locked_service, "GET", "/whoami", own["key"])
    gone = asked(locked_service, "DELETE", f"/keys/{own['id']}", admin)
    after = asked(locked_service, "GET", "/whoami", own["key"])

    listed = {one["id"]: one for one in asked(locked_service, "GET", "/keys", admin).json()["items"]}
    assert (made.status_code, made.headers["cache-control"]) == (201, "no-store")
    assert (before.json()["name"], gone.status_code, after.status_code) == ("camera", 204, 401)
    assert listed[own["id"]]["revoked_at"] is not None
    assert all("key" not in one and "digest" not in one for one in listed.values())


def test_the_first_key_ends_open_access(start: Start) -> None:
    """It must be one that can make others."""
    service = start()

    refused = asked(service, "POST", "/keys", json={"name": "camera", "scopes": ["predict"]})
    made = asked(service, "POST", "/keys", json={"name": "me", "scopes": ["admin"]})

    assert (refused.status_code, "admin" in refused.json()["detail"]) == (409, True)
    assert made.status_code == 201
    assert asked(service, "GET", "/classes").status_code == 401
    assert asked(service, "GET", "/classes", made.json()["key"]).status_code == 200


@pytest.mark.parametrize(
    "body", [{"name": "", "scopes": ["admin"]}, {"name": "x", "scopes": []}, {"name": "x", "scopes": ["root"]}]
)
def test_a_key_without_a_name_or_a_scope_is_refused(locked_service: Any, body: Any) -> None:
    """With the field at fault."""
    answer = asked(locked_service, "POST", "/keys", locked_service.keys["admin"], json=body)

    assert answer.status_code == 422
    assert answer.json()["errors"]


def test_revoking_a_key_that_does_not_exist_is_not_found(locked_service: Any) -> None:
    """Nothing else is revoked."""
    answer = asked(locked_service, "DELETE", "/keys/ffffffff", locked_service.keys["admin"])

    assert answer.status_code == 404


def test_about_says_what_is_running(service: Any) -> None:
    """Limits are those of the settings; workers are those of earlier tests, if any."""
    about = asked(service, "GET", "/about").json()

    assert (about["release"], about["backbone"], about["engine"], about["device"]) == (
        "0.1.0",
        "resnet32",
        "torch",
        "cpu",
    )
    assert about["limits"]["max_images"] == service.settings.max_images
    assert (about["default_model"], about["capture"]) == ("default", "off")
    assert about["workers"].keys() == {"alive", "last_seen"}
    assert about["queue"]["images"] == 0
    assert about["memory_bytes"] > 10**7
    assert about["uptime_seconds"] > 0
