"""Models: made with an empty version, found by name, deleted with all they know."""

import pytest
from sqlalchemy.orm import Session

from store import bank_rows, catalogue, versions
from store.errors import NameTaken, NotThere
from store.models import Model, ModelId


def test_a_new_model_serves_version_0_which_knows_nothing(db: Session) -> None:
    """The pretrained backbone, no classes and no threshold."""
    model = catalogue.create(db, "birds", "resnet18", 0.7)
    version = versions.get(db, model.id, 0)

    assert (model.name, model.backbone, model.head, model.last_version, model.last_class) == (
        "birds",
        "resnet18",
        0,
        0,
        0,
    )
    assert (version.kind, version.parent, version.base, version.weights) == ("base", None, 0, 0)
    assert (version.classes, version.temperature, version.threshold, version.kept) == (0, 0.7, None, True)
    assert bank_rows.read_bank(db, model.id, 0) == []
    assert versions.weights(db, model.id, 0) is None


def test_a_name_belongs_to_one_model(db: Session, model: Model) -> None:
    """The second is refused, and the first is as it was."""
    with pytest.raises(NameTaken, match="'birds'"):
        catalogue.create(db, "birds", "other", 1.0)

    assert catalogue.get(db, "birds").backbone == model.backbone


def test_models_are_listed_by_name(db: Session) -> None:
    """In the order of the alphabet, not of making."""
    for name in ("cars", "birds", "flowers"):
        catalogue.create(db, name, "resnet18", 1.0)

    assert [model.name for model in catalogue.everything(db)] == ["birds", "cars", "flowers"]


def test_an_unknown_name_finds_nothing(db: Session, model: Model) -> None:
    """`find` answers none where `get` raises; case counts."""
    assert catalogue.find(db, "birds") is model
    assert catalogue.find(db, "Birds") is None
    with pytest.raises(NotThere, match="'Birds'"):
        catalogue.get(db, "Birds")


def test_a_locked_model_is_read_anew(db: Session, model: Model) -> None:
    """Another may have numbered a version since the row was first seen."""
    model_id = model.id
    db.connection().execute(Model.__table__.update().values(last_version=7))

    assert catalogue.locked(db, model_id).last_version == 7


def test_a_model_that_is_gone_cannot_be_locked(db: Session, model: Model) -> None:
    """Whoever comes late is told so."""
    model_id = model.id
    catalogue.delete(db, "birds")

    with pytest.raises(NotThere, match="deleted"):
        catalogue.locked(db, model_id)
    with pytest.raises(NotThere):
        catalogue.locked(db, ModelId(model_id + 1))


def test_a_deleted_model_frees_its_name_but_not_its_id(db: Session, model: Model) -> None:
    """What somebody still holds of the old model must not be taken for the new one."""
    old = model.id
    catalogue.delete(db, "birds")

    assert catalogue.find(db, "birds") is None
    assert catalogue.create(db, "birds", "resnet18", 1.0).id != old


def test_an_unknown_model_cannot_be_deleted(db: Session, model: Model) -> None:
    """And no other goes in its place."""
    with pytest.raises(NotThere, match="'cars'"):
        catalogue.delete(db, "cars")

    assert catalogue.everything(db) == [model]
