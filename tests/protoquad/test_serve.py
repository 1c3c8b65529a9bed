"""`protoquad serve` as a user runs it: one command, a worker beside it, and everything still there afterwards."""

import json
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from click.testing import Result

from tests.processes import Running, Service, eventually

Start = Callable[..., Service]
Run = Callable[..., Running]
Invoke = Callable[..., Result]


def test_a_class_is_taught_refined_by_the_worker_and_there_after_a_restart(start: Start) -> None:
    """The embedded default, from the first start to the second; told to stop, it answers what is in flight."""
    service = start()
    for name in ("red", "green", "blue"):
        answer = service.teach(name, name)
        assert answer.status_code == 202
        assert service.nearest(name) == name
    session = answer.json()["session"]["id"]
    outcome = service.session_over(session)
    answers = service.predict("red")
    _stop_during_a_request(service, signal.SIGTERM)

    assert outcome["status"] == "succeeded"
    again = start(PROTOQUAD_WORKER="false")
    assert [item["name"] for item in again.everything("/classes")] == ["red", "green", "blue"]
    assert all(item["status"] == "learned" for item in again.everything("/classes"))
    assert again.predict("red", version=answers["version"]) == answers


def _stop_during_a_request(service: Service, number: int) -> None:
    """A request whose body is half there is waited for and answered; then no process is left."""
    children = psutil.Process(service.process.pid).children(recursive=True)
    body = json.dumps({"images": ["iVBORw0KGgo="]}).encode()
    place = urlsplit(service.url)
    service.client.close()
    with socket.create_connection((place.hostname, place.port), timeout=60) as connection:
        head = f"POST /predict HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:5])
        eventually(lambda: connection.getsockname() in _callers(service))
        service.process.send_signal(number)
        service.wait_for("Shutting down")
        connection.sendall(body[5:])
        answer = connection.recv(65536).decode()

    assert answer.startswith("HTTP/1.1 422")  # half a picture is refused, but it is answered
    assert service.process.wait(60) == 0
    assert children
    assert not [child for child in children if child.is_running()]
    assert all({"event", "level", "timestamp"} <= set(line) for line in service.lines)  # a collector can read them


def _callers(service: Service) -> set[tuple[str, int]]:
    """The addresses whose connections the service has accepted."""
    connections = psutil.Process(service.process.pid).net_connections("tcp")
    return {tuple(one.raddr) for one in connections if one.raddr}


def test_a_second_service_on_a_home_is_refused_and_an_event_stream_does_not_hold_up_the_end(
    start: Start, run: Run
) -> None:
    """Two of them would share nothing but a database. Whoever watches is let go at once, not when patience runs out."""
    service = start(PROTOQUAD_WORKER="false")
    session = service.teach("red", "red").json()["session"]["id"]
    second = run("serve", "--port", "0")
    with service.client.stream("GET", f"/sessions/{session}/events") as stream:
        events = stream.iter_lines()
        assert next(events).startswith("id: ")
        service.process.send_signal(signal.SIGTERM)
        rest = list(events)

    assert second.process.returncode == 2
    assert f"(process {service.process.pid})" in second.last_words
    assert service.process.wait(20) == 0
    assert not [line for line in rest if "succeeded" in line]


def test_a_worker_that_ends_is_started_again(start: Start) -> None:
    """Whatever killed it, sessions go on; the id of a request finds every line about a class, in both processes.

    Ctrl-C then ends both.
    """
    service = start()
    (worker,) = psutil.Process(service.process.pid).children()
    eventually(lambda: any(line["event"] == "worker ready" for line in service.lines))
    worker.kill()

    service.wait_for("the worker has ended; starting it again")
    answer = service.teach("red", "red", **{"X-Request-ID": "trace-me-7"})
    session = answer.json()["session"]["id"]
    assert service.session_over(session)["status"] == "succeeded"
    events = [line["event"] for line in service.lines if line.get("request_id") == "trace-me-7"]
    assert "request" in events
    assert "session started" in events
    _stop_during_a_request(service, signal.SIGINT)


def test_a_public_address_needs_a_key(run: Run) -> None:
    """Open to the machine itself only, until somebody says who may call."""
    refused = run("serve", "--host", "0.0.0.0", "--port", "0")

    assert refused.process.returncode == 2
    assert "protoquad keys create" in refused.last_words


def test_a_public_address_is_served_to_those_who_have_a_key_for_as_long_as_it_is_valid(
    tmp_path: Path, start: Start, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strangers are refused on the loopback address too; a revoked key stops working at the next look for news."""
    monkeypatch.setenv("PROTOQUAD_HOME", str(tmp_path / "home"))
    invoke("migrate")
    keys = [invoke("keys", "create", name, "--scope", "predict").stdout.strip() for name in ("old", "new")]
    service = start(PROTOQUAD_HOST="0.0.0.0", PROTOQUAD_WORKER="false")
    service.client.base_url = f"http://127.0.0.1:{urlsplit(service.url).port}"

    def status(path: str, **headers: str) -> int:
        return service.client.get(path, headers=headers).status_code

    known = {"Authorization": f"Bearer {keys[0]}"}
    assert status("/classes", **known) == 200
    assert status("/classes") == 401
    assert status("/livez") == 200
    invoke("keys", "revoke", keys[0].split("_")[1])
    eventually(lambda: status("/classes", **known) == 401)
    assert status("/classes", Authorization=f"Bearer {keys[1]}") == 200


def test_a_port_that_is_taken_is_named(run: Run) -> None:
    """A sentence, not a traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = run("serve", "--port", str(port))

    assert refused.process.returncode == 2
    assert f"127.0.0.1:{port}" in refused.last_words
    assert "Traceback" not in refused.last_words


def test_a_setting_that_cannot_be_used_is_named(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the variable that must be changed; every command reads the settings first."""
    monkeypatch.setenv("PROTOQUAD_MAX_IMAGES", "many")

    refused = invoke("migrate")

    assert refused.exit_code == 2
    assert "PROTOQUAD_MAX_IMAGES" in refused.stderr
