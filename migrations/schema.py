"""Migrates a database to this release's schema, or reports that it has another.

All steps run in one transaction on either database: if one fails, the schema stays as it was.
"""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.script.revision import ResolutionError
from alembic.util import CommandError
from sqlalchemy import Connection, func, select

from store.database import Database
from store.errors import SchemaMismatch

LOCK = 7_020_914_551  # any number, but the same in every release


def upgrade(database: Database, revision: str = "head") -> None:
    """Migrate to this release's schema or an earlier one. If several processes do so at once, the others wait."""
    with database.write() as db:
        connection = db.connection()
        _lock_schema(connection)
        _require_known(connection)
        command.upgrade(_config(connection), revision)


def downgrade(database: Database, revision: str) -> None:
    """Migrate back to an earlier schema; data that only the later schema can hold is lost."""
    with database.write() as db:
        connection = db.connection()
        _lock_schema(connection)
        _require_known(connection)
        command.downgrade(_config(connection), revision)


def current(database: Database) -> str | None:
    """The schema that the database has; None if it is empty."""
    with database.read() as db:
        return _revision(db.connection())


def knows(revision: str) -> bool:
    """Whether it is this release's schema or an earlier one."""
    return revision in {script.revision for script in _scripts().walk_revisions()}


def head() -> str:
    """The schema that this release needs."""
    newest = _scripts().get_current_head()
    if newest is None:  # only if the files themselves are missing
        raise SchemaMismatch("the migrations are missing from this installation; install protoquad again")
    return newest


def require_current(database: Database) -> None:
    """Raises SchemaMismatch unless the database has the schema that this release needs."""
    with database.read() as db:
        connection = db.connection()
        _require_known(connection)
        found = _revision(connection)
    if found != head():
        has = "the database is empty" if found is None else f"the database has schema {found}"
        raise SchemaMismatch(f"{has}, this release needs {head()}; run `protoquad migrate`")


def _lock_schema(connection: Connection) -> None:
    """Wait until no other process changes the schema. On SQLite the write transaction already ensures that."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(LOCK)))


def _require_known(connection: Connection) -> None:
    found = _revision(connection)
    try:
        _scripts().get_revisions(found or ())
    except (ResolutionError, CommandError) as error:
        raise SchemaMismatch(
            f"the database has schema {found}, which this release does not know; it needs {head()}. A newer release "
            "made it: install that release"
        ) from error


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _config(connection: Connection | None = None) -> Config:
    config = Config(attributes={"connection": connection})
    here = str(Path(__file__).parent)
    config.set_main_option("script_location", here.replace("%", "%%"))  # percent signs are interpolated
    return config
