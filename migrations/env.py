"""Run by alembic to reach the database, on the connection and in the transaction of `migrations.schema`."""

from alembic import context

from store.models import Base

context.configure(connection=context.config.attributes["connection"], target_metadata=Base.metadata)
context.run_migrations()
