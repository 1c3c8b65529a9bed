"""Server-sent events, from bytes to values, and how long to go on listening. Opens no connection."""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from protoquad_client.answers import OVER, Event
from protoquad_client.errors import ProtoquadError, UnexpectedAnswer, WaitTimeout
from protoquad_client.retrying import MOST_RETRY_AFTER, backoff, is_temporary

SILENCE = 45.0  # seconds without a byte after which a stream counts as broken: a quiet one has a comment every 15
MOST_FAILURES = 10  # in a row, which takes about a minute
MOST_STREAM_FAILURES = 3  # of one wait; something between here and the service may not pass streams on
FIRST_POLL, MOST_POLLS = 0.25, 20  # seconds between polls: 0, 0.25, 0.5 and so on, to 5
LAST_ANSWER = 1.0  # seconds that the service has to answer, however little time is left
NEARLY = 0.8  # of the time that a stream was opened for
LONGEST_LINE = 4_000_000  # bytes
_LINE_END = re.compile(rb"\r\n|\n|\r")


class EventReader:
    """Reads the events of one stream, over as many connections as it takes; `last` is where to go on."""

    def __init__(self, last: str | None = None) -> None:
        self.last = last
        self._waiting = b""
        self._name = ""
        self._id = last  # of the event that is being read
        self._data: list[str] = []

    def headers(self) -> dict[str, str]:
        """Of a request that begins or goes on with the stream."""
        self._waiting, self._name, self._id, self._data = b"", "", self.last, []
        accept = {"Accept": "text/event-stream", "Accept-Encoding": "identity", "Cache-Control": "no-store"}
        return accept if self.last is None else {**accept, "Last-Event-ID": self.last}

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that these bytes complete."""
        *lines, self._waiting = self._lines(self._waiting + chunk)
        if len(self._waiting) > LONGEST_LINE:
            raise UnexpectedAnswer(f"an event has a line of more than {LONGEST_LINE} bytes")
        return list(self._events(lines))

    @staticmethod
    def _lines(text: bytes) -> list[bytes]:
        """The last one is not complete yet; neither is one whose CR may be half of a CRLF."""
        if text.endswith(b"\r"):
            *lines, rest = _LINE_END.split(text[:-1])
            return [*lines, rest + b"\r"]
        return _LINE_END.split(text)

    def _events(self, lines: list[bytes]) -> Iterator[Event]:
        for line in lines:
            name, _, value = line.decode("utf-8", "replace").partition(":")
            value = value.removeprefix(" ")
            if name == "event":
                self._name = value
            elif name == "data":
                self._data.append(value)
            elif name == "id" and "\0" not in value:
                self._id = value
            elif not line:
                self.last = self._id
                if self._data:
                    yield Event(self._name or "message", _object("\n".join(self._data)), self.last)
                self._name, self._data = "", []


def _object(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UnexpectedAnswer(f"the data of an event is not JSON: {text[:80]!r}") from error
    return found if isinstance(found, Mapping) else {"value": found}


class Failures:
    """Failures of a stream in a row."""

    def __init__(self, most: int) -> None:
        self._most = most  # until something has arrived: an address may be wrong
        self._number = 0

    def forget(self) -> None:
        """Something has arrived."""
        self._most, self._number = MOST_FAILURES, 0

    def pause(self, error: ProtoquadError | None = None) -> float:
        """Seconds until the next attempt; raises an error that time does not mend, or too many of the others."""
        self._number += 1
        if error is not None and (self._number > self._most or not is_temporary(error)):
            raise error
        asked = getattr(error, "retry_after", None) or 0.0
        return max(backoff(self._number - 1), min(asked, MOST_RETRY_AFTER))


class Waiting:
    """How to wait for a session: listen to its events, and poll once that has failed a few times.

    A stream that is open cannot be told to hurry, so it is opened for the time that is left, and again towards the end.
    """

    def __init__(self, session_id: int, timeout: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.reader = EventReader()
        self._what = f"session {session_id} was not over after {timeout} seconds"
        self._clock = clock
        self._end = None if timeout is None else clock() + timeout
        self._opened_for = SILENCE
        self._streams_left = MOST_STREAM_FAILURES
        self._polls = 0
        self._failures = Failures(MOST_FAILURES)
        self._asked_to_pause = 0.0

    # What the service says when it is asked for the session

    def seconds_to_ask(self) -> float:
        """That it may take to answer: it is asked once more when the time is over."""
        return float("inf") if self._end is None else max(self._end - self._clock(), LAST_ANSWER)

    def asked(self) -> None:
        """It answered."""
        self._failures.forget()

    def asked_in_vain(self, error: ProtoquadError) -> None:
        """Raises an error that time does not mend, or too many of the others in a row."""
        self._asked_to_pause = self._failures.pause(error)

    # What the stream says

    @property
    def may_listen(self) -> bool:
        return self._streams_left > 0 and not self._asked_to_pause

    def seconds_to_listen(self) -> float:
        """That a stream may be silent if it is opened now. Raises WaitTimeout."""
        self._opened_for = min(SILENCE, self._seconds_left())
        return self._opened_for

    def heard(self, events: Sequence[Event]) -> bool:
        """Whether to ask for the session now: it is over, or there is less time than the stream was opened for."""
        self._polls = 0
        return any(event.name in OVER for event in events) or self._seconds_left() < NEARLY * self._opened_for

    def listened_in_vain(self) -> None:
        self._streams_left -= 1

    def pause(self) -> float:
        """Seconds until the session is asked for again. Raises WaitTimeout."""
        asked, self._asked_to_pause = self._asked_to_pause, 0.0
        self._polls += 1
        return min(max(asked, FIRST_POLL * min(self._polls - 1, MOST_POLLS)), self._seconds_left())

    def _seconds_left(self) -> float:
        left = float("inf") if self._end is None else self._end - self._clock()
        if left <= 0:
            raise WaitTimeout(f"{self._what}; it goes on, so wait longer or ask again later")
        return left
