"""Shots keep the name of their file and the time at which they came."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("shots", sa.Column("filename", sa.String(200), nullable=True))
    op.add_column("shots", sa.Column("created_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.drop_column("shots", "created_at")
    op.drop_column("shots", "filename")
