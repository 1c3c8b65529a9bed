"""A home for the load benchmark: a model that knows so many classes, by prototypes instead of pictures."""

from contextlib import closing
from pathlib import Path

from sqlalchemy import insert
from torch import Tensor

from core.classifier import Certainty
from learners.blobs import to_blob
from migrations import schema
from store import catalogue, versions
from store.database import Database, now
from store.models import ClassRow
from store.settings import DATABASE
from store.versions import PrototypeRow


def make_home(home: Path, backbone: str, prototypes: Tensor) -> None:
    """Row k of the prototypes (K, M) is class k + 1. Nothing waits for a session: the load is prediction's alone."""
    home.mkdir(parents=True)
    with closing(Database(f"sqlite:///{home / DATABASE}")) as database:
        schema.upgrade(database)
        with database.write() as db:
            model = catalogue.create(db, catalogue.DEFAULT, backbone, Certainty().temperature)
            count = len(prototypes)
            moment = now(db)
            db.execute(
                insert(ClassRow),
                [
                    {
                        "model_id": model.id,
                        "id": row,
                        "name": f"class {row}",
                        "status": "learned",
                        "shots": 1,
                        "revision": 1,
                        "since": 1,
                        "created_at": moment,
                    }
                    for row in range(1, count + 1)
                ],
            )
            model.last_class = count
            versions.add(
                db,
                model,
                "provisional",
                parent=versions.servable(db, model.id, model.head),
                classes=count,
                temperature=Certainty().temperature,
                threshold=None,
                prototypes=[
                    PrototypeRow(row, to_blob(vector), 1, restart=True)
                    for row, vector in enumerate(prototypes, start=1)
                ],
            )
