"""A Redis that drops packets is felt by nobody who asks: requests take as long as with one, or with none."""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unanswering import unanswering

ROUNDS = 24
MOST = 1.5  # times as long; it is measured on machines that do other things too


@pytest.mark.parametrize("backend", ["postgresql"])
def test_requests_take_as_long_whatever_redis_does(
    start: Callable[..., Any], redis_url: str, tmp_path: Path, draw: Callable[..., bytes]
) -> None:
    """Teaching and predicting in turn with Redis, with one that drops packets and with none; and it is ready."""
    with unanswering("packets dropped", tmp_path) as dropping:
        learners = {
            name: _learner(start(replica=True, broker_url=url, poll_seconds=30, session_delay=0.2), name)
            for name, url in {"none": "", "healthy": redis_url, "dropping": dropping}.items()
        }
        took: dict[tuple[str, str], list[float]] = defaultdict(list)
        image = {"images": draw("red")}
        for number in range(ROUNDS):
            for place in range(3):
                name = [*learners][(number + place) % 3]  # nobody is always first
                took[name, "teach"].append(_seconds(learners[name].teach, "red", f"class {number}"))
                took[name, "predict"] += [_seconds(learners[name].post, "/predict", files=image) for _ in range(2)]
        probes = [learners["dropping"].service.http.get(path).status_code for path in ("/livez", "/readyz")]

    medians = {key: statistics.median(times[2:]) for key, times in took.items()}  # the first ones warm up
    ratios = {
        f"{what}, dropping to {other}": round(medians["dropping", what] / medians[other, what], 2)
        for what in ("teach", "predict")
        for other in ("none", "healthy")
    }
    print(f"{ratios}; medians in ms: { {' '.join(key): round(1000 * value, 1) for key, value in medians.items()} }")
    assert probes == [200, 200]
    assert max(ratios.values()) < MOST, ratios


def _learner(service: Any, name: str) -> Any:
    """A model of its own, so that none waits for another."""
    assert service.http.post("/models", json={"name": name}).status_code == 201
    return service.learner(name)


def _seconds(ask: Callable[..., Any], *arguments: Any, **options: Any) -> float:
    started = time.perf_counter()
    answer = ask(*arguments, **options)
    took = time.perf_counter() - started
    assert answer.status_code in {200, 202}, answer.text
    return took
