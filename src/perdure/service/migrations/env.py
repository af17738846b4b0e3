"""Alembic's way in: run the migrations in the transaction of the connection that `perdure.service.store` hands over."""

from alembic import context

from perdure.service.schema import metadata
from perdure.service.store import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
