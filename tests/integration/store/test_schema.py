"""Models and migrations agree on all three databases; the way up can be taken at once by several, and back."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from clearway.execution.progress import fresh_operation
from clearway.model.errors import StoreError
from clearway.model.operations import Drain, Relocation
from clearway.model.operations import EvictionState as E
from clearway.model.orders import DrainOrder, JobMove, MoveKind, RelocationOrder
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.model.plan import DrainPlan, OperationPlan, RelocationPlan
from clearway.store import migrate
from clearway.store.database import open_database
from clearway.store.repository import SqlStore
from clearway.store.tables import METADATA
from tests.builders import NOW, eviction, plan


def test_the_migrations_make_what_the_models_say(store: SqlStore) -> None:
    with store._database.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, METADATA) == []


def test_the_newest_migration_is_the_one_that_is_asked_for() -> None:
    assert ScriptDirectory.from_config(migrate.config()).get_heads() == [migrate.HEAD]


def test_down_and_up_again(database_url: str) -> None:
    database = open_database(database_url)
    assert migrate.current_revision(database) is None
    migrate.upgrade(database)
    assert migrate.current_revision(database) == migrate.HEAD
    migrate.downgrade(database)
    with database.reading() as connection:
        assert inspect(connection).get_table_names() == ["alembic_version"]
    assert migrate.current_revision(database) is None
    migrate.upgrade(database)
    database.engine.dispose()

    store = SqlStore(database_url)
    assert store.create_eviction(eviction()).eviction_id == 1
    assert store.take_lease("host:1", NOW, 10).epoch == 1
    store.close()


def test_opening_keeps_what_is_there(database_url: str) -> None:
    first = SqlStore(database_url)
    saved = first.create_eviction(eviction())
    first.close()
    second = SqlStore(database_url)
    assert second.evictions() == (saved,)
    second.close()


def test_several_open_an_empty_database_at_once(database_url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(SqlStore, [database_url] * 4))
    for store in stores:
        assert store.evictions() == ()
        store.close()


def test_a_database_of_a_newer_version_is_refused(database_url: str) -> None:
    store = SqlStore(database_url)
    with store._database.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    store.close()
    with pytest.raises(StoreError, match=r"schema has revision 9999.*newer version"):
        SqlStore(database_url)


def test_a_migration_that_fails_leaves_nothing_behind(database_url: str) -> None:
    """MariaDB cannot take CREATE TABLE back; there an administrator drops the tables or restores a backup."""
    database = open_database(database_url)
    with database.writing() as connection:
        connection.execute(text("CREATE TABLE steps (something_else INTEGER)"))
    database.engine.dispose()
    with pytest.raises(StoreError, match="steps"):
        SqlStore(database_url)
    if database.engine.dialect.name != "mariadb":
        with database.reading() as connection:
            assert inspect(connection).get_table_names() == ["steps"]
    database.engine.dispose()


def test_drains_and_relocations_of_an_older_version_are_told_apart(database_url: str) -> None:
    """Down to revision 0007 they are evictions with a preemptor that no cluster knows; and up again."""
    store = SqlStore(database_url)
    common = {each.name: getattr(plan(), each.name) for each in fields(OperationPlan)}
    order = DrainOrder(nodes=("n1", "n2"), actor="olga", request_id=3, reason="disk", begin_at=NOW, force=True)
    moves = (JobMove("101", "n1", "n3", 2),)
    relocation = RelocationOrder(
        nodes=("n1",), actor="root", reason="compaction", kind=MoveKind.COMPACTION, moves=moves, gain_node_s=9.5,
        cost_node_s=1.0, power_down=True,
    )  # fmt: skip
    in_the_way = Outcome(OutcomeCode.NOT_POSSIBLE, "1 job(s) in the way: job 7 of bob: it cannot be requeued")
    made = [
        eviction(),
        fresh_operation(Drain, DrainPlan(**common, order=order), "approve", E.CANCELLING, NOW, outcome=in_the_way),
        fresh_operation(Relocation, RelocationPlan(**common, order=relocation), "automatic", E.PLACING, NOW),
    ]
    stored = [store.create_eviction(each) for each in made]
    store.close()
    database = open_database(database_url)
    migrate.downgrade(database, "0007")
    with database.reading() as connection:
        documents = connection.execute(text("SELECT document FROM plans ORDER BY eviction_id")).scalars().all()
    plans = [json.loads(document) for document in documents]
    assert "order" not in plans[0]
    assert [each["preemptor"]["job_id"] for each in plans] == ["900", "drain", "drain"]
    assert (plans[1]["drain"]["nodes"], plans[1]["drain"]["move"]) == (["n1", "n2"], None)
    assert (plans[2]["preemptor"]["name"], plans[2]["drain"]["move"]["gain_node_s"]) == ("compaction", 9.5)
    migrate.upgrade(database)
    database.engine.dispose()
    again = SqlStore(database_url)
    assert [again.eviction(each.eviction_id) for each in stored] == [replace(each, mark="") for each in stored]
    assert [again.plans(each.eviction_id) for each in stored] == [(each.plan,) for each in stored]
    again.close()
