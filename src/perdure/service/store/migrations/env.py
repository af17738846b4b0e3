"""Alembic's way in: run the migrations in the transaction that `perdure.service.store.database` hands over."""

from alembic import context

from perdure.service.store.database import VERSION_TABLE
from perdure.service.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
