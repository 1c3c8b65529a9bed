"""Addresses that are told of events, the events on their way to them, and the trace that a session belongs to."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("sessions", sa.Column("traceparent", sa.String(55), nullable=True))
    _create_webhooks()
    _create_deliveries()


def downgrade() -> None:
    for table in ("deliveries", "webhooks"):
        op.drop_table(table)  # with its indexes
    op.drop_column("sessions", "traceparent")


def _create_webhooks() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("model_id", ID, nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("events", sa.String(200), nullable=False),
        sa.Column("secret", sa.String(100), nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("claims", sa.Integer(), nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True)),
        sa.Column("failing_since", sa.DateTime(timezone=True)),
        sa.Column("delivered", sa.Integer(), nullable=False),
        sa.Column("given_up", sa.Integer(), nullable=False),
        sa.Column("last_delivery", sa.JSON()),
        sa.Column("full_at", sa.DateTime(timezone=True)),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("status IN ('active', 'disabled')", name=op.f("ck_webhooks_status")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhooks")),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_webhooks_model_id"), ondelete="CASCADE"),
    )
    op.create_index(op.f("ix_webhooks_model_id"), "webhooks", ["model_id"])


def _create_deliveries() -> None:
    op.create_table(
        "deliveries",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("webhook_id", sa.String(40), nullable=False),
        sa.Column("type", sa.String(40), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
        sa.ForeignKeyConstraint(
            ["webhook_id"], ["webhooks.id"], name=op.f("fk_deliveries_webhook_id"), ondelete="CASCADE"
        ),
    )
    op.create_index(op.f("ix_deliveries_webhook_id_deliveries_due_at"), "deliveries", ["webhook_id", "due_at"])
    op.create_index(op.f("ix_deliveries_due_at"), "deliveries", ["due_at"])
