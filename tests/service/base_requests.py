"""Base sessions as the tests of the service ask for them, and what is left of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import func, select

from store.models import SessionId, SessionRow, ZipPart
from tests.zips import classes, zipped
from workers.heartbeat import Heartbeat

ZIP = {"Content-Type": "application/zip"}
RED_BLUE = classes(red=4, blue=4)
GOOD = zipped(RED_BLUE)


def send(learner: Any, data: bytes = GOOD, epochs: int | None = 1, **headers: str) -> httpx.Response:
    query = {} if epochs is None else {"epochs": epochs}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer: httpx.Response = learner.post("/base", content=data, params=query, headers={**ZIP, **named})
    return answer


def run(learner: Any, session_id: int, worker: Any = None) -> Any:
    assert (worker or learner.service.worker).run_next(SessionId(session_id))
    return learner.get(f"/sessions/{session_id}")


def parts(learner: Any) -> int:
    with learner.service.database.read() as db:
        model_id = learner.service.context.versions.active(learner.name).model_id
        own = select(SessionRow.id).where(SessionRow.model_id == model_id)
        return int(db.execute(select(func.count()).where(ZipPart.session_id.in_(own))).scalar_one())


def left(learner: Any) -> list[Path]:
    """Files in the home, besides those that are always there."""
    return [
        file for file in learner.service.settings.home.iterdir() if not file.name.startswith(("protoquad.db", "wor"))
    ]


class Meanwhile(Heartbeat):
    """Does something once, when a session has begun to learn."""

    def __init__(self, home: Path, learner: Any, act: Callable[[], object]) -> None:
        super().__init__(home)
        self.learner, self.act, self.done = learner, act, False

    def beat(self) -> None:
        super().beat()
        if not self.done and (self.learner.get("/sessions")["items"][0]["progress"] or {}).get("stage") == "learning":
            self.done = True
            self.act()
