"""Homes for load benchmarks: a model with any number of classes, without an image of each.

The service itself makes the database and teaches one class; the rows of that class are then copied. So a home fits
every checkout, and the benchmarks need no module that reads or writes the database.
"""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import torch
from torch import Tensor

from bench.load import servers
from bench.load.sample_images import shot
from bench.load.servers import Checkout, Server
from core.images import centre_view, decode
from core.snapshot import to_bytes
from core.space import Space
from core.state import LearnerState, Weights, weights_of
from engine.pretrained import as_it_comes

DATABASE = "protoquad.db"  # in a home
SECONDS_TO_ANSWER = 300


@contextmanager
def bench_folder() -> Iterator[Path]:
    """A temporary folder for homes and logs; servers in it find the backbones that the user's home has prepared."""
    home = Path(os.environ.get("PROTOQUAD_HOME", ".protoquad"))
    cache = Path(os.environ.get("PROTOQUAD_CACHE") or home / "backbones")
    os.environ["PROTOQUAD_CACHE"] = str(cache.absolute())
    with tempfile.TemporaryDirectory(prefix="protoquad-load-") as folder:
        yield Path(folder)


def client_of(server: Server) -> httpx.Client:
    return httpx.Client(base_url=server.url, timeout=SECONDS_TO_ANSWER)


def teach(client: httpx.Client, name: str, images: Sequence[bytes]) -> httpx.Response:
    files = [("shots", (f"{number}.jpg", image, "image/jpeg")) for number, image in enumerate(images)]
    return client.post("/classes", data={"name": name}, files=files)


def make_prototypes(backbone: str, images: Sequence[bytes], classes: int) -> Tensor:
    """(classes, M): the embedding of each image is a prototype; the others are mixtures of these."""
    network = as_it_comes(backbone)
    framing = network.framing
    inputs = torch.stack([centre_view(decode(image, short_side=framing.short_side), framing) for image in images])
    with torch.no_grad():
        own = Space("power-cosine").embed(network.eval()(inputs))
    generator = torch.Generator().manual_seed(0)
    # Mixtures lie among the embeddings. Random vectors would lie apart from them and be too easy to search.
    mixture = torch.rand(max(0, classes - len(own)), len(own), generator=generator)
    others = mixture / mixture.sum(1, keepdim=True) @ own
    return torch.cat([own, others + 0.01 * torch.rand(others.shape, generator=generator)])


def make_home(
    home: Path, backbone: str, prototypes: Tensor, *, tails: Sequence[Weights] = (), checkout: Checkout | None = None
) -> None:
    """Row k of `prototypes` becomes class k + 1. Version 1 has all classes; each tail makes one further version.

    No session waits, so that a load measures predictions only.
    """
    teach_one_class(home, backbone, checkout)
    fill_home(home, backbone, prototypes, tails)


def teach_one_class(home: Path, backbone: str, checkout: Checkout | None = None) -> None:
    """The start of a home; copies of it may be filled with different numbers of classes."""
    with servers.protoquad(home, backbone, checkout=checkout) as server, client_of(server) as client:
        teach(client, "class 1", [shot(0, 0)]).raise_for_status()


def fill_home(home: Path, backbone: str, prototypes: Tensor, tails: Sequence[Weights] = ()) -> None:
    """What `make_home` does, in a home with one class."""
    with _writing(home) as database:
        _replace_classes(database, prototypes)
        blobs = [_weights_blob(backbone, tail) for tail in tails]
        _add_versions(database, "incremental", len(blobs))
        for number, blob in enumerate(blobs, start=2):
            database.execute("UPDATE versions SET weights = number WHERE number = ?", [number])
            database.execute(
                "INSERT INTO weights SELECT model_id, number, ? FROM versions WHERE number = ?", [blob, number]
            )


def add_history(home: Path, versions: int) -> None:
    """Further versions of a home that has one; they change nothing."""
    with _writing(home) as database:
        _add_versions(database, "provisional", versions)


def copy_home(home: Path, to: Path) -> None:
    to.mkdir()
    shutil.copy(home / DATABASE, to)


@contextmanager
def _writing(home: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(home / DATABASE)) as database:
        database.row_factory = sqlite3.Row
        database.execute("PRAGMA foreign_keys = ON")  # deleting a row deletes what belongs to it
        with database:
            yield database


def _replace_classes(database: sqlite3.Connection, prototypes: Tensor) -> None:
    taught, prototype = _only_row(database, "classes"), _only_row(database, "prototypes")
    database.execute("DELETE FROM classes")
    database.execute("DELETE FROM sessions")
    taught |= {"status": "learned", "session_id": None}
    numbers = range(1, len(prototypes) + 1)
    _insert(database, "classes", ({**taught, "id": number, "name": f"class {number}"} for number in numbers))
    vectors = (vector.astype("<f4").tobytes() for vector in prototypes.numpy())
    rows = ({"class_id": number, "vector": vector} for number, vector in zip(numbers, vectors, strict=True))
    _insert(database, "prototypes", ({**prototype, "held_out": None, **row} for row in rows))
    database.execute("UPDATE models SET last_class = ?", [len(prototypes)])
    database.execute("UPDATE versions SET classes = ?, threshold = NULL WHERE number = 1", [len(prototypes)])


def _add_versions(database: sqlite3.Connection, kind: str, count: int) -> None:
    """Copies of version 1, each the parent of the next; the last becomes the active one."""
    first = dict(database.execute("SELECT * FROM versions WHERE number = 1").fetchone())
    last = 1 + count
    numbers = range(2, last + 1)
    _insert(database, "versions", ({**first, "kind": kind, "number": n, "parent": n - 1} for n in numbers))
    database.execute("UPDATE models SET head = ?, last_version = ?", [last, last])


def _weights_blob(backbone: str, tail: Weights) -> bytes:
    network = as_it_comes(backbone)
    base = weights_of(network, "tail")
    return to_bytes(replace(LearnerState.untaught(network), weights={**base, **tail}), base)


def _only_row(database: sqlite3.Connection, table: str) -> dict[str, Any]:
    (row,) = database.execute(f"SELECT * FROM {table}")
    return dict(row)


def _insert(database: sqlite3.Connection, table: str, rows: Iterable[dict[str, Any]]) -> None:
    columns = [name for _, name, *_ in database.execute(f"PRAGMA table_info({table})")]
    places = ", ".join(f":{name}" for name in columns)
    database.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", rows)
