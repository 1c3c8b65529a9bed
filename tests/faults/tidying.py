"""Callers who tidy up: rename a class, sort or empty an inbox, cancel a session."""

from tests.faults.callers import REFUSED, UNSURE, Operation
from tests.faults.rearranging import LISTED, Rearranger
from tests.faults.stage import Replica

OVER = 409  # the session has ended already


class Tidier(Rearranger):
    """As everywhere, where an answer is missing nobody touches the class before the oracle has looked."""

    def _rename(self, operation: Operation, replica: Replica) -> None:
        self._teach(operation, replica)
        taught = self.ledger.take(operation.model, operation.pick)
        if taught is None:
            return
        name = self.ledger.new_name(taught.colour)
        path = f"/models/{taught.model}/classes/{taught.class_id}"
        answer = self._send(replica, "PATCH", path, json={"name": name})
        self._noted("rename", answer)
        if answer is None or answer.status_code in UNSURE:
            taught.renaming = name
            return
        if answer.status_code == 200:
            taught.name = name
        elif answer.status_code != REFUSED:
            self._complain(f"another name for {taught}", answer)
        self.ledger.give_back(taught)

    def _name_sample(self, operation: Operation, replica: Replica) -> None:
        """An image of the inbox becomes a class."""
        found = self._sample(operation, replica)
        if found is None:
            return
        sample, shown = found
        taught = self.ledger.class_of(operation.model, shown)
        body = {"samples": [sample], "name": taught.name}
        answer = self._send(replica, "POST", f"/models/{taught.model}/inbox/resolve", json=body)
        self._noted("resolve a sample as a class", answer)
        if answer is None or answer.status_code in UNSURE:
            self.ledger.unsure_where(taught.model, shown.data, from_inbox=True)
        elif self._was_emptied(taught.model, answer):
            self.ledger.drop(taught)
        else:
            self._taught(taught, answer)
            if taught.sure:
                self.ledger.inboxes.erase(taught.model, [sample])
        self.ledger.give_back(taught)

    def _dismiss(self, operation: Operation, replica: Replica) -> None:
        """An image of the inbox is of no use."""
        found = self._sample(operation, replica)
        if found is None:
            return
        model, sample = operation.model, found[0]
        body = {"samples": [sample], "dismiss": True}
        answer = self._send(replica, "POST", f"/models/{model}/inbox/resolve", json=body)
        self._noted("dismiss a sample", answer)
        if answer is None or answer.status_code in UNSURE or answer.status_code == REFUSED:
            return
        if answer.status_code == 204:
            self.ledger.inboxes.erase(model, [sample])
        elif not self._was_emptied(model, answer):
            self._complain(f"dismissing sample {sample} of {model}", answer)

    def _empty_inbox(self, operation: Operation, replica: Replica) -> None:
        """What was listed before, and what the oracle has seen, is gone afterwards; what arrives meanwhile may stay."""
        model, inboxes = operation.model, self.ledger.inboxes
        self._predict(operation, replica)
        path = f"/models/{model}/inbox"
        listed = self._send(replica, "GET", path, params={"limit": LISTED})
        if listed is None or listed.status_code != 200:
            return
        there = {item["id"] for item in listed.json()["items"]} | inboxes.judged[model]
        inboxes.emptying.add(model)
        answer = self._send(replica, "DELETE", path)
        self._noted("empty an inbox", answer)
        if answer is None or answer.status_code in UNSURE:
            inboxes.unsure.append((model, there))
        elif answer.status_code == 204:
            inboxes.erase(model, there)
        elif answer.status_code != REFUSED:
            self._complain(f"emptying the inbox of {model}", answer)

    def _cancel(self, operation: Operation, replica: Replica) -> None:
        """A session that waits or runs. What it would have learned waits for the next one."""
        self._teach(operation, replica)
        path = f"/models/{operation.model}/sessions"
        listed = self._send(replica, "GET", path, params={"limit": 1})
        if listed is None or listed.status_code != 200:
            return
        for session in listed.json()["items"]:
            if session["status"] not in {"queued", "running"}:
                continue
            answer = self._send(replica, "POST", f"{path}/{session['id']}/cancel")
            self._noted("cancel a session", answer)
            if answer is None or answer.status_code in UNSURE:
                self.ledger.cancelled.setdefault(session["id"], None)
            elif answer.status_code == 202:
                self.ledger.cancelled[session["id"]] = answer.json()["status"]
            elif answer.status_code not in {REFUSED, OVER}:
                self._complain(f"cancelling session {session['id']} of {operation.model}", answer)
