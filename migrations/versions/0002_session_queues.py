"""Sessions have a queue, which decides which workers may take them."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("sessions", sa.Column("queue", sa.String(20), nullable=False, server_default="cpu"))


def downgrade() -> None:
    op.drop_column("sessions", "queue")
