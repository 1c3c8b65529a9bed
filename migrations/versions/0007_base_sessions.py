"""Sessions have a kind: base sessions wait in the same table, with a task and the zip that they learn from."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
QUEUED = sa.text("status = 'queued'")


def upgrade() -> None:
    op.add_column("sessions", sa.Column("kind", sa.String(20), nullable=False, server_default="incremental"))
    op.add_column("sessions", sa.Column("task", sa.JSON()))
    _replace_index(["model_id", "kind"])
    op.create_table(
        "zip_parts",
        sa.Column("session_id", ID, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("session_id", "number", name=op.f("pk_zip_parts")),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name=op.f("fk_zip_parts_session_id"), ondelete="CASCADE"
        ),
    )


def downgrade() -> None:
    op.drop_table("zip_parts")
    # An earlier release would take them for sessions that refine what was taught.
    op.execute("DELETE FROM sessions WHERE kind = 'base' AND status IN ('queued', 'running')")
    _replace_index(["model_id"])
    op.drop_column("sessions", "task")
    op.drop_column("sessions", "kind")


def _replace_index(columns: list[str]) -> None:
    op.drop_index("uq_sessions_queued", "sessions")
    op.create_index(
        "uq_sessions_queued", "sessions", columns, unique=True, sqlite_where=QUEUED, postgresql_where=QUEUED
    )
