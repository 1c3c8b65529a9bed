"""The models of a deployment: named learners, each with its own versions, classes and sessions."""

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from store.database import images_erased, now
from store.errors import NameTaken, NotThere
from store.models import Model, ModelId, Version, VersionNumber

DEFAULT = "default"
UNTAUGHT = VersionNumber(0)


def create(db: Session, name: str, backbone: str, temperature: float) -> Model:
    """A model with version 0: the pretrained backbone and no classes."""
    if find(db, name) is not None:
        raise NameTaken(f"there is a model named '{name}' already")
    moment = now(db)
    model = Model(name=name, backbone=backbone, head=UNTAUGHT, last_version=UNTAUGHT, last_class=0, created_at=moment)
    db.add(model)
    try:
        db.flush()
    except IntegrityError as error:  # another process created it at the same moment
        raise NameTaken(f"there is a model named '{name}' already") from error
    db.add(
        Version(
            model_id=model.id,
            number=UNTAUGHT,
            parent=None,
            kind="base",
            base=UNTAUGHT,
            weights=UNTAUGHT,
            classes=0,
            temperature=temperature,
            threshold=None,
            details={},
            created_at=moment,
        )
    )
    db.flush()
    return model


def find(db: Session, name: str) -> Model | None:
    return db.scalars(select(Model).where(Model.name == name)).one_or_none()


def find_by_id(db: Session, model_id: ModelId) -> Model | None:
    """None if the model was deleted."""
    return db.get(Model, model_id)


def get(db: Session, name: str) -> Model:
    model = find(db, name)
    if model is None:
        raise NotThere(f"there is no model named '{name}'; GET /models lists them")
    return model


def locked(db: Session, model_id: ModelId) -> Model:
    """The model's row, locked until the transaction ends. Whoever adds a version must hold this lock.

    It excludes others who ask for the same lock, but not rows that refer to the model: PostgreSQL looks the model up
    again when a session's row changes twice in a transaction, and would wait for us while we wait for that session.
    """
    statement = select(Model).where(Model.id == model_id).with_for_update(key_share=True)
    model = db.scalars(statement.execution_options(populate_existing=True)).one_or_none()
    if model is None:
        raise NotThere("the model was deleted")
    return model


def everything(db: Session) -> list[Model]:
    return list(db.scalars(select(Model).order_by(Model.name)))


def delete(db: Session, name: str) -> None:
    """Delete the model with everything that belongs to it."""
    db.delete(locked(db, get(db, name).id))
    images_erased(db)
    db.flush()
