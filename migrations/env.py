"""What alembic runs to reach the database: the connection, and the transaction, are those of `migrations.schema`."""

from alembic import context

from store.models import Base

context.configure(connection=context.config.attributes["connection"], target_metadata=Base.metadata)
context.run_migrations()
