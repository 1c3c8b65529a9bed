"""The receiver that the page on integrations shows verifies what is sent, and takes an event once."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network

import pytest

from messaging.webhook_sender import Sender
from store.webhooks import EVENTS
from tests.docs.pages import blocks, section, tables, text_of
from tests.processes import eventually
from tests.redis_server import free_port

PAGE = section(text_of("docs/integrations.md"), "Webhooks")
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@contextmanager
def example() -> Iterator[tuple[str, list[str]]]:
    """The example as a process: where it listens, and what it prints."""
    (program,) = blocks(PAGE, "python")
    port, printed = free_port(), list[str]()
    environment = {**os.environ, "WEBHOOK_SECRET": SECRET, "PORT": str(port)}
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    reader = threading.Thread(target=lambda: printed.extend(process.stdout or ()), daemon=True)
    reader.start()
    yield f"http://127.0.0.1:{port}/", printed
    process.kill()
    process.wait()
    reader.join()
    process.stdout.close()


def send(url: str, *, secret: str = SECRET, ago: timedelta = timedelta()) -> int | None:
    sender = Sender([ip_network("127.0.0.1")], seconds=10)
    moment = datetime.now(UTC) - ago
    return asyncio.run(sender.send(url, secret, "msg_1", moment, json.dumps({"type": "webhook.test"}))).status


def test_the_receiver_of_the_page_verifies_and_takes_an_event_once() -> None:
    """Another secret, or an old delivery, is refused; a second delivery is accepted and not taken again."""
    with example() as (url, printed):
        first = eventually(lambda: send(url))
        answers = [send(url), send(url, secret=f"whsec_{'A' * 32}"), send(url, ago=timedelta(minutes=10))]

    assert (first, answers) == (204, [204, 401, 401])
    assert printed == ["{'type': 'webhook.test'}\n"]


def test_the_page_lists_every_event() -> None:
    """And no other."""
    assert [row[0].strip("`") for row in tables(PAGE)[0]] == list(EVENTS)


@pytest.mark.parametrize("block", blocks(PAGE, "json"))
def test_the_event_of_the_page_has_the_form_of_one(block: str) -> None:
    """The fields of the table."""
    shown = json.loads(block)
    (fields,) = (row[2] for row in tables(PAGE)[0] if row[0].strip("`") == shown["type"])

    assert shown.keys() == {"type", "timestamp", "data"}
    assert [f"`{name}`" for name in shown["data"] if name != "model"] == fields.split(", ")
