"""What changes on one replica is so on the other within a second: by Redis, or by looking where there is none."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from sqlalchemy import event

from messaging.notifier import make_notifier
from tests.service.conftest import QUICK
from tests.unanswering import unanswering
from workers.session_worker import SessionWorker

SECONDS_TO_HEAR = 1.0
SLACK = 3.0  # seconds more, for a machine that is busy; where Redis tells, a look would take thirty
SELDOM = 30.0


class Clock:
    """When a replica last committed something."""

    def __init__(self, engine: Any) -> None:
        self.at = float("-inf")
        event.listen(engine, "commit", self._tick)

    def _tick(self, _: Any) -> None:
        self.at = time.monotonic()


class Pair:
    """The default model, as each of two replicas knows it."""

    def __init__(self, start: Callable[..., Any], **settings: Any) -> None:
        self.here = start(replica=True, **settings).learner()
        self.there = start(replica=True, **settings).learner()
        self.clock = Clock(self.here.service.database.engine)
        self.took: dict[str, float] = {}

    def agree(self, what: str, seen: Callable[[Any], bool]) -> None:
        """Wait until it is seen on both, and note how long after the commit that was."""
        committed = self.clock.at
        while not (seen(self.there) and seen(self.here)):
            assert time.monotonic() - committed < SECONDS_TO_HEAR + SLACK, f"{what}: not heard in time; {self.took}"
        self.took[what] = round(time.monotonic() - committed, 3)
        looks = ("red", "green", "stripes")
        assert self.there.predict_one_by_one(*looks) == self.here.predict_one_by_one(*looks)
        assert self.there.get("/versions") == self.here.get("/versions")


@pytest.fixture(params=["redis", "looking", "redis away"])
def pair(request: pytest.FixtureRequest, start: Callable[..., Any], tmp_path: Any) -> Iterator[Pair]:
    """Told by Redis and looking every thirty seconds; or looking every half second, as without settings."""
    if request.param == "redis":
        yield Pair(start, broker_url=request.getfixturevalue("redis_url"), poll_seconds=SELDOM)
    elif request.param == "looking":
        yield Pair(start, poll_seconds=0.5)
    else:
        with unanswering("packets dropped", tmp_path) as url:
            yield Pair(start, broker_url=url, poll_seconds=0.5)


@pytest.mark.parametrize("backend", ["postgresql"])
def test_every_change_is_known_to_the_other_replica_within_a_second(pair: Pair) -> None:
    """A class, a refined version, an activation, a rename, a deletion, and a model's end."""
    here, settings = pair.here, pair.here.service.settings

    red, _ = here.taught("red", "green")
    pair.agree("class", lambda there: there.labels("red", "green") == ["red", "green"])
    with closing(make_notifier(settings.broker_url)) as telling:
        assert SessionWorker(here.service.database, settings, "test", config=QUICK, notifier=telling).run_next()
        refined = here.version
        pair.agree("promoted version", lambda there: there.predict("red")["version"] == refined)
    here.activate(2)
    pair.agree("activation", lambda there: there.predict("red")["version"] == 2)
    here.rename(red["id"], "scarlet")
    pair.agree("rename", lambda there: there.labels("red") == ["scarlet"])
    here.delete(red["id"])
    pair.agree("deletion", lambda there: "scarlet" not in _named(there))

    birds = [one.service.learner("birds") for one in (here, pair.there)]
    here.service.http.post("/models", json={"name": "birds"})
    assert birds[1].predict("red")["version"] == 0
    here.service.http.delete("/models/birds")
    committed = pair.clock.at
    while any(served.model == "birds" for served in pair.there.service.context.versions.all_active()):
        assert time.monotonic() - committed < SECONDS_TO_HEAR + SLACK, "the model's end was not heard in time"
    print(f"seconds from commit to the other replica: {pair.took}")
    assert refined == 3, "the session's version was promoted"


def _named(learner: Any) -> set[str]:
    return {one["label"] for one in learner.predict("red")["predictions"][0]["top"]}
