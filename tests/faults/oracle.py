"""What must hold once faults are over, asked of every replica and of the database itself.

Asks, and changes one thing only: a request that was sent with an Idempotency-Key and not answered is sent again.
"""

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from sqlalchemy import select

from store import classes, sessions
from store.models import ClassRow, SessionRow, Version
from tests.faults.answers import difference, everything, predicted, probed, same_distances
from tests.faults.callers import Caller
from tests.faults.fresh import EVERYTHING, Fresh
from tests.faults.inbox_oracle import InboxOracle
from tests.faults.judge import Judge
from tests.faults.key_oracle import KeyOracle
from tests.faults.known import Known, read_known
from tests.faults.ledger import Ledger, Taught
from tests.faults.model_oracle import ModelOracle
from tests.faults.stage import SECONDS_TO_AGREE, Deployment, Replica, until
from tests.faults.webhook_oracle import WebhookOracle

RECORDED_AT_ONCE = 2  # new versions of a model whose predictions are written down after a round
COMPARED_AT_ONCE = 3  # old ones that are asked again
LOST = "was lost in attempt"
RECOGNISED = 0.95  # least share of times that a class is the nearest to its own picture


class Oracle(Judge):
    """Judges classes, versions and sessions itself, and leaves the rest to others."""

    def __init__(self, stage: Deployment, ledger: Ledger) -> None:
        super().__init__(stage, ledger, Counter())
        self._keys = KeyOracle(stage, ledger, self.checks)
        self._webhooks = WebhookOracle(stage, ledger, self.checks)
        self._further_models = ModelOracle(stage, ledger, self.checks)
        self._inboxes = InboxOracle(stage, ledger, self.checks)
        self.waited = 0.0  # seconds, for sessions to be over
        self._caller = Caller(stage, ledger)
        self._heads: dict[str, int] = dict.fromkeys(ledger.models, 0)
        self._banks: dict[tuple[str, int], dict[int, str]] = {}
        self._pinned: dict[tuple[str, int], Any] = {}
        self._activations = 0  # how many were judged already
        self._forgotten: set[int] = set()  # sessions that failed for want of workers, or were cancelled
        self._fresh = Fresh(stage.database)
        self.recognised: Counter[bool] = Counter()  # whether a class was also the nearest to its own picture

    def judge(self, *, thoroughly: bool = False) -> None:
        """After a round, with everything healed and nobody calling."""
        began = time.monotonic()
        self._sessions_end()
        self.waited = time.monotonic() - began
        self._requests_are_answered()
        self._further_models.requests_are_answered()
        self._sessions_end()  # of what was sent again
        self._keys.judge()
        for model in self.ledger.models:
            known = self._known(model)
            self._make_sure(known)
            self._moved_images(known)
            self._history(known)
            self._banks_are_complete(known)
            self._sessions_published_once(known)
            self._heads_follow(known)
            self._classes(known)
            for replica in self.stage.replicas:
                self._served(known, replica)
            self._pinned_predictions(known, thoroughly=thoroughly)
            self._inboxes.judge(known)
            self._webhooks.judge(known)
        self._further_models.judge()
        self._sights()
        self._activations = len(self.ledger.activations)

    def sessions(self) -> Counter[str]:
        """Sessions by what came of them."""
        with self.stage.database.read() as db:
            return Counter(f"{row.status} {row.verdict or ''}".strip() for row in db.scalars(select(SessionRow)))

    def nothing_waits(self) -> None:
        """At the very end, after one more session: even classes of sessions that failed have been learned."""
        for model in self.ledger.models:
            known = self._known(model)
            for class_id, row in known.living.items():
                waits = row.status == "provisional" and class_id in known.banks[known.head]
                self._check("class learned in the end", not waits, f"class {class_id} of {model} still waits")
        right, wrong = self.recognised[True], self.recognised[False]
        self._check(
            "classes recognised", right >= RECOGNISED * (right + wrong), f"{right} times, and {wrong} times not"
        )

    def _sessions_end(self) -> None:
        def none_open() -> bool:
            with self.stage.database.read() as db:
                open_ones = select(SessionRow.id).where(SessionRow.status.not_in(sessions.FINISHED))
                return not db.scalars(open_ones).all()

        until("every session is over", none_open)
        self.checks["no session stuck"] += 1

    def _requests_are_answered(self) -> None:
        """What was sent with a key and not answered is answered now; what was answered gets the same answer again."""
        keyed = [taught for taught in [*self.ledger.living, *self.ledger.gone[-3:]] if taught.key is not None]
        for number, taught in enumerate(keyed):
            replica = self.stage.replicas[number % len(self.stage.replicas)]
            before = taught.answer
            self._caller.teach(taught, replica)
            if before is None:
                self._check("unanswered request answered", taught.sure, f"{taught} with key {taught.key}")
            else:
                same = taught.answer == before
                self._check("repeated request answered the same", same, f"{taught}: {before} and then {taught.answer}")

    def _known(self, name: str) -> Known:
        with self.stage.database.read() as db:
            return read_known(db, name)

    def _make_sure(self, known: Known) -> None:
        """Of each thing that nobody was told: it was done or it was not; either will do from now on."""
        by_name = {row.name: row for row in known.living.values()}
        for taught in [one for one in self.ledger.living if one.model == known.model.name]:
            row = by_name.get(taught.name) if taught.class_id is None else known.living.get(taught.class_id)
            if not taught.sure and row is None:
                self.ledger.drop(taught)
            elif not taught.sure and row is not None:
                taught.class_id = row.id
            elif taught.leaving and row is None:
                self.ledger.bury(taught)
            if row is not None:
                taught.leaving = False
                taught.name = row.name if row.name == taught.renaming else taught.name
                self._which_shots(taught, known.shots.get(row.id, []))
            taught.taken, taught.renaming = False, None

    def _which_shots(self, taught: Taught, stored: list[str]) -> None:
        for maybe in taught.maybe:
            if set(_digests(maybe)) <= set(stored):
                taught.more += maybe
        taught.maybe.clear()
        taught.more = [data for data in taught.more if data not in taught.going or classes.digest(data) in stored]
        taught.going.clear()

    def _moved_images(self, known: Known) -> None:
        """An image that was sent from one class to another, or from the inbox to a class, is in one place."""
        name = known.model.name
        for image in [one for one in self.ledger.on_the_move if one.model == name]:
            places = sum(stored.count(image.sha256) for stored in known.shots.values())
            if image.from_inbox:
                places += list(known.inbox.values()).count(image.sha256)
            erased = image.from_inbox and name in self.ledger.inboxes.emptying
            holds = places == 1 or (erased and not places)
            self._check("moved image in one place", holds, f"{name}: {image.sha256} is in {places} places")
        self.ledger.on_the_move = [one for one in self.ledger.on_the_move if one.model != name]

    def _history(self, known: Known) -> None:
        """Numbers without a gap, given once, each standing on an earlier one."""
        numbers = sorted(known.versions)
        name = known.model.name
        self._check("version numbers", numbers == list(range(known.model.last_version + 1)), f"{name}: {numbers}")
        for number, version in known.versions.items():
            parent = version.parent
            stands = number == 0 if parent is None else parent < number and parent in known.versions
            self._check("version stands on another", stands, f"{name}: {number} on {parent}")
        self._check("head is servable", known.head in known.banks, f"{name}: {known.head}")

    def _banks_are_complete(self, known: Known) -> None:
        name = known.model.name
        for number, bank in known.banks.items():
            version = known.versions[number]
            what = f"{name} at {number} ({version.kind}) knows {sorted(bank)}"
            self._check("bank has all its classes", len(bank) == version.classes, f"{what}, not {version.classes}")
            if version.parent in known.banks:
                before = set(known.banks[version.parent])
                expected = _following(version, before, set(bank))
                self._check("bank follows its parent's", set(bank) == expected, f"{what}, not {sorted(expected)}")
            if version.weights == number and version.kind == "incremental":
                own = known.written.get(number, set())
                self._check("bank is of its own weights", own == set(bank), f"{what} and wrote {sorted(own)}")
            first = self._banks.setdefault((name, number), bank)
            self._check("bank never changes", first == bank, f"{what}; it was another before")

    def _sessions_published_once(self, known: Known) -> None:
        made = Counter(version.session_id for version in known.versions.values() if version.session_id is not None)
        for session in known.sessions:
            expected = 1 if session.verdict else 0
            what = f"session {session.id} of {known.model.name} ({session.status}, {session.verdict})"
            self._check("session published once", made[session.id] == expected, f"{what} made {made[session.id]}")
            if session.status == "cancelled" or session.id in self.ledger.cancelled:
                self._cancelled(session, what)
            if session.status == "failed" and session.id not in self._forgotten:
                self._forgotten.add(session.id)
                self._check(
                    "session failed for want of workers", LOST in (session.error or ""), f"{what}: {session.error}"
                )

    def _cancelled(self, session: SessionRow, what: str) -> None:
        """If somebody has asked for it, and then certainly if the answer has said so."""
        asked = session.id in self.ledger.cancelled
        told = self.ledger.cancelled.get(session.id) == "cancelled"
        self._check("session cancelled by somebody", asked, what)
        self._check("cancelled session stays so", session.status == "cancelled" or not told, what)
        if session.status == "cancelled":
            self._forgotten.add(session.id)

    def _heads_follow(self, known: Known) -> None:
        """What is in force came from what was in force, or from what somebody has activated."""
        name = known.model.name
        since = self.ledger.activations[self._activations :]
        roots = {one.number for one in since if one.model == name} | {self._heads[name]}
        self._check("head follows", bool(roots & known.line(known.head)), f"{name}: {self._heads[name]}, {known.head}")
        self._heads[name] = known.head

    def _classes(self, known: Known) -> None:
        """Everything acknowledged is there with its own pictures; everything deleted is gone with all of them."""
        name = known.model.name
        believed = {taught.class_id: taught for taught in self.ledger.living if taught.model == name}
        there, expected = sorted(known.living), sorted(class_id for class_id in believed if class_id is not None)
        self._check("classes are those that were taught", there == expected, f"{name}: {there}, not {expected}")
        stray = set(known.shots) - set(known.living)
        self._check("deleted class gone", not stray, f"{name}: pictures of {sorted(stray)} are left")
        line = known.line(known.head)
        for class_id, row in known.living.items():
            taught = believed.get(class_id)
            if taught is None:
                continue
            own = sorted(_digests(taught.pictures))
            self._check("class has its own shots", sorted(known.shots.get(class_id, [])) == own, str(taught))
            behind = row.since not in line and self.ledger.may_be_behind(taught)
            self._check("class in force", class_id in known.banks[known.head] or behind, f"{taught} at {known.head}")
            self._check("class has a session to come", self._is_waited_for(known, row), str(taught))

    def _is_waited_for(self, known: Known, row: ClassRow) -> bool:
        """A class in force is learned by now, unless its session was cancelled or failed for want of workers."""
        if row.status == "learned" or row.id not in known.banks[known.head]:
            return True
        return any(session.id in self._forgotten for session in known.sessions)

    def _served(self, known: Known, replica: Replica) -> None:
        """What this replica answers."""
        name = known.model.name
        head = known.head
        until(f"{replica.name} serves version {head}", lambda: predicted(replica, name, [])["version"] == head)
        listed = {item["id"]: item for item in everything(replica, f"/models/{name}/classes")}
        in_force = known.banks[head]
        mine = [taught for taught in self.ledger.living if taught.model == name]
        for taught in mine:
            item = listed.get(taught.class_id)
            fits = item is not None and item["name"] == taught.name and item["shots"] == len(taught.pictures)
            fits = fits and item is not None and item["served"] == (taught.class_id in in_force)
            self._check("class listed by a replica", fits, f"{taught}: {replica.name} has {item}")
        gone = {taught.class_id for taught in self.ledger.gone if taught.model == name}
        self._check("deleted class not listed", not gone & set(listed), f"{replica.name}, {name}: {gone & set(listed)}")
        served = [taught for taught in mine if taught.class_id in in_force]
        if served:
            self._found(replica, known, served, gone)

    def _found(self, replica: Replica, known: Known, served: list[Taught], gone: set[int | None]) -> None:
        """Every class that is served is found where the tables have it."""
        name, shown = known.model.name, [taught.pictures[0] for taught in served]
        names = {taught.class_id: taught.name for taught in served}
        until(
            f"{replica.name} calls the classes of {name} {names}",
            lambda: names.items() <= _names(predicted(replica, name, shown, top_k=EVERYTHING)).items(),
            SECONDS_TO_AGREE,
        )
        self.checks["class called by its name"] += len(names)
        answer = predicted(replica, name, shown, top_k=EVERYTHING)
        expected = self._fresh.distances(name, known.head, shown)
        for taught, prediction, right in zip(served, answer["predictions"], expected, strict=True):
            found = {candidate["class_id"]: candidate["distance"] for candidate in prediction["top"]}
            what = f"{taught}: {replica.name} finds {found} at version {answer['version']}, and it should be {right}"
            self._check("class found where its tables have it", same_distances(found, right), what)
            self._check("deleted class not predicted", not gone & set(found), what)
            if sum(one.colour == taught.colour for one in served) == 1:
                self.recognised[min(found, key=found.__getitem__) == taught.class_id] += 1

    def _pinned_predictions(self, known: Known, *, thoroughly: bool) -> None:
        """A kept version answers as it did when it was first asked, on every replica."""
        name = known.model.name
        for key in [key for key in self._pinned if key[0] == name and key[1] not in known.banks]:
            del self._pinned[key]
        new = [number for number in sorted(known.banks, reverse=True) if (name, number) not in self._pinned]
        old = sorted(
            (number for of, number in self._pinned if of == name), key=lambda number: hash((number, known.head))
        )
        for number in [*new[:RECORDED_AT_ONCE], *(old if thoroughly else old[:COMPARED_AT_ONCE])]:
            for replica in self.stage.replicas:
                answer = probed(replica, name, number)
                first = self._pinned.setdefault((name, number), answer)
                same = answer == first
                self._check("pinned prediction never changes", same, f"{replica.name}: {difference(first, answer)}")

    def _sights(self) -> None:
        """Whatever a prediction named while faults went on was known to the version that it named."""
        for sight in self.ledger.sights:
            bank = self._banks.get((sight.model, sight.version))
            if bank is not None:
                self._check("prediction of its version", sight.class_ids <= set(bank), f"{sight} of {sorted(bank)}")
        self.ledger.sights.clear()


def _following(version: Version, before: set[int], now: set[int]) -> set[int]:
    """What a version knows, given what its parent knew."""
    if version.kind == "provisional":
        return before - {version.details.get("merged")} | {version.details["class"]}
    if version.kind == "delete":
        return before - {version.details["class"]}
    if version.kind == "rollback":
        return before - set(version.details["without"])
    return before if version.kind == "incremental" else now


def _names(answer: dict[str, Any]) -> dict[int, str]:
    return {near["class_id"]: near["label"] for one in answer["predictions"] for near in one["top"]}


def _digests(pictures: Iterable[bytes]) -> list[str]:
    return [classes.digest(data) for data in pictures]
