"""Databases for tests on a PostgreSQL server: a migrated one is emptied after its test and used again."""

from collections.abc import Callable
from itertools import count

import psycopg
from psycopg import sql

from tests.postgresql_server import PostgresqlServer

TEMPLATE = "migrated"
OTHERS_END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"
COLUMNS = """
    SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns
    WHERE table_schema = 'public' ORDER BY 1, 2
"""
SEQUENCES = "SELECT setval(format('%I', sequencename)::regclass, 1, false) FROM pg_sequences"


class PostgresqlDatabases:
    """Emptying a database takes a tenth of the time that making and dropping one takes."""

    def __init__(self, server: PostgresqlServer, migrate: Callable[[str], None]) -> None:
        self._server = server
        self._numbers = count(1)
        self._unused: list[str] = []
        server.administer("CREATE DATABASE {}", TEMPLATE)
        migrate(server.url(TEMPLATE))
        with self._connected(TEMPLATE) as connection:
            self._schema = _schema_of(connection)
            tables = {table for table, *_ in connection.execute(COLUMNS).fetchall()} - {"alembic_version"}
        self._empty = sql.SQL("; ").join(
            [
                sql.SQL("SET session_replication_role = replica"),  # rows refer to each other: in any order
                *(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)) for table in sorted(tables)),
                sql.SQL(SEQUENCES),
            ]
        )

    def take(self, *, migrated: bool) -> str:
        if migrated and self._unused:
            return self._unused.pop()
        name = f"test_{next(self._numbers)}"
        template = TEMPLATE if migrated else "template0"
        self._server.administer("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY", name, template)
        return name

    def give_back(self, name: str) -> None:
        """Whatever a test has done with it; one whose tables it has changed is of no use to another."""
        with self._connected(name) as connection:
            connection.execute(OTHERS_END, [name])
            is_usable = _schema_of(connection) == self._schema
            if is_usable:
                connection.execute(self._empty)
        if is_usable:
            self._unused.append(name)
        else:
            self._server.administer("DROP DATABASE {} WITH (FORCE)", name)

    def _connected(self, name: str) -> "psycopg.Connection[tuple[str, ...]]":
        return psycopg.connect(host=str(self._server.folder), user="postgres", dbname=name, autocommit=True)


def _schema_of(connection: "psycopg.Connection[tuple[str, ...]]") -> tuple[object, object]:
    """Columns, and the version that it says it has; None if a test has removed the table of that."""
    columns = connection.execute(COLUMNS).fetchall()
    versioned = any(table == "alembic_version" for table, *_ in columns)
    return columns, connection.execute("SELECT version_num FROM alembic_version").fetchall() if versioned else None
