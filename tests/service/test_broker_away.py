"""A Redis that drops packets is felt by nobody who asks: requests take as long as with one, or with none."""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unanswering import unanswering

Times = dict[tuple[str, str], list[float]]
ROUNDS = 24
BATCHES = 4  # at most: more figures quieten a busy machine, and none that waits for Redis
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
        took: Times = defaultdict(list)
        for _ in range(BATCHES):
            _take_turns(learners, {"images": draw("red")}, took)
            ratios = _ratios(took)
            if max(ratios.values()) < MOST:
                break
        probes = [learners["dropping"].service.http.get(path).status_code for path in ("/livez", "/readyz")]

    print(ratios, {key: f"{1000 * statistics.median(times):.1f} ms" for key, times in took.items()})
    assert probes == [200, 200]
    assert max(ratios.values()) < MOST, ratios


def _take_turns(learners: dict[str, Any], image: dict[str, bytes], took: Times) -> None:
    for number in range(ROUNDS):
        for place in range(3):
            name = [*learners][(number + place) % 3]  # nobody is always first
            known = len(took[name, "teach"])
            took[name, "teach"].append(_seconds(learners[name].teach, "red", f"class {known}"))
            took[name, "predict"] += [_seconds(learners[name].post, "/predict", files=image) for _ in range(2)]


def _ratios(took: Times) -> dict[str, float]:
    medians = {key: statistics.median(times[2:]) for key, times in took.items()}  # the first ones warm up
    return {
        f"{what}, dropping to {other}": round(medians["dropping", what] / medians[other, what], 2)
        for what in ("teach", "predict")
        for other in ("none", "healthy")
    }


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
