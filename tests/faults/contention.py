"""Many workers, few models: each session is published once, one at a time per model, models in parallel.

Meanwhile workers are stopped in the middle of a session until another has taken it over, and then continued: they find
their lease lost and change nothing.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from typing import Any

from sqlalchemy import select

from store.models import Model, SessionEvent, SessionRow, Version
from store.sessions import FINISHED
from tests.faults.drawn_images import COLOURS, picture
from tests.faults.ledger import SHOTS
from tests.faults.stage import Part, Stage, until

KEPT = 3  # classes of a model at a time: sessions stay short
WRITTEN = {"version promoted", "version rejected"}
PATIENCE = 600.0  # seconds for one session to begin: all the others may come first


class Contention:
    """Teaches every model as fast as its sessions begin, and stops workers as they run them."""

    def __init__(
        self, stage: Stage, models: int, sessions: int, pauses: int, seed: int, tell: Callable[[str], object]
    ) -> None:
        self.stage = stage
        self.tell = tell
        self.models = [f"model-{number}" for number in range(1, models + 1)]
        self.per_model = sessions // models
        self.pauses = pauses
        self.seed = seed
        self.complaints: list[str] = []
        self.checks: Counter[str] = Counter()
        self.taken_over = 0
        self.longest = 0.0  # seconds until a session was taken over: more where its worker was stopped while writing
        self._taught = threading.Event()

    def run(self) -> bool:
        began = time.monotonic()
        client = self.stage.replicas[0].client
        for model in self.models:
            client.post("/models", json={"name": model}).raise_for_status()
        teachers = [threading.Thread(target=self._guarded, args=(self._teach, model)) for model in self.models]
        pausing = threading.Thread(target=self._guarded, args=(self._pause_workers,))
        for thread in (*teachers, pausing):
            thread.start()
        for thread in teachers:
            thread.join()
        self._taught.set()
        pausing.join()
        self._guarded(self._judge)
        self.tell(self._report(time.monotonic() - began))
        return not self.complaints

    def _guarded(self, work: Callable[..., None], *arguments: object) -> None:
        try:
            work(*arguments)
        except Exception as error:  # in a thread, where nobody would hear of it
            self.complaints.append(f"{type(error).__name__}: {error}")

    def _teach(self, model: str) -> None:
        """Each lesson makes a session of its own, because the one before has begun by then."""
        client = self.stage.replicas[0].client
        taught: list[int] = []
        for number in range(self.per_model):
            if len(taught) == KEPT:
                client.delete(f"/models/{model}/classes/{taught.pop(0)}").raise_for_status()
            colour = list(COLOURS)[number % len(COLOURS)]
            shots = [("shots", picture(colour, SHOTS * number + place)) for place in range(SHOTS)]
            answer = client.post(f"/models/{model}/classes", data={"name": colour}, files=shots)
            body = answer.raise_for_status().json()
            taught.append(body["class"]["id"])
            until(f"session {body['session']['id']} begins", self._begun(body["session"]["id"]), PATIENCE)
            if number % 10 == 9:
                self.tell(f"contention: {number + 1} sessions of {model} have begun")

    def _begun(self, session_id: int) -> Callable[[], bool]:
        return lambda: self._session(session_id).status != "queued"

    def _session(self, session_id: int) -> SessionRow:
        with self.stage.database.read() as db:
            return db.get_one(SessionRow, session_id)

    def _pause_workers(self) -> None:
        dice = random.Random(self.seed)
        for _ in range(self.pauses):
            if self._taught.is_set() or not (running := self._running()):
                return
            self._paused_until_taken_over(dice.choice(running))

    def _running(self) -> list[SessionRow]:
        """Sessions that somebody runs, as soon as there are any."""

        def look() -> list[SessionRow]:
            with self.stage.database.read() as db:
                found = select(SessionRow).where(SessionRow.status == "running", SessionRow.owner.is_not(None))
                return list(db.scalars(found))

        until("a session runs", lambda: bool(look()) or self._taught.is_set(), PATIENCE)
        return look()

    def _paused_until_taken_over(self, session: SessionRow) -> None:
        worker = self._owner(session)
        worker.pause()
        began = time.monotonic()
        try:
            now = until("it is taken over", lambda: self._moved_on(session), PATIENCE)
        finally:
            worker.resume()
        if now.attempt == session.attempt:  # it was over already
            return
        self.taken_over += 1
        self.longest = max(self.longest, time.monotonic() - began)
        until(f"{worker.name} lets go of session {session.id}", lambda: _let_go(worker, session), PATIENCE)

    def _moved_on(self, before: SessionRow) -> SessionRow | None:
        now = self._session(before.id)
        return now if now.attempt > before.attempt or now.status in FINISHED else None

    def _owner(self, session: SessionRow) -> Part:
        pid = int(str(session.owner).rpartition(":")[2])
        return next(worker for worker in self.stage.workers if worker.pid == pid)

    def _judge(self) -> None:
        until("every session is over", self._all_over, PATIENCE)
        with self.stage.database.read() as db:
            names = {model.id: model.name for model in db.scalars(select(Model))}
            rows = list(db.scalars(select(SessionRow).order_by(SessionRow.id)))
            made = Counter(db.scalars(select(Version.session_id).where(Version.session_id.is_not(None))))
            told = list(db.scalars(select(SessionEvent).order_by(SessionEvent.id)))
        events: dict[int, list[SessionEvent]] = {}
        for event in told:
            events.setdefault(event.session_id, []).append(event)
        written = self._written()
        spans: dict[str, list[tuple[datetime, datetime]]] = {}
        for row in rows:
            what = f"session {row.id} of {names[row.model_id]}, attempt {row.attempt}"
            self._check("session succeeded", row.status == "succeeded", f"{what}: {row.status}, {row.error}")
            self._check("session published once", made[row.id] == (row.verdict is not None), f"{what}: {made[row.id]}")
            ends = [event.event for event in events[row.id] if event.event in FINISHED]
            last = events[row.id][-1].event
            self._check("nothing follows a session's end", ends == [last], f"{what}: {ends}, {last}")
            expected = [row.attempt] if row.verdict else []
            self._check("only the last attempt writes", written.get(row.id, []) == expected, f"{what}: {written}")
            running = [event.at for event in events[row.id] if event.event == "running"]
            spans.setdefault(names[row.model_id], []).append((running[0], events[row.id][-1].at))
        self._check(
            "as many sessions as were asked for", len(rows) >= self.per_model * len(self.models), f"{len(rows)}"
        )
        for model, own in spans.items():
            own.sort()
            apart = all(end <= start for (_, end), (start, _) in pairwise(own))
            self._check("one session of a model at a time", apart, model)
        self._check("models in parallel", _most_at_once(spans) > 1, str(spans))

    def _all_over(self) -> bool:
        with self.stage.database.read() as db:
            return not db.scalars(select(SessionRow.id).where(SessionRow.status.not_in(FINISHED))).all()

    def _written(self) -> dict[int, list[int]]:
        """Of each session the attempts that say they have written a version."""
        found: dict[int, list[int]] = {}
        for worker in self.stage.workers:
            for line in worker.lines():
                if line.get("event") in WRITTEN:
                    found.setdefault(line["session"], []).append(line["attempt"])
        return found

    def _check(self, what: str, holds: bool, complaint: str) -> None:
        self.checks[what] += 1
        if not holds:
            self.complaints.append(f"{what}: {complaint}")

    def _report(self, seconds: float) -> str:
        verdict = "FAILED" if self.complaints else "everything held"
        lines = [
            f"contention: {len(self.stage.workers)} workers, {len(self.models)} models, {self.per_model} sessions each "
            f"in {seconds:.0f} s with seed {self.seed}: {verdict}",
            f"    {self.taken_over:7d}  sessions taken over from stopped workers, after {self.longest:.0f} s at most",
            *(f"    {number:7d}  {name}" for name, number in sorted(self.checks.items())),
        ]
        if self.complaints:
            lines += ["What did not hold:", *(f"  {complaint}" for complaint in self.complaints)]
            for part in self.stage.parts:
                lines += [f"The last that {part.name} said:", *(f"  {line}" for line in part.last_lines())]
        return "\n".join(lines)


def _let_go(worker: Part, session: SessionRow) -> bool:
    mine: dict[str, Any] = {"event": "session over", "session": session.id, "attempt": session.attempt}
    return any(mine.items() <= line.items() for line in worker.lines())


def _most_at_once(spans: dict[str, list[tuple[datetime, datetime]]]) -> int:
    steps = sorted(step for own in spans.values() for start, end in own for step in ((start, 1), (end, -1)))
    now = most = 0
    for _, change in steps:
        now += change
        most = max(most, now)
    return most
