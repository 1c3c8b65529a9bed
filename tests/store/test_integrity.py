"""What is no longer as it was written is found, on either database."""

from sqlalchemy import text, update
from sqlalchemy.orm import Session

from store import classes, integrity, versions
from store.bank_rows import PrototypeRow
from store.integrity import DamagedImage
from store.models import Model, Prototype, Shot, VersionNumber, Weights


def teach(db: Session, model: Model, name: str, *images: bytes, guard: tuple[bytes, ...] = ()) -> int:
    row = classes.add(db, model, name, shots=len(images), since=VersionNumber(model.last_version + 1))
    classes.add_shots(db, model.id, row.id, images)
    classes.add_guard(db, model.id, row.id, guard)
    head = versions.get(db, model.id, model.head)
    prototype = PrototypeRow(row.id, bytes(8), len(images), restart=True)
    versions.add(
        db,
        model,
        versions.NewVersion(
            "incremental",
            parent=head,
            classes=head.classes + 1,
            temperature=1.0,
            threshold=None,
            weights=b"weights",
            prototypes=[prototype],
        ),
    )
    return row.id


def test_a_database_as_it_was_written_has_no_fault(db: Session, model: Model) -> None:
    """Neither in its images nor in its references nor in its models."""
    teach(db, model, "wren", b"1", b"2", guard=(b"3",))
    seen: list[tuple[int, int]] = []

    assert list(integrity.damaged_images(db, lambda done, total: seen.append((done, total)))) == []
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert integrity.dangling_rows(db) == {}
    assert integrity.unservable_models(db) == {}
    assert integrity.damaged_pages(db) == []


def test_a_changed_image_is_found_among_many(db: Session, model: Model) -> None:
    """By its own number, class and model; shots and guard images alike."""
    teach(db, model, "wren", *(bytes([number]) for number in range(20)))
    class_id = teach(db, model, "robin", b"1", guard=(b"2", b"3"))
    db.execute(text("UPDATE shots SET sha256 = :digest WHERE id = 7"), {"digest": "0" * 64})
    db.execute(text("UPDATE guard_images SET sha256 = :digest WHERE id = 2"), {"digest": "0" * 64})

    assert list(integrity.damaged_images(db)) == [
        DamagedImage("shots", 7, "birds", 1),
        DamagedImage("guard_images", 2, "birds", class_id),
    ]


def test_a_head_without_its_weights_cannot_be_served(db: Session, model: Model) -> None:
    """Nor one that does not exist, nor one whose prototypes are not all there."""
    teach(db, model, "wren", b"1")
    for name, spoil in {
        "weights": text("DELETE FROM weights"),
        "head": update(Model).values(head=99),
        "prototypes": text("DELETE FROM prototypes"),
    }.items():
        with db.begin_nested() as step:
            db.execute(spoil)
            db.expire_all()
            assert list(integrity.unservable_models(db)) == ["birds"], name
            step.rollback()

    assert integrity.unservable_models(db) == {}
    assert db.query(Weights).count() == db.query(Prototype).count() == 1


def test_a_row_that_refers_to_nothing_is_counted(db: Session, model: Model) -> None:
    """However it came about: constraints can be turned off."""
    teach(db, model, "wren", b"1", b"2")
    is_sqlite = db.get_bind().dialect.name == "sqlite"
    with db.begin_nested() as step:
        off = "PRAGMA defer_foreign_keys = ON" if is_sqlite else "SET LOCAL session_replication_role = 'replica'"
        db.execute(text(off))
        db.execute(update(Shot).values(class_id=99))
        found = integrity.dangling_rows(db)
        step.rollback()

    assert found == {"shots": 2}
    assert integrity.dangling_rows(db) == {}
