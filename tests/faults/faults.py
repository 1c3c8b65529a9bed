"""What can be injected. Each fault has a beginning and an end; between them the service has to live with it."""

import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.faults.embedded import EmbeddedStage
from tests.faults.stage import LEASE, Stage

Action = Callable[[], object]


@dataclass(frozen=True)
class Fault:
    """An entry of a schedule: what, to whom, how many seconds into the round, and for how long."""

    kind: str
    victim: int
    at: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.kind} {self.victim + 1} at {self.at:.2f} s for {self.seconds:.2f} s"


# Kind -> how long it lasts at least and at most.
DEPLOYED: dict[str, tuple[float, float]] = {
    "kill worker": (0.0, 2.0),
    "kill replica": (0.0, 2.0),
    "kill everybody": (0.0, 1.0),
    "pause worker": (1.3 * LEASE, 2.0 * LEASE),
    "pause replica": (0.5, 2.0 * LEASE),
    "flush redis": (0.0, 0.0),
    "kill redis": (0.0, 4.0),
    "pause redis": (0.5, 4.0),
    "stop postgresql": (0.0, 2.0),
    "crash postgresql": (0.0, 2.0),
}
ON_A_SMALL_DISK: dict[str, tuple[float, float]] = {
    "fill the disk": (1.0, 5.0),
    "fill the disk and kill": (1.0, 3.0),
}
ANYWHERE: dict[str, tuple[float, float]] = {
    "use up the quota": (1.0, 5.0),
    "kill service": (0.0, 1.0),
}


def deployed(fault: Fault, stage: Stage) -> tuple[Action, Action]:
    """How it begins and how it ends."""
    worker = stage.workers[fault.victim % len(stage.workers)]
    replica = stage.replicas[fault.victim % len(stage.replicas)]
    redis = stage.redis
    actions: dict[str, tuple[Action, Action]] = {
        "kill worker": (worker.kill, worker.start),
        "kill replica": (replica.kill, replica.start),
        "kill everybody": (stage.kill_parts, stage.start_parts),
        "pause worker": (worker.pause, worker.resume),
        "pause replica": (replica.pause, replica.resume),
        "flush redis": (redis.flush, _nothing),
        "kill redis": (redis.kill, redis.start),
        "pause redis": (partial(redis.send, signal.SIGSTOP), partial(redis.send, signal.SIGCONT)),
        "stop postgresql": (partial(stage.stop_postgresql, "fast"), stage.start_postgresql),
        "crash postgresql": (partial(stage.stop_postgresql, "immediate"), stage.start_postgresql),
    }
    return actions[fault.kind]


def embedded(fault: Fault, stage: EmbeddedStage) -> tuple[Action, Action]:
    (service,) = stage.replicas

    def fill_and_kill() -> None:
        stage.disk.fill()
        service.kill()
        service.start()  # on a full disk

    actions: dict[str, tuple[Action, Action]] = {
        "fill the disk": (stage.disk.fill, stage.disk.make_room),
        "fill the disk and kill": (fill_and_kill, stage.disk.make_room),
        "use up the quota": (stage.use_up_quota, partial(stage.limit, resource.RLIM_INFINITY)),
        "kill service": (service.kill, service.start),
    }
    return actions[fault.kind]


def _nothing() -> None:
    """A flush is over as soon as it has begun."""
