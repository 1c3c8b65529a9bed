"""What must hold of inboxes: what was erased never comes back, and nothing else leaves."""

from tests.faults.judge import Judge
from tests.faults.known import Known
from tests.faults.rearranging import LISTED
from tests.faults.stage import Replica

ROOM = 900  # samples: with more, the service itself may erase the oldest
ASKED_FOR = 3  # of the newest that were erased, of each replica


class InboxOracle(Judge):
    def judge(self, known: Known) -> None:
        name, inboxes = known.model.name, self.ledger.inboxes
        there = set(known.inbox)
        for model, before in inboxes.unsure:
            if model == name and len(before) < ROOM:
                self._all_or_none(name, before - inboxes.touched - inboxes.erased[name], there)
        back = inboxes.erased[name] & there
        self._check("erased sample is gone", not back, f"{name}: {sorted(back)} are in the table")
        if name not in inboxes.emptying and len(there) < ROOM:
            lost = inboxes.judged[name] - there - inboxes.erased[name] - inboxes.touched
            self._check("sample stays until somebody erases it", not lost, f"{name}: {sorted(lost)} are gone")
        for replica in self.stage.replicas:
            self._listed(replica, name)
        inboxes.judged[name] = there
        inboxes.emptying.discard(name)
        inboxes.unsure = [one for one in inboxes.unsure if one[0] != name]

    def _all_or_none(self, name: str, before: set[int], there: set[int]) -> None:
        """Of a request to empty the inbox that was not answered."""
        left = before & there
        self._check("inbox emptied whole or not", left in (set(), before), f"{name}: {len(left)} of {len(before)} left")
        if not left:
            self.ledger.inboxes.erase(name, before)

    def _listed(self, replica: Replica, name: str) -> None:
        erased, path = self.ledger.inboxes.erased[name], f"/models/{name}/inbox"
        page = replica.client.get(path, params={"limit": LISTED}).raise_for_status().json()
        back = erased & {item["id"] for item in page["items"]}
        self._check("erased sample not listed", not back, f"{replica.name}, {name}: {sorted(back)}")
        for sample in sorted(erased)[-ASKED_FOR:]:
            for form in ("image", "thumbnail"):
                status = replica.client.get(f"{path}/{sample}/{form}").status_code
                what = f"{replica.name}, {name}: {status} for the {form} of {sample}"
                self._check("erased image not answered", status == 404, what)
