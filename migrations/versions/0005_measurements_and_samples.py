"""What versions make of held-out images, and images that predictions have kept."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _create_measurements()
    _create_samples()


def downgrade() -> None:
    for table in ("samples", "measurements"):
        op.drop_table(table)  # with its indexes


def _create_measurements() -> None:
    op.create_table(
        "measurements",
        sa.Column("id", ID, nullable=False),
        sa.Column("model_id", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("class_id", sa.Integer(), nullable=False),
        sa.Column("shot_id", ID),
        sa.Column("guard_id", ID),
        sa.Column("nearest", sa.Integer(), nullable=False),
        sa.Column("distance", sa.Double(), nullable=False),
        sa.Column("confidence", sa.Double(), nullable=False),
        sa.Column("refused", sa.Boolean(), nullable=False),
        sa.Column("harmful", sa.Boolean()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_measurements")),
        sa.ForeignKeyConstraint(
            ["model_id", "version"],
            ["versions.model_id", "versions.number"],
            name=op.f("fk_measurements_model_id_version"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["shot_id"], ["shots.id"], name=op.f("fk_measurements_shot_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["guard_id"], ["guard_images.id"], name=op.f("fk_measurements_guard_id"), ondelete="CASCADE"
        ),
    )
    op.create_index(op.f("ix_measurements_model_id_measurements_version"), "measurements", ["model_id", "version"])
    for column in ("shot_id", "guard_id"):
        op.create_index(op.f(f"ix_measurements_{column}"), "measurements", [column])


def _create_samples() -> None:
    op.create_table(
        "samples",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("model_id", ID, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("weights", sa.Integer(), nullable=False),
        sa.Column("unknown", sa.Boolean(), nullable=False),
        sa.Column("confidence", sa.Double(), nullable=False),
        sa.Column("margin", sa.Double(), nullable=False),
        sa.Column("top", sa.JSON(), nullable=False),
        sa.Column("feature", sa.LargeBinary(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_samples")),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_samples_model_id"), ondelete="CASCADE"),
    )
    op.create_index(op.f("ix_samples_model_id_samples_id"), "samples", ["model_id", "id"])
