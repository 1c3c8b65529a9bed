"""Shots that are costly to decode are stored with a smaller copy."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("shots", sa.Column("scaled", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    op.drop_column("shots", "scaled")
