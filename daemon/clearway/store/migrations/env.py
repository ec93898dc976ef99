"""Alembic's entry: runs the migrations on the connection (and in the transaction) that ``migrate`` hands over."""

from __future__ import annotations

from alembic import context

from clearway.store.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    render_as_batch=True,  # SQLite changes a table by copying it
)
with context.begin_transaction():
    context.run_migrations()
