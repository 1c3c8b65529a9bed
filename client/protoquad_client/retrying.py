"""When a request is sent again, and after how long. Decides only: the clients send and sleep."""

import random
from collections.abc import Callable

from protoquad_client.errors import IdempotencyKeyInFlight, NothingSent, ProtoquadError, ServiceUnreachable
from protoquad_client.problems import is_problem, problem_of
from protoquad_client.requests import Answer, Repeat, Request

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0  # seconds
JITTER = 0.25  # of a pause that may be left out, so that many clients do not come back at once
MOST_RETRY_AFTER = 60.0  # seconds; a service that wants more than that is not waited for that long
TEMPORARY = frozenset([408, 429, 500, 502, 503, 504])


def backoff(retry: int, chance: Callable[[], float] = random.random) -> float:
    """Seconds before this retry, counted from 0."""
    return float(min(FIRST_PAUSE * 2.0 ** min(retry, 10), LONGEST_PAUSE) * (1 - JITTER * chance()))


class Attempts:
    """The attempts of one call."""

    def __init__(self, request: Request[object], retries: int, chance: Callable[[], float] = random.random) -> None:
        self._repeat = request.repeat
        self._left = 0 if request.repeat is Repeat.NEVER else retries
        self._retry = 0
        self._chance = chance

    def after_error(self, error: ServiceUnreachable) -> float:
        """Seconds until the next attempt; raises the error if there is none."""
        allowed = self._repeat is not Repeat.UNSAFE or isinstance(error, NothingSent)
        if not allowed or not self._left:
            raise error
        return self._pause(None)

    def after_answer(self, answer: Answer) -> float | None:
        """Seconds until the next attempt, None if this is the answer; raises a problem that is final."""
        if not is_problem(answer):
            return None
        problem = problem_of(answer)
        temporary = answer.status in TEMPORARY or isinstance(problem, IdempotencyKeyInFlight)
        if not temporary or self._repeat is Repeat.UNSAFE or not self._left:
            raise problem
        return self._pause(problem.retry_after)

    def _pause(self, asked: float | None) -> float:
        self._left -= 1
        self._retry += 1
        if asked is not None and 0 < asked <= MOST_RETRY_AFTER:
            return asked
        return backoff(self._retry - 1, self._chance)


def is_temporary(error: ProtoquadError) -> bool:
    """Whether a stream that ended with this is worth opening again."""
    return isinstance(error, ServiceUnreachable) or getattr(error, "status", 0) in TEMPORARY
