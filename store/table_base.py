"""What all tables share: the type of ids, times in UTC, and how constraints are named."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, DateTime, Dialect, Integer, LargeBinary, MetaData, TypeDecorator
from sqlalchemy.orm import DeclarativeBase

Id = BigInteger().with_variant(Integer, "sqlite")  # SQLite assigns ids only in a plain INTEGER column


class Moment(TypeDecorator[datetime]):
    """A time in UTC: SQLite would drop the time zone, PostgreSQL would answer in the server's."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        return value.astimezone(UTC) if value else None

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={  # so that a migration can name the constraints that it drops
            "ix": "ix_%(column_0_N_label)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {datetime: Moment, dict[str, Any]: JSON, bytes: LargeBinary}  # noqa: RUF012
