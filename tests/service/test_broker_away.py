"""A Redis that drops packets is noticed by no caller: requests are answered, and the service is ready."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unanswering import unanswering


@pytest.mark.parametrize("backend", ["postgresql"])
def test_requests_are_answered_whatever_redis_does(
    start: Callable[..., Any], tmp_path: Path, draw: Callable[..., bytes]
) -> None:
    """Teaching, predicting and health, while nothing that is sent to Redis is answered.

    What that costs is measured by `protoquad bench overheads`.
    """
    with unanswering("packets dropped", tmp_path) as dropping:
        learner = start(replica=True, broker_url=dropping, poll_seconds=30, session_delay=0.2).learner()
        taught = [learner.teach("red", f"class {number}").status_code for number in range(5)]
        predicted = learner.post("/predict", files={"images": draw("red")}).status_code
        probes = [learner.service.http.get(path).status_code for path in ("/livez", "/readyz")]

    assert taught == [202] * 5
    assert [predicted, *probes] == [200, 200, 200]
