"""``clearway backup``, ``verify`` and ``restore``: the daemon's database in a file, and back."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from clearway.cli import options, render
from clearway.store.database import Database, open_database

FileArgument = Annotated[Path, typer.Argument(help="File of the backup.")]


def backup(
    file: Annotated[Path, typer.Argument(help="New file; its owner alone may read it.")],
    config: options.ConfigOption = options.DEFAULT_CONFIG,
) -> None:
    """Write the whole database to a file, while the daemon may be running."""
    from clearway.store import backup as backups  # noqa: PLC0415 - the other commands start quicker without

    with options.errors(), _database(config) as database:
        made = backups.write(database, file, datetime.now(UTC))
    print(f"{file}: {sum(made.rows.values())} rows, schema {made.revision}, SHA-256 {made.sha256}")


def verify(
    file: Annotated[Path | None, typer.Argument(help="A backup; without one: the database itself.")] = None,
    config: options.ConfigOption = options.DEFAULT_CONFIG,
) -> None:
    """Check the database, or a backup: schema, references, documents, audit trail. Tells what is wrong."""
    from clearway.store import backup as backups  # noqa: PLC0415 - as above
    from clearway.store.verification import faults  # noqa: PLC0415

    with options.errors():
        if file is None:
            with _database(config) as database:
                found, what = faults(database), database.shown_url
        else:
            with tempfile.TemporaryDirectory() as folder, _opened(f"sqlite:///{folder}/verify.sqlite") as database:
                backups.restore(database, file, datetime.now(UTC), actor="verify")
                found, what = faults(database), str(file)
    for fault in found:
        options.complain(fault)
    if found:
        raise typer.Exit(options.FAILED)
    print(f"{render.visible(what)}: good")


def restore(
    file: FileArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Also replace a database with operations that have not ended.")
    ] = False,
    config: options.ConfigOption = options.DEFAULT_CONFIG,
) -> None:
    """Replace the database by a backup, and pause; refused while a daemon leads. What it held is written to a file."""
    from clearway.store import backup as backups  # noqa: PLC0415 - as above

    with options.errors(), _opened(options.configuration(config).store.url) as database:
        replaced = backups.restore(database, file, datetime.now(UTC), actor=options.actor(), force=force)
    if replaced is not None:
        print(f"What the database held before is in {replaced}")
    print("Restored. Clearway begins nothing until `clearway resume`: look at `clearway evictions list` first.")


@contextmanager
def _database(config: Path) -> Iterator[Database]:
    """The configured database as it is, without a migration."""
    url = options.configuration(config).store.url
    from clearway.bootstrap import must_exist  # noqa: PLC0415 - as above

    must_exist(url)
    with _opened(url) as database:
        yield database


@contextmanager
def _opened(url: str) -> Iterator[Database]:
    database = open_database(url)
    try:
        yield database
    finally:
        database.engine.dispose()
