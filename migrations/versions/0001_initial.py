"""Models, classes, sessions, versions and keys."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NAME = sa.String(200)
MOMENT = sa.DateTime(timezone=True)
ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite assigns ids only in a plain INTEGER column


def upgrade() -> None:
    _create_models()
    _create_sessions()
    _create_classes()
    _create_images("shots")
    _create_images("guard_images")
    _create_versions()
    _create_bank()
    _create_keys()


def downgrade() -> None:
    for table in (
        "idempotency_keys",
        "api_keys",
        "statistics",
        "prototypes",
        "weights",
        "versions",
        "guard_images",
        "shots",
        "classes",
        "session_events",
        "sessions",
        "models",
    ):
        op.drop_table(table)  # with its indexes


def _create_models() -> None:
    op.create_table(
        "models",
        sa.Column("id", ID, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("backbone", sa.String(200), nullable=False),
        sa.Column("head", sa.Integer(), nullable=False),
        sa.Column("last_version", sa.Integer(), nullable=False),
        sa.Column("last_class", sa.Integer(), nullable=False),
        sa.Column("renames", sa.Integer(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
        sa.UniqueConstraint("name", name=op.f("uq_models_name")),
        sqlite_autoincrement=True,
    )


def _create_sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", ID, nullable=False),
        sa.Column("model_id", ID, nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("owner", sa.String(200)),
        sa.Column("lease_until", MOMENT),
        sa.Column("ready_at", MOMENT, nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("request_id", sa.String(100)),
        sa.Column("progress", sa.JSON()),
        sa.Column("verdict", sa.String(20)),
        sa.Column("reason", sa.Text()),
        sa.Column("error", sa.Text()),
        sa.Column("version", sa.Integer()),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("started_at", MOMENT),
        sa.Column("finished_at", MOMENT),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_sessions_model_id"), ondelete="CASCADE"),
        sa.CheckConstraint(
            "status IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name=op.f("ck_sessions_status")
        ),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_sessions_model_id_sessions_status"), "sessions", ["model_id", "status"])
    op.create_index(op.f("ix_sessions_status_sessions_ready_at"), "sessions", ["status", "ready_at"])
    for status in ("running", "queued"):
        only = sa.text(f"status = '{status}'")
        op.create_index(
            f"uq_sessions_{status}", "sessions", ["model_id"], unique=True, sqlite_where=only, postgresql_where=only
        )
    op.create_table(
        "session_events",
        sa.Column("id", ID, nullable=False),
        sa.Column("session_id", ID, nullable=False),
        sa.Column("event", sa.String(20), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_session_events")),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name=op.f("fk_session_events_session_id"), ondelete="CASCADE"
        ),
    )
    op.create_index(op.f("ix_session_events_session_id_session_events_id"), "session_events", ["session_id", "id"])


def _create_classes() -> None:
    op.create_table(
        "classes",
        sa.Column("model_id", ID, nullable=False),
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("shots", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("since", sa.Integer(), nullable=False),
        sa.Column("session_id", ID),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("deleted_at", MOMENT),
        sa.PrimaryKeyConstraint("model_id", "id", name=op.f("pk_classes")),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_classes_model_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name=op.f("fk_classes_session_id"), ondelete="SET NULL"
        ),
        sa.CheckConstraint("status IN ('provisional', 'learned')", name=op.f("ck_classes_status")),
    )
    living = sa.text("deleted_at IS NULL")
    op.create_index(
        "uq_classes_living_name",
        "classes",
        ["model_id", "name"],
        unique=True,
        sqlite_where=living,
        postgresql_where=living,
    )


def _create_images(table: str) -> None:
    op.create_table(
        table,
        sa.Column("id", ID, nullable=False),
        sa.Column("model_id", sa.BigInteger(), nullable=False),
        sa.Column("class_id", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}")),
        _of_class(table),
    )
    op.create_index(op.f(f"ix_{table}_model_id_{table}_class_id"), table, ["model_id", "class_id"])


def _create_versions() -> None:
    op.create_table(
        "versions",
        sa.Column("model_id", ID, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("parent", sa.Integer()),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("base", sa.Integer(), nullable=False),
        sa.Column("weights", sa.Integer(), nullable=False),
        sa.Column("classes", sa.Integer(), nullable=False),
        sa.Column("temperature", sa.Double(), nullable=False),
        sa.Column("threshold", sa.Double()),
        sa.Column("verdict", sa.String(20)),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column("kept", sa.Boolean(), nullable=False),
        sa.Column("session_id", ID),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("model_id", "number", name=op.f("pk_versions")),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_versions_model_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name=op.f("fk_versions_session_id"), ondelete="SET NULL"
        ),
        sa.CheckConstraint(
            "kind IN ('base', 'provisional', 'incremental', 'rollback', 'delete')", name=op.f("ck_versions_kind")
        ),
    )
    op.create_table(
        "weights",
        sa.Column("model_id", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("model_id", "version", name=op.f("pk_weights")),
        sa.ForeignKeyConstraint(
            ["model_id", "version"],
            ["versions.model_id", "versions.number"],
            name=op.f("fk_weights_model_id_version"),
            ondelete="CASCADE",
        ),
    )


def _create_bank() -> None:
    op.create_table(
        "prototypes",
        sa.Column("model_id", sa.BigInteger(), nullable=False),
        sa.Column("class_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("vector", sa.LargeBinary()),
        sa.Column("shots", sa.Integer(), nullable=False),
        sa.Column("restart", sa.Boolean(), nullable=False),
        sa.Column("held_out", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("model_id", "class_id", "version", name=op.f("pk_prototypes")),
        _of_class("prototypes"),
    )
    op.create_table(
        "statistics",
        sa.Column("model_id", sa.BigInteger(), nullable=False),
        sa.Column("class_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("mean", sa.LargeBinary(), nullable=False),
        sa.Column("factor", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("model_id", "class_id", "version", name=op.f("pk_statistics")),
        _of_class("statistics"),
    )
    for table in ("prototypes", "statistics"):
        op.create_index(op.f(f"ix_{table}_model_id_{table}_version"), table, ["model_id", "version"])


def _create_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(16), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("scopes", sa.String(100), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("revoked_at", MOMENT),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("model_id", ID, nullable=False),
        sa.Column("key", sa.String(200), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("answer", sa.JSON(), nullable=False),
        sa.Column("session_id", ID),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("model_id", "key", name=op.f("pk_idempotency_keys")),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_idempotency_keys_model_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name=op.f("fk_idempotency_keys_session_id"), ondelete="SET NULL"
        ),
    )
    op.create_index(op.f("ix_idempotency_keys_created_at"), "idempotency_keys", ["created_at"])
    for table in ("classes", "versions", "idempotency_keys"):
        op.create_index(op.f(f"ix_{table}_session_id"), table, ["session_id"])


def _of_class(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["model_id", "class_id"],
        ["classes.model_id", "classes.id"],
        name=op.f(f"fk_{table}_model_id_class_id"),
        ondelete="CASCADE",
    )
