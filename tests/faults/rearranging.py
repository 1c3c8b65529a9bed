"""Callers who also put shots where they belong: one to another class, all of a class, or an image of the inbox."""

from dataclasses import replace

import httpx

from tests.faults.callers import REFUSED, UNSURE, Caller, Operation
from tests.faults.ledger import Shown, Taught
from tests.faults.stage import Replica

LISTED = 500  # samples on a page
FULL = "limit-reached"  # a class has as many shots as it may have


class Rearranger(Caller):
    """Where an answer is missing, nobody touches the classes before the oracle has looked."""

    def _move(self, operation: Operation, replica: Replica) -> None:
        """A shot that was added later, from one class to another."""
        pair = self.ledger.take_two(operation.model, operation.pick)
        if pair is None:
            return
        giving, receiving = pair
        found = self._added_shot(giving, replica)
        answer = None
        if found is not None:
            path, data = found
            answer = self._send(replica, "POST", f"{path}/move", json={"to": receiving.class_id})
            self._noted("move a shot", answer)
            if _nobody_knows(answer):
                giving.going.append(data)
                receiving.maybe.append([data])
                self.ledger.unsure_where(giving.model, data, from_inbox=False)
                return
            if answer is not None and answer.status_code == 202:
                giving.more.remove(data)
                receiving.more.append(data)
            else:
                self._only_refused(f"a shot of {giving}", answer)
        self.ledger.give_back(giving)
        self.ledger.give_back(receiving)

    def _merge(self, operation: Operation, replica: Replica) -> None:
        """A second class of the same colour is taught and merged into the first."""
        into = self.ledger.take(operation.model, operation.pick)
        if into is None:
            return
        twin = self.ledger.twin(into)
        self.teach(twin, replica)
        if twin.sure and self._merged(twin, into, replica) is None:
            return
        self.ledger.give_back(twin)
        self.ledger.give_back(into)

    def _merged(self, twin: Taught, into: Taught, replica: Replica) -> bool | None:
        """Whether it was done; None where nobody knows."""
        path = f"/models/{twin.model}/classes/{twin.class_id}/merge"
        answer = self._send(replica, "POST", path, json={"into": into.class_id})
        self._noted("merge", answer)
        if _nobody_knows(answer):
            twin.leaving = True
            into.maybe.append(twin.pictures)
            return None
        if answer is not None and answer.status_code == 202:
            into.more += twin.pictures
            self.ledger.bury(twin)
            return True
        self._only_refused(f"merging {twin} into {into}", answer)
        return False

    def _resolve(self, operation: Operation, replica: Replica) -> None:
        """An image of the inbox becomes a shot."""
        sample = self._sample(operation, replica)
        taught = self.ledger.take(operation.model, operation.pick)
        if taught is None:
            return
        if sample is None or self._resolved(taught, *sample, replica) is not None:
            self.ledger.give_back(taught)

    def _sample(self, operation: Operation, replica: Replica) -> tuple[int, Shown] | None:
        """One of the inbox, which nobody else will ask for."""
        self._predict(replace(operation, kind="predict"), replica)
        listed = self._send(replica, "GET", f"/models/{operation.model}/inbox", params={"limit": LISTED})
        if listed is None or listed.status_code != 200:
            return None
        for item in listed.json()["items"]:
            shown = self.ledger.take_shown(operation.model, item["sha256"])
            if shown is not None:
                self.ledger.inboxes.touched.add(item["id"])
                return item["id"], shown
        return None

    def _resolved(self, taught: Taught, sample: int, shown: Shown, replica: Replica) -> bool | None:
        """Whether it was done; None where nobody knows."""
        body = {"samples": [sample], "class_id": taught.class_id}
        answer = self._send(replica, "POST", f"/models/{taught.model}/inbox/resolve", json=body)
        self._noted("resolve a sample", answer)
        if answer is None or answer.status_code in UNSURE:
            taught.maybe.append([shown.data])
            self.ledger.unsure_where(taught.model, shown.data, from_inbox=True)
            return None
        if answer.status_code == 202:
            taught.more.append(shown.data)
            self.ledger.inboxes.erase(taught.model, [sample])
            return True
        if not self._was_emptied(taught.model, answer):
            self._only_refused(f"a sample as a shot of {taught}", answer)
        return False

    def _was_emptied(self, model: str, answer: httpx.Response) -> bool:
        """Whether the sample may be gone because somebody has emptied the inbox."""
        return answer.status_code == 404 and model in self.ledger.inboxes.emptying

    def _only_refused(self, what: str, answer: httpx.Response | None) -> None:
        if answer is not None and answer.status_code != REFUSED and FULL not in answer.text:
            self._complain(what, answer)


def _nobody_knows(answer: httpx.Response | None) -> bool:
    return answer is None or answer.status_code in UNSURE
