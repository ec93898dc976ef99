"""Models and migrations agree on all three databases; several may open an empty one at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, make_url, text
from sqlalchemy.event import listen

from clearway.model.errors import SchemaError, StoreError
from clearway.store import migrate
from clearway.store.database import open_database
from clearway.store.repository import Store
from clearway.store.tables import METADATA
from tests.builders import NOW, eviction


def test_the_migrations_make_what_the_models_say(store: Store) -> None:
    with store._database.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, METADATA) == []


def test_the_first_revision_stays_as_it_was_released(database_url: str) -> None:
    """Where this fails, the revision must first become independent of ``store.tables``: see its docstring."""
    released = Path(__file__).parent / f"s001-{make_url(database_url).get_backend_name()}.sql"
    assert first_revision(database_url) == released.read_text()


def first_revision(database_url: str) -> str:
    database, said = open_database(database_url), set[str]()

    def note(_: object, __: object, statement: str, *___: object) -> None:
        if statement.lstrip().startswith("CREATE"):
            said.add(" ".join(statement.split()) + "\n")

    listen(database.engine, "before_cursor_execute", note)
    with migrate.alone(database) as connection:
        migrate.move(connection, "s001")
    database.engine.dispose()
    return "".join(sorted(said))


def test_the_newest_migration_is_the_one_that_is_asked_for() -> None:
    assert ScriptDirectory.from_config(migrate.config()).get_heads() == [migrate.HEAD]


def test_an_empty_database_is_filled(database_url: str) -> None:
    database = open_database(database_url)
    assert migrate.current_revision(database) is None
    migrate.upgrade(database)
    assert migrate.current_revision(database) == migrate.HEAD
    database.engine.dispose()

    store = Store(database_url)
    assert store.create_eviction(eviction()).eviction_id == 1
    assert store.take_lease("host:1", NOW, 10).epoch == 1
    store.close()


def test_opening_keeps_what_is_there(database_url: str) -> None:
    first = Store(database_url)
    saved = first.create_eviction(eviction())
    first.close()
    second = Store(database_url)
    assert second.evictions() == (saved,)
    second.close()


@pytest.mark.fault("Two processes could migrate one MariaDB at once.", found_by="reading")
def test_several_open_an_empty_database_at_once(database_url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(Store, [database_url] * 4))
    assert [store.evictions() for store in stores] == [()] * 4
    for store in stores:
        store.close()


@pytest.mark.parametrize(
    ("revision", "why"),
    [
        ("s999", "this Clearway knows none after s001: was it used by a newer version\\?"),
        ("0017", "of a state before the first release, and is not migrated: put it aside"),
        ("0001", "of a state before the first release"),
    ],
)
def test_a_database_of_another_clearway_is_refused_and_left_alone(database_url: str, revision: str, why: str) -> None:
    store = Store(database_url)
    saved = store.create_eviction(eviction())
    marked(store, revision)
    for _ in range(2):
        with pytest.raises(SchemaError, match=f"^database .*: its schema has revision {revision}, .*{why}") as refused:
            Store(database_url)
        assert "\n" not in str(refused.value)
        assert not refused.value.retryable
    marked(store, migrate.HEAD)
    assert store.evictions() == (saved,)
    store.close()


def marked(store: Store, revision: str) -> None:
    with store._database.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})


def test_a_migration_that_fails_leaves_nothing_behind(database_url: str) -> None:
    """MariaDB cannot take CREATE TABLE back; there an administrator drops the tables or restores a backup."""
    database = open_database(database_url)
    with database.writing() as connection:
        connection.execute(text("CREATE TABLE steps (something_else INTEGER)"))
    database.engine.dispose()
    with pytest.raises(StoreError, match="steps"):
        Store(database_url)
    if database.engine.dialect.name != "mariadb":
        with database.reading() as connection:
            assert inspect(connection).get_table_names() == ["steps"]
    database.engine.dispose()
