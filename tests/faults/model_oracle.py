"""What must hold of models that were made, imported and deleted: each is whole on every replica, or not there."""

import sqlite3
from collections import Counter
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass

from sqlalchemy import select

from store import catalogue
from store.models import Base, SessionRow, ZipPart
from store.sessions import FINISHED
from tests.faults.administering import BASE_CLASSES, Administrator
from tests.faults.answers import probed
from tests.faults.judge import Judge
from tests.faults.known import Known, read_known
from tests.faults.ledger import Ledger
from tests.faults.made import MadeModel
from tests.faults.stage import SECONDS_TO_AGREE, Deployment, Replica, until

DELETED_TRIED = 3  # the newest


@dataclass(frozen=True)
class Exported:
    """A model as its archive has it."""

    head: int
    classes: dict[int, str]  # the names of those that were not deleted
    shots: Counter[tuple[int, str]]  # class and digest
    versions: dict[int, tuple[int | None, str, int]]  # parent, kind, number of classes


class ModelOracle(Judge):
    def __init__(self, stage: Deployment, ledger: Ledger, checks: Counter[str]) -> None:
        super().__init__(stage, ledger, checks)
        self._caller = Administrator(stage, ledger)

    def requests_are_answered(self) -> None:
        """A base session that was asked for and not answered is asked for again, with the same key."""
        with self.stage.database.read() as db:
            there = {row.name for row in catalogue.everything(db)}
        for model in self.ledger.further_models.living:
            if model.name in there and model.base_key is not None and model.base_session is None:
                self._caller.send_base(model, self.stage.replicas[0])
                answered = model.base_session is not None
                self._check("unanswered base session answered", answered, str(model))

    def judge(self) -> None:
        register = self.ledger.further_models
        with self.stage.database.read() as db:
            there = [row.name for row in catalogue.everything(db) if row.name not in self.ledger.models]
        register.make_sure(lambda model: model.name in there)
        expected = sorted(model.name for model in register.living)
        self._check("models are those that were made", sorted(there) == expected, f"{sorted(there)}, not {expected}")
        self._nothing_is_left()
        for model in [one for one in register.living if one.name in there]:
            self._whole(model)
        for replica in self.stage.replicas:
            self._served(replica, expected)

    def _nothing_is_left(self) -> None:
        """No row of a model that is not there, and no zip of a session that is over."""
        with self.stage.database.read() as db:
            ids = {row.id for row in catalogue.everything(db)}
            for table in Base.metadata.tables.values():
                if "model_id" in table.columns:
                    stray = set(db.scalars(select(table.c.model_id).distinct())) - ids
                    self._check("deleted model is gone", not stray, f"rows of {stray} are left in {table.name}")
            over = select(ZipPart.session_id).join(SessionRow).where(SessionRow.status.in_(FINISHED))
            left = set(db.scalars(over))
            self._check("zip of a base session is gone", not left, f"of the sessions {sorted(left)} it is left")

    def _whole(self, model: MadeModel) -> None:
        with self.stage.database.read() as db:
            known = read_known(db, model.name)
        numbers = sorted(known.versions)
        holds = numbers == list(range(known.model.last_version + 1)) and known.head in known.banks
        self._check("model has its versions", holds, f"{model}: {numbers}, {known.head} is active")
        if model.archive is not None:
            self._as_exported(model, known, read_archive(model.archive))
        elif model.base_session is not None:
            self._learned(model, known)
        else:
            self._check("model made empty", (numbers, known.living) == ([0], {}), f"{model}: {numbers}, {known.living}")

    def _as_exported(self, model: MadeModel, known: Known, exported: Exported) -> None:
        """Sessions may have added versions since, and nothing else."""
        names = {class_id: row.name for class_id, row in known.living.items()}
        self._check("import has its classes", names == exported.classes, f"{model}: {names}, not {exported.classes}")
        shots = Counter((class_id, one) for class_id, stored in known.shots.items() for one in stored)
        self._check("import has its shots", shots == exported.shots, f"{model}: {shots}, not {exported.shots}")
        found = {number: (row.parent, row.kind, row.classes) for number, row in known.versions.items()}
        same = exported.versions.items() <= found.items() and exported.head in known.line(known.head)
        self._check("import has its versions", same, f"{model}: {found}, not {exported.versions}")
        self._answers_as_its_original(model, known, exported.head)

    def _answers_as_its_original(self, model: MadeModel, known: Known, head: int) -> None:
        assert model.original is not None
        with self.stage.database.read() as db:
            original = read_known(db, model.original)
        if model.compared or not (head in known.banks and head in original.banks):  # pruned versions cannot be asked
            return
        for replica in self.stage.replicas:
            own, right = probed(replica, model.name, head), probed(replica, model.original, head)
            self._check("import answers as its original", own == right, f"{model}: {replica.name}: {own}, not {right}")
        model.compared = True

    def _learned(self, model: MadeModel, known: Known) -> None:
        """All classes of the zip, or none where the session has failed for want of workers."""
        (status,) = (session.status for session in known.sessions if session.id == model.base_session)
        names = {row.name for row in known.living.values()}
        expected = set(BASE_CLASSES) if status == "succeeded" else set()
        self._check("base session learned all or nothing", names == expected, f"{model}: {names} after it has {status}")
        served = len(known.banks[known.head])
        self._check("base classes served", served == len(names), f"{model}: {served} of {sorted(names)}")

    def _served(self, replica: Replica, expected: Collection[str]) -> None:
        page = replica.client.get("/models").raise_for_status().json()
        listed = sorted(item["name"] for item in page["items"] if item["name"] not in self.ledger.models)
        self._check("models listed by a replica", listed == expected, f"{replica.name}: {listed}, not {expected}")
        for model in self.ledger.further_models.gone[-DELETED_TRIED:]:
            until(
                f"{replica.name} forgets {model}",
                lambda name=model.name: _is_forgotten(replica, name),
                SECONDS_TO_AGREE,
            )
            self.checks["deleted model forgotten by every replica"] += 1


def _is_forgotten(replica: Replica, name: str) -> bool:
    """Also by what answers without the database."""
    shown = replica.client.get(f"/models/{name}")
    answer = replica.client.post(f"/models/{name}/predict", files=[("images", b"no image")])
    return shown.status_code == answer.status_code == 404


def read_archive(data: bytes) -> Exported:
    with closing(sqlite3.connect(":memory:")) as archive:
        archive.deserialize(data)
        ((head,),) = archive.execute("SELECT head FROM models").fetchall()
        return Exported(
            head,
            dict(archive.execute("SELECT id, name FROM classes WHERE deleted_at IS NULL")),
            Counter(archive.execute("SELECT class_id, sha256 FROM shots").fetchall()),
            {
                number: tuple(row)
                for number, *row in archive.execute("SELECT number, parent, kind, classes FROM versions")
            },
        )
