"""Those who use the service: they send what the schedule says and write down what they are told."""

import threading
from dataclasses import dataclass
from typing import Any

import httpx

from store.classes import digest
from tests.faults.drawn_images import COLOURS
from tests.faults.ledger import Ledger, Sight, Taught
from tests.faults.stage import Deployment, Replica

TRIES = 3  # of a request that may be sent again
SECONDS_BETWEEN_TRIES = 0.3
UNSURE = frozenset({503})  # the database may have gone away in the middle of a commit
REFUSED = 507  # nothing was written


@dataclass(frozen=True)
class Operation:
    kind: str
    model: str
    replica: int
    pick: int  # which class, colour or version, of those there are by then
    keyed: bool = False

    def __str__(self) -> str:
        return f"{self.kind}{' with a key' * self.keyed} ({self.model}, replica {self.replica + 1}, {self.pick})"


class Caller:
    """Sends one request at a time; an answer that is no answer to what was asked is a complaint."""

    def __init__(self, stage: Deployment, ledger: Ledger) -> None:
        self.stage = stage
        self.ledger = ledger

    def perform(self, operation: Operation) -> None:
        replica = self.stage.replicas[operation.replica % len(self.stage.replicas)]
        getattr(self, f"_{operation.kind}")(operation, replica)

    def _teach(self, operation: Operation, replica: Replica) -> None:
        taught = self.ledger.new_class(operation.model, operation.pick, keyed=operation.keyed)
        if taught is None:
            self._delete(operation, replica)
            return
        self.teach(taught, replica)
        if taught.key is not None:
            others = [*self.stage.replicas, replica]
            for number in range(TRIES - 1):
                if taught.sure or taught not in self.ledger.living:
                    break
                threading.Event().wait(SECONDS_BETWEEN_TRIES)
                self.ledger.count("teach again with the key")
                self.teach(taught, others[number % len(others)])
        self.ledger.give_back(taught)

    def teach(self, taught: Taught, replica: Replica) -> None:
        """Send it, for the first time or once more."""
        headers = {"Idempotency-Key": taught.key} if taught.key else {}
        files = [("shots", data) for data in taught.lesson]
        path, body = f"/models/{taught.model}/classes", {"name": taught.first_name}
        answer = self._send(replica, "POST", path, data=body, files=files, headers=headers)
        self._noted("teach", answer)
        self._taught(taught, answer)

    def _taught(self, taught: Taught, answer: httpx.Response | None) -> None:
        if answer is None or answer.status_code in UNSURE or _in_flight(answer):
            return
        if answer.status_code == REFUSED:
            self.ledger.drop(taught)
        elif answer.status_code == 202:
            body = answer.json()
            taught.class_id, taught.answer = body["class"]["id"], body
        else:
            self._complain("a class that nobody has taught", answer)

    def _shots(self, operation: Operation, replica: Replica) -> None:
        taught = self.ledger.take(operation.model, operation.pick)
        if taught is None:
            return
        more = self.ledger.more_pictures(taught)
        path = f"/models/{taught.model}/classes/{taught.class_id}/shots"
        answer = self._send(replica, "POST", path, files=[("shots", data) for data in more])
        self._noted("add shots", answer)
        if answer is None or answer.status_code in UNSURE:
            taught.maybe.append(more)
        elif answer.status_code == 202:
            taught.more += more
        elif answer.status_code != REFUSED and "limit-reached" not in answer.text:
            self._complain(f"more shots of {taught}", answer)
        self.ledger.give_back(taught)

    def _forget(self, operation: Operation, replica: Replica) -> None:
        """Delete a shot that was added later."""
        taught = self.ledger.take(operation.model, operation.pick)
        if taught is None:
            return
        found = self._added_shot(taught, replica)
        if found is not None:
            self._forget_shot(taught, *found, replica)
        self.ledger.give_back(taught)

    def _added_shot(self, taught: Taught, replica: Replica) -> tuple[str, bytes] | None:
        """The address of a shot that was added later, and its image."""
        path = f"/models/{taught.model}/classes/{taught.class_id}/shots"
        listed = self._send(replica, "GET", path, params={"limit": 500}) if taught.more else None
        if listed is None or listed.status_code != 200:
            return None
        shots = {item["sha256"]: item["id"] for item in listed.json()["items"]}
        chosen = next((data for data in taught.more if digest(data) in shots), None)
        return None if chosen is None else (f"{path}/{shots[digest(chosen)]}", chosen)

    def _forget_shot(self, taught: Taught, path: str, data: bytes, replica: Replica) -> None:
        answer = self._send(replica, "DELETE", path)
        self._noted("forget a shot", answer)
        if answer is None or answer.status_code in UNSURE:
            taught.going.append(data)
        elif answer.status_code == 202:
            taught.more.remove(data)
        elif answer.status_code != REFUSED:
            self._complain(f"a shot of {taught}", answer)

    def _delete(self, operation: Operation, replica: Replica) -> None:
        taught = self.ledger.take(operation.model, operation.pick)
        if taught is None:
            return
        answer = self._send(replica, "DELETE", f"/models/{taught.model}/classes/{taught.class_id}")
        self._noted("delete", answer)
        if answer is None or answer.status_code in UNSURE:
            taught.leaving = True
        elif answer.status_code == 204:
            self.ledger.bury(taught)
        elif answer.status_code != REFUSED:
            self._complain(f"deleting {taught}", answer)
        self.ledger.give_back(taught)

    def _activate(self, operation: Operation, replica: Replica) -> None:
        path = f"/models/{operation.model}/versions"
        listed = self._send(replica, "GET", path, params={"limit": 50})
        if listed is None or listed.status_code != 200:
            return
        kept = [item["number"] for item in listed.json()["items"] if item["kept"]]
        number = kept[operation.pick % len(kept)]
        answer = self._send(replica, "POST", f"{path}/{number}/activate")
        self._noted("activate", answer)
        if answer is None or answer.status_code in UNSURE or answer.status_code == 200:
            self.ledger.activated(operation.model, number)
        elif answer.status_code not in {REFUSED, 409}:  # 409: a session has pruned it meanwhile
            self._complain(f"activating version {number} of {operation.model}", answer)

    def _predict(self, operation: Operation, replica: Replica) -> None:
        """No database and no Redis on the way: whoever answers at all answers this."""
        colour = list(COLOURS)[operation.pick % len(COLOURS)]
        shown = self.ledger.image_to_show(operation.model, colour)
        answer = self._send(replica, "POST", f"/models/{operation.model}/predict", files=[("images", shown)])
        self._noted("predict", answer)
        if answer is None:
            return
        if answer.status_code == 200:
            body = answer.json()
            nearest = frozenset(found["class_id"] for found in body["predictions"][0]["top"])
            self.ledger.saw(Sight(operation.model, body["version"], nearest))
        elif operation.model == "default" or answer.status_code != 503:  # another is loaded when first asked for
            self._complain(f"a prediction of {operation.model}", answer)

    def _send(self, replica: Replica, method: str, path: str, **content: Any) -> httpx.Response | None:
        try:
            answer = replica.client.request(method, path, **content)
        except httpx.TransportError:
            return None
        if answer.status_code >= 400 and answer.headers.get("content-type") != "application/problem+json":
            self._complain(f"{method} {path}: not a problem document", answer)
        return answer

    def _noted(self, operation: str, answer: httpx.Response | None) -> None:
        self.ledger.count(operation)
        if answer is None or answer.status_code >= 400:
            self.ledger.count(f"{operation}: {'the connection broke' if answer is None else answer.status_code}")

    def _complain(self, what: str, answer: httpx.Response) -> None:
        self.ledger.complain(f"{what} was answered {answer.status_code}: {answer.text[:500]}")


def _in_flight(answer: httpx.Response) -> bool:
    return answer.status_code == 409 and "idempotency-key-in-flight" in answer.text
