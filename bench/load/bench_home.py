"""Where load benchmarks take place: a folder that goes away, and in it a model that knows as many classes as wanted."""

import importlib.util
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from sqlalchemy import insert
from sqlalchemy.orm import Session
from torch import Tensor

from core import backbones
from core.classifier import Certainty
from core.state import LearnerState, Weights, weights_of
from learners.blobs import to_blob
from learners.loading import weights_blob
from migrations import schema
from protoquad.plain_errors import Refused, plain_errors, settings
from store import catalogue, versions
from store.database import Database, now
from store.models import ClassRow, Model
from store.settings import DATABASE
from store.versions import PrototypeRow


@contextmanager
def folder_for(package: str) -> Iterator[Path]:
    """For a benchmark that needs this package, which is not everyone's; its errors are told plainly."""
    with plain_errors():
        if importlib.util.find_spec(package) is None:
            raise Refused(f"{package} is not installed; run `pip install -c constraints.txt -e '.[load]'`")
        # Servers start in homes of their own, and need not prepare a backbone that this home has ready.
        os.environ["PROTOQUAD_CACHE"] = str(settings().prepared.absolute())
        with tempfile.TemporaryDirectory(prefix="protoquad-load-") as folder:
            yield Path(folder)


def make_home(home: Path, backbone: str, prototypes: Tensor, tails: Sequence[Weights] = ()) -> None:
    """A model by its prototypes (K, M) instead of pictures: row k is class k + 1.

    Nothing waits for a session: the load is prediction's alone. Version 1 has them all, on the backbone's own weights;
    the next ones have each of the `tails` in turn.
    """
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
            known = [PrototypeRow(row, to_blob(one), 1, restart=True) for row, one in enumerate(prototypes, start=1)]
            _add(db, model, "provisional", known)
            for tail in tails:
                _add(db, model, "incremental", [], _blob(backbone, tail))


def _add(db: Session, model: Model, kind: str, known: list[PrototypeRow], weights: bytes | None = None) -> None:
    versions.add(
        db,
        model,
        versions.NewVersion(
            kind,
            parent=versions.servable(db, model.id, model.head),
            classes=model.last_class,
            temperature=Certainty().temperature,
            threshold=None,
            weights=weights,
            prototypes=known,
        ),
    )


def _blob(backbone: str, tail: Weights) -> bytes:
    network = backbones.as_it_comes(backbone)
    state = LearnerState.untaught(network)
    return weights_blob(replace(state, weights=tail), weights_of(network, "tail"))
