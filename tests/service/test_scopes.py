"""Every route asks for the scope that is documented for it, and for no more."""

from typing import Any

import pytest

from service.app import create_app
from store.database import Database
from store.settings import Settings

OPEN = ("/livez", "/readyz", "/docs", "/openapi.json", "/v2/health/live", "/v2/health/ready")
SCOPES = ("predict", "teach", "admin")
STAND_INS = {
    **{"{model}": "default", "{class_id}": "1", "{number}": "0", "{session_id}": "1"},
    **{"{sample}": "1", "{shot}": "1", "{key_id}": "00000000", "{webhook_id}": "wh_0", "{version}": "0"},
}


def routes() -> list[tuple[str, str]]:
    """Method and path of every route, as the application itself documents them."""
    paths = create_app(Settings(), Database("sqlite://")).openapi()["paths"]
    documented = [(method.upper(), path) for path, methods in paths.items() for method in methods]
    return sorted({*documented, ("GET", "/docs"), ("GET", "/openapi.json")})


def documented_scope(method: str, path: str) -> str | None:
    if path in OPEN:
        return None
    if path.endswith("/activate") or (method != "GET" and path in ("/models", "/models/{model}")):
        return "admin"
    if path.startswith("/keys") or path.endswith(("/export", "/models/import", "/base")) or "/webhooks" in path:
        return "admin"
    if "/inbox" in path:
        return "teach"
    return "predict" if method == "GET" or path.endswith(("/predict", "/infer")) else "teach"


def asked(service: Any, method: str, path: str, key: str | None) -> int:
    for name, value in STAND_INS.items():
        path = path.replace(name, value)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with service.http.stream(method, path, headers=headers) as answer:  # some never end
        status: int = answer.status_code
    return status


@pytest.mark.parametrize(("method", "path"), routes())
def test_a_route_needs_its_scope(locked_service: Any, method: str, path: str) -> None:
    """No key: 401. A smaller scope: 403. The scope itself, and each larger one, is let through."""
    scope = documented_scope(method, path)

    without = asked(locked_service, method, path, None)
    answers = {name: asked(locked_service, method, path, locked_service.keys[name]) for name in SCOPES}

    enough = SCOPES if scope is None else SCOPES[SCOPES.index(scope) :]
    assert (without == 401) == (scope is not None)
    assert [name for name, status in answers.items() if status == 403] == [n for n in SCOPES if n not in enough]
    assert 401 not in answers.values()
    assert all(status < 500 for status in answers.values())


def test_every_route_is_there_at_the_root_and_under_a_model() -> None:
    """The list above is whole: each resource's route comes twice, and the others are counted."""
    found = routes()

    resources = {"predict", "classes", "sessions", "versions", "events", "inbox", "base", "webhooks"}
    rooted = {(m, p) for m, p in found if p.split("/")[1] in resources}
    assert {(m, f"/models/{{model}}{p}") for m, p in rooted} <= set(found)
    assert len(rooted) == 35
    assert len(found) == 2 * len(rooted) + 4 + 5 + 5 + 2 + 9


@pytest.mark.parametrize("key", ["nonsense", "pq_00000000_" + "0" * 64])
def test_a_key_that_was_never_made_opens_nothing(locked_service: Any, key: str) -> None:
    """It is not treated as no key, nor as any other."""
    assert asked(locked_service, "GET", "/classes", key) == 401
    assert asked(locked_service, "GET", "/livez", key) == 200


@pytest.mark.parametrize("path", ["/predict?top_k=1", "/models/{model}/predict?version=0"])
def test_a_query_changes_nothing_about_who_may_predict(locked_service: Any, path: str) -> None:
    """It is read after the key."""
    assert asked(locked_service, "POST", path, None) == 401
    assert asked(locked_service, "POST", path, "nonsense") == 401
    assert asked(locked_service, "POST", path, locked_service.keys["predict"]) == 415


@pytest.mark.parametrize("path", [*OPEN, "/docs-assets/swagger-ui.css"])
def test_without_keys_health_and_documents_are_open_to_proxies(service: Any, path: str) -> None:
    """A proxy's own check gets through to a service that takes no forwarded requests; neither says anything private."""
    forwarded = {"Host": "api.example.org", "X-Forwarded-For": "203.0.113.9", "Sec-Fetch-Site": "cross-site"}

    answers = [service.http.get(where, headers=forwarded).status_code for where in (path, "/classes", "/metrics")]

    assert answers == [200, 403, 403]
