"""Whatever an archive holds, importing it makes a model that works or nothing at all."""

import math
import os
import shutil
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from core.backbones import Backbone
from core.guard import Measure, Verdict
from core.state import weights_of, with_weights
from engine.pretrained import as_it_comes
from learners.archive_import import checked
from learners.loading import classifier_of_version, learner_of_version, untaught, weights_of_version
from migrations import schema
from service.schemas import ClassBody, VersionBody
from store import archive, catalogue
from store.archive_tables import TABLES
from store.database import Database
from store.errors import UnusableArchive
from store.models import Base, ClassRow, Version
from store.settings import Settings
from tests import archives
from tests.service.conftest import QUICK

EXAMPLES = int(os.environ.get("ARCHIVE_EXAMPLES", "30"))  # by hand: as many as there is time for
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES <= 100,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
OWNED = ("models", "classes", "versions", "shots", "guard_images", "weights", "prototypes", "statistics")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With an archive of a model that has a history, one without types, and an empty database."""
    folder = tmp_path_factory.mktemp("archives")
    with closing(Database(f"sqlite:///{folder / 'empty'}")) as database:
        schema.upgrade(database)
    archive.settle(folder / "empty")
    with closing(Database(f"sqlite:///{folder / 'home'}")) as database:
        schema.upgrade(database)
        archives.fill(database, "birds")
        archives.export(database, "birds", folder / "sound")
    shutil.copyfile(folder / "sound", folder / "loose")
    archives.loosen(folder / "loose")
    return folder


@pytest.fixture
def sound(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copyfile(folder / "sound", tmp_path / "archive"))


@pytest.fixture
def loose(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copyfile(folder / "loose", tmp_path / "archive"))


@pytest.fixture
def target(folder: Path, tmp_path: Path) -> Iterator[Database]:
    shutil.copyfile(folder / "empty", tmp_path / "target")
    with closing(Database(f"sqlite:///{tmp_path / 'target'}")) as database:
        yield database


def import_(path: Path, target: Database) -> None:
    with checked(path, Settings(home=path.parent / "home")) as found:
        archive.read(found.path, target, "copy")


def row_counts(database: Database) -> int:
    with database.read() as db:
        return sum(db.execute(select(func.count()).select_from(t)).scalar_one() for t in Base.metadata.tables.values())


def refusal(path: Path, target: Database) -> str:
    """Why the archive is refused, in one printable sentence; nothing was written."""
    with pytest.raises(UnusableArchive) as refused:
        import_(path, target)

    assert row_counts(target) == 0
    assert str(refused.value).isprintable()
    return str(refused.value)


@cache
def own_backbone(name: str) -> Backbone:
    return as_it_comes(name)


def require_working(database: Database) -> None:
    """Every version that is kept loads for serving and for learning, and predicts with finite numbers."""
    with database.read() as db:
        model = catalogue.get(db, "copy")
        own = own_backbone(model.backbone)
        rows = list(db.scalars(select(Version).where(Version.model_id == model.id)))
        bodies = [VersionBody.of(row, model.head).model_dump_json() for row in rows]
        bodies += [ClassBody.of(row, known=True).model_dump_json() for row in db.scalars(select(ClassRow))]
        assert not any("NaN" in body for body in bodies)
        for version in (row for row in rows if row.kept):
            network = weights_of_version(db, untaught(own.name, weights_of(own, "tail"), own.dim), version)
            carrier = with_weights(own, network.weights)
            assert torch.isfinite(learner_of_version(db, own, version, network).bank.copies).all()
            answering, _ = classifier_of_version(db, version, network.space, own.dim)
            with torch.no_grad():
                features = carrier(torch.full((1, 3, 32, 32), 90, dtype=torch.uint8))
            for candidate in answering.predict(features)[0].top:
                assert math.isfinite(candidate.distance)
                assert math.isfinite(candidate.confidence)


# Accepted


def test_an_archive_becomes_a_model_that_works(sound: Path, target: Database) -> None:
    """All of its kept versions do."""
    import_(sound, target)

    require_working(target)


def test_a_model_with_a_long_life_passes_every_check(learner: Any, folder: Path, tmp_path: Path) -> None:
    """Refined, rejected, forked, deleted, renamed and rolled back: what the service itself writes is never refused."""
    red, green, *_ = learner.taught("red", "green", "blue")
    early = learner.version
    learner.refine()
    learner.taught("yellow")
    worse = Verdict(False, "worse", Measure(9.0, 9.0), Measure(1.0, 1.0))
    learner.refine(learner.service.make_worker(replace(QUICK, judge=lambda *_: worse)))
    both = learner.version
    learner.show_more(green["id"], "green")
    learner.delete(red["id"])
    learner.rename(green["id"], "gr\u00fcn \N{GRINNING FACE}")
    learner.activate(early)
    learner.taught("violet")
    learner.refine()
    learner.activate(both)
    path = Path(shutil.copyfile(folder / "empty", tmp_path / "archive"))
    archive.write(learner.service.context.database, learner.name, path)

    with checked(path, Settings(home=tmp_path / "home")) as found:
        archive.read(found.path, learner.service.context.database, "copy")
    with learner.service.context.database.write() as db:
        assert catalogue.get(db, "copy").head == learner.version
        catalogue.delete(db, "copy")


def test_an_archive_needs_no_types_of_its_own(loose: Path, target: Database) -> None:
    """Only values count; without keys and constraints in it an archive is as good."""
    import_(loose, target)

    require_working(target)


def test_an_older_archive_is_rebuilt_with_tables_of_our_own(folder: Path, tmp_path: Path, target: Database) -> None:
    """Its rows go into fresh tables of its release, which are then migrated; it is judged after that."""
    path = archives.export_older(folder / "sound", tmp_path / "archive", "0001")

    import_(path, target)

    require_working(target)
    assert not list((tmp_path / "home").iterdir())


def test_an_older_archive_is_judged_as_strictly(folder: Path, tmp_path: Path, target: Database) -> None:
    """And the sentence names the file that was brought, not the copy."""
    path = archives.export_older(folder / "sound", tmp_path / "archive", "0001")
    with archives.tampered(path) as connection:
        connection.execute("UPDATE versions SET parent = number WHERE number = 2")

    assert refusal(path, target).startswith(f"{path} cannot be imported: the parent of version 2 is not older")


def test_constraints_in_an_archive_never_run(loose: Path, target: Database) -> None:
    """This one fails wherever it is evaluated; another might take for ever."""
    with archives.tampered(loose) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        columns = ", ".join(column.name for column in TABLES["shots"].columns)
        connection.execute("ALTER TABLE shots RENAME TO old")
        connection.execute(f"CREATE TABLE shots ({columns}, CHECK (abs(-9223372036854775808) = 0))")
        connection.execute("INSERT INTO shots SELECT * FROM old")
        connection.execute("DROP TABLE old")

    import_(loose, target)

    require_working(target)


# Refused

REFUSED = [
    ("UPDATE versions SET parent = number WHERE number = 4", "the parent of version 4 is not older"),
    ("UPDATE versions SET parent = 5 WHERE number = 3", "the parent of version 3 is not older"),
    ("UPDATE versions SET parent = 77 WHERE number = 3", "the parent of version 3 does not exist"),
    ("UPDATE versions SET parent = NULL WHERE number = 3", "version 3 has no parent"),
    ("UPDATE versions SET parent = 1.5 WHERE number = 3", "it must be a whole number"),
    ("UPDATE versions SET base = 0 WHERE number = 4", "version 4 has another base"),
    ("UPDATE versions SET weights = 2 WHERE number = 4", "version 4 has another version's weights"),
    ("UPDATE versions SET kind = 'magic' WHERE number = 4", "has the kind 'magic'"),
    ("UPDATE versions SET verdict = 'maybe' WHERE number = 4", "has the verdict 'maybe'"),
    ("UPDATE versions SET kept = 1 WHERE number = 5", "was rejected and is still kept"),
    ("UPDATE versions SET kept = 2", "it must be 0 or 1"),
    ("UPDATE versions SET temperature = 0.0", "the temperature 0.0"),
    ("UPDATE versions SET temperature = 1e-320", "the temperature 1e-320"),
    ("UPDATE versions SET temperature = 9e999", "temperature is inf; it must be a finite number"),
    ("UPDATE versions SET threshold = 'far'", "threshold is 'far'; it must be a finite number"),
    ("UPDATE versions SET threshold = -1.0", "a threshold below 0"),
    ("UPDATE versions SET details = '[]'", "it must be a JSON object"),
    ("UPDATE versions SET details = '{\"accuracy\": NaN}'", "NaN is not a JSON number"),
    ("UPDATE versions SET details = '{\"x\": 1e999}'", "not finite"),
    ("UPDATE versions SET details = '{\"x\": \"\\ud800\"}'", "control characters"),
    ("UPDATE versions SET details = '{\"accuracy\": {\"old\": \"good\"}}'", "the detail 'accuracy' of version 0"),
    ("UPDATE versions SET details = '{\"forgetting\": []}'", "the detail 'forgetting' of version 0"),
    ("UPDATE versions SET details = replace(hex(zeroblob(9000)), '0', '[')", "details is"),
    ("UPDATE versions SET details = hex(zeroblob(9000000))", "a value that is too large"),
    ("UPDATE versions SET created_at = 'yesterday'", "it must be a time"),
    ("UPDATE versions SET created_at = '2026-13-01 00:00:00'", "it must be a time"),
    ("UPDATE versions SET session_id = 3", "refers to sessions"),
    ("UPDATE versions SET model_id = 9", "rows of another model"),
    ("DELETE FROM versions WHERE number = 0", "the parent of version 1 does not exist"),
    ("INSERT INTO versions SELECT * FROM versions WHERE number = 1", "version 1 appears twice"),
    ("UPDATE models SET head = 77", "its active version, 77, does not exist"),
    ("UPDATE models SET head = 5", "its active version, 5, is not kept"),
    ("UPDATE models SET last_version = 3", "version 4 has a number beyond the model's last one"),
    ("UPDATE models SET last_class = 1", "class 2 has a number beyond the model's last one"),
    ("UPDATE models SET last_class = 2147483647", "last_class is 2147483647"),
    ("UPDATE models SET name = 'a' || char(27) || '[31m'", "cannot name a model"),
    ("UPDATE models SET name = 'No Such Name'", "cannot name a model"),
    ("UPDATE models SET backbone = char(27) || '[31m'", "there is no backbone '?[31m'"),
    ("UPDATE models SET backbone = 'resnet999'", "there is no backbone 'resnet999'"),
    ("UPDATE models SET backbone = 'timm:vit_gigantic_patch14_224'", "has 1842775680 parameters"),
    ("UPDATE models SET backbone = 'resnet18'", "bytes, not"),
    ("INSERT INTO models SELECT * FROM models", "must have exactly one row"),
    ("DELETE FROM models", "must have exactly one row"),
    ("UPDATE classes SET name = 'a' || char(10) || 'b' WHERE id = 1", "without control characters"),
    ("UPDATE classes SET name = ' wren' WHERE id = 1", "not written as this service would write it"),
    ("UPDATE classes SET name = 'a' || char(8238) || 'b' WHERE id = 1", "turns the direction of text"),
    ("UPDATE classes SET name = 'owl' WHERE id = 1", "two classes are named 'owl'"),
    ("UPDATE classes SET id = 2 WHERE id = 1", "class 2 appears twice"),
    ("UPDATE classes SET status = 'x' WHERE id = 1", "has the status 'x'"),
    ("UPDATE classes SET since = 99", "since a version that does not exist"),
    ("UPDATE classes SET shots = 0", "was never taught"),
    ("UPDATE classes SET deleted_at = created_at WHERE id = 2", "an image of class 2, which does not exist"),
    ("DELETE FROM shots", "class 1 is to be refined and has no stored shots"),
    ("UPDATE shots SET class_id = 8", "an image of class 8, which does not exist"),
    ("UPDATE shots SET sha256 = 'abc'", "the digest of an image of class 1 is wrong"),
    ("UPDATE shots SET data = x'00'", "the digest of an image of class 1 is wrong"),
    ("UPDATE shots SET data = 'text'", "data is 'text'; it must be bytes"),
    ("UPDATE prototypes SET vector = substr(vector, 1, 252)", "has 252 bytes, not 256"),
    ("UPDATE prototypes SET vector = hex(vector)", "it must be bytes"),
    ("UPDATE prototypes SET vector = CAST(x'0000c07f' || substr(vector, 5) AS BLOB)", "not finite"),
    ("UPDATE prototypes SET held_out = x'000080'", "not a multiple of 4"),
    ("UPDATE prototypes SET held_out = x'000080bf'", "below 0"),
    ("UPDATE prototypes SET shots = 0", "was made from no images"),
    ("UPDATE prototypes SET class_id = 4", "a class that does not exist"),
    ("UPDATE prototypes SET version = 40", "a version that does not exist"),
    ("UPDATE prototypes SET version = 5", "a version that was rejected"),
    ("UPDATE prototypes SET restart = 0 WHERE vector IS NULL", "has values although the class is deleted"),
    ("INSERT INTO prototypes SELECT * FROM prototypes", "appears twice"),
    ("DELETE FROM prototypes WHERE vector IS NULL", "class 3 was deleted and the active version still knows it"),
    ("UPDATE prototypes SET version = 1, restart = 1, shots = 0, held_out = NULL, vector = NULL "
     "WHERE class_id = 2 AND version < 4", "appears twice"),
    ("UPDATE prototypes SET restart = 1, shots = 0, held_out = NULL, vector = NULL "
     "WHERE class_id = 2 AND version < 4", "the prototype of class 2 at version 4 continues a deleted class"),
    ("UPDATE statistics SET mean = x'00000000'", "has 4 bytes, not 256"),
    ("INSERT INTO statistics SELECT * FROM statistics", "appears twice"),
    ("UPDATE weights SET data = 'pickle'", "are not bytes"),
    ("UPDATE weights SET data = x'80049500'", "are not a snapshot"),
    ("UPDATE weights SET data = zeroblob(20000000)", "a value that is too large"),
    ("UPDATE weights SET version = 1 WHERE version = 2", "weights that belong to no version"),
    ("INSERT INTO weights SELECT * FROM weights", "appear twice"),
    ("DELETE FROM weights WHERE version = 3", "the weights that version 3 needs are missing"),
    ("UPDATE weights SET data = (SELECT data FROM weights WHERE version = 2) WHERE version = 4", "other base weights"),
    ("INSERT INTO api_keys (id) VALUES ('key')", "it contains api_keys"),
    ("INSERT INTO sessions (id) VALUES (1)", "it contains sessions"),
    ("ALTER TABLE shots ADD COLUMN extra", "has other columns"),
    ("DROP TABLE statistics", "lacks the table 'statistics'"),
    ("CREATE TABLE extra (a)", "has a table 'extra'"),
    ("CREATE VIEW extra AS SELECT 1", "is not a plain table"),
    ("CREATE TRIGGER t AFTER INSERT ON shots BEGIN DELETE FROM shots; END", "is not a plain table"),
    ("CREATE VIRTUAL TABLE extra USING fts4(a)", "is not a plain table"),
    ("ALTER TABLE shots ADD COLUMN extra AS (hex(zeroblob(10)))", "contains expressions"),
    ("CREATE INDEX extra ON shots (lower(sha256))", "contains expressions"),
    ("UPDATE alembic_version SET version_num = '../0002'", "is not the schema of any release"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "why"), REFUSED, ids=lambda text: text[:70])
def test_what_could_not_have_been_exported_is_refused(loose: Path, target: Database, statement: str, why: str) -> None:
    """By its meaning: the digest is right each time."""
    with archives.tampered(loose) as connection:
        connection.execute(statement)

    assert why in refusal(loose, target)


def test_the_limits_of_this_deployment_hold_for_archives_too(sound: Path) -> None:
    """The sentence names the setting, where there is one."""
    for name, why in {
        "max_classes": "more than 1 classes (PROTOQUAD_MAX_CLASSES)",
        "max_shots": "more than 1 shots (PROTOQUAD_MAX_SHOTS)",
        "max_request_bytes": "bytes; the most is 1 (PROTOQUAD_MAX_REQUEST_BYTES)",
        "max_pixels": "at most 1 pixels",
    }.items():
        with pytest.raises(UnusableArchive) as refused, checked(sound, Settings.model_validate({name: 1})):
            pass

        assert why in str(refused.value)


def test_an_image_that_breaks_off_is_refused(loose: Path, target: Database) -> None:
    """It begins well; the session that learns from it would fail each time."""
    with archives.tampered(loose) as connection:
        ((data,),) = connection.execute("SELECT data FROM shots LIMIT 1").fetchall()
        half = data[: len(data) // 2]
        digest = archives.digest(half)
        connection.execute("UPDATE shots SET data = ?, sha256 = ?", (half, digest))

    assert "an image of class 1: the image begins as PNG but cannot be decoded" in refusal(loose, target)


@pytest.mark.parametrize(
    ("number", "why"), [(math.nan, "not finite"), (math.inf, "not finite"), (1e30, "too large"), (9e11, "not finite")]
)
def test_weights_that_answer_with_no_numbers_are_refused(
    loose: Path, target: Database, number: float, why: str
) -> None:
    """What is finite by itself may still be too large for a network."""
    with archives.tampered(loose) as connection:
        ((data,),) = connection.execute("SELECT data FROM weights WHERE version = 3").fetchall()
        begin = 8 + struct.unpack("<Q", data[:8])[0]
        end = len(data) - len(data) % 4
        wild = data[:begin] + struct.pack("<f", number) * ((end - begin) // 4) + data[end:]
        connection.execute("UPDATE weights SET data = ? WHERE version = 3", (wild,))

    assert "the weights of version 3" in refusal(loose, target)
    assert why


def test_a_schema_that_can_be_read_for_ever_is_given_up(sound: Path, target: Database) -> None:
    """Its tree of pages leads a thousand ways to the same page."""
    archives.entangle(sound)

    assert "is damaged (interrupted)" in refusal(sound, target)


def test_what_is_not_a_file_is_refused(tmp_path: Path, target: Database) -> None:
    """A pipe would be waited for."""
    os.mkfifo(tmp_path / "pipe")

    assert "is not a file" in refusal(tmp_path / "pipe", target)


# Anything


def _value(data: st.DataObject, old: Any, column: list[Any]) -> Any:
    """Something else for a cell: of any type, another row's, or the old value changed a little."""
    kind = data.draw(st.sampled_from(["any", "number", "other", "near", "near"]))
    if kind == "any":
        text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
        return data.draw(st.none() | st.integers(-(2**63), 2**63 - 1) | st.floats() | text | st.binary(max_size=300))
    if kind == "number":
        return data.draw(st.sampled_from([-1, 0, 1, 2, 3, 2**30, 2**31 - 1, 2**31, 2**63 - 1, 0.5, 1e308, "3", b"3"]))
    if kind == "other" or not isinstance(old, bytes):
        return data.draw(st.sampled_from(column))
    at = 4 * data.draw(st.integers(0, len(old) // 4))
    change = data.draw(
        st.sampled_from([b"", b"\0", b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\xff\xff\x7f\x7f", b"\0\0\x80\xbf"])
    )
    return old[:at] + change + old[at + data.draw(st.sampled_from([len(change), 4, len(old)])) :]


def _tamper(data: st.DataObject, connection: sqlite3.Connection) -> None:
    table = data.draw(st.sampled_from(OWNED))
    rows = connection.execute(f"SELECT rowid, * FROM {table}").fetchall()
    if not rows:
        return
    rowid, *values = data.draw(st.sampled_from(rows))
    what = data.draw(st.sampled_from(["change", "change", "change", "drop", "double", "add"]))
    if what == "drop":
        connection.execute(f"DELETE FROM {table} WHERE rowid = ?", (rowid,))
        return
    place = data.draw(st.integers(0, len(values) - 1))
    name = [column.name for column in TABLES[table].columns][place]
    changed = _value(data, values[place], [row[place + 1] for row in rows])
    if what == "change":
        connection.execute(f"UPDATE {table} SET {name} = ? WHERE rowid = ?", (changed, rowid))
    else:
        if what == "add":
            values[place] = changed
        connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)
    if table in ("shots", "guard_images"):  # so that not every change of an image ends at its digest
        for at, image in connection.execute(f"SELECT rowid, data FROM {table} WHERE typeof(data) = 'blob'").fetchall():
            connection.execute(f"UPDATE {table} SET sha256 = ? WHERE rowid = ?", (archives.digest(image), at))


@FUZZ
@given(st.data())
def test_any_archive_becomes_a_model_that_works_or_nothing(folder: Path, data: st.DataObject) -> None:
    """One to three changes of any kind in any table, with the right digest."""
    path = Path(shutil.copyfile(folder / "loose", folder / "tampered"))
    with archives.tampered(path) as connection:
        for _ in range(data.draw(st.integers(1, 3))):
            _tamper(data, connection)
    with closing(Database(f"sqlite:///{shutil.copyfile(folder / 'empty', folder / 'target')}")) as target:
        try:
            import_(path, target)
        except UnusableArchive:
            assert row_counts(target) == 0
        else:
            require_working(target)
    for log in folder.glob("target-*"):
        log.unlink()


@settings(FUZZ, max_examples=max(1, EXAMPLES // 2))
@given(st.data())
def test_any_bytes_become_a_model_that_works_or_nothing(folder: Path, data: st.DataObject) -> None:
    """The file itself changed where its pages and its schema are; there the digest is not what keeps it out."""
    whole = bytearray((folder / "sound").read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(18, 100) | st.integers(100, 8192) | st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.integers(0, 255))
    path = folder / "damaged"
    path.write_bytes(bytes(whole))
    with closing(Database(f"sqlite:///{shutil.copyfile(folder / 'empty', folder / 'target')}")) as target:
        try:
            import_(path, target)
        except UnusableArchive:
            assert row_counts(target) == 0
        else:
            require_working(target)
    for log in folder.glob("target-*"):
        log.unlink()
