"""What goes wrong between the store and its database: clear, typed, one line, and over when the cause is."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clearway.model.errors import ClearwayError, ConfigError, StoreError
from clearway.store.database import open_database
from clearway.store.repository import Store
from tests.builders import NOW, eviction
from tests.integration.store.servers import DatabaseServer

WRITER = """
import sys
from tests.builders import NOW, after, eviction, plan, urgent_job
from clearway.store.repository import Store
from dataclasses import replace
store = Store(sys.argv[1])
while True:
    saved = store.create_eviction(eviction(plan(urgent_job(nodes=5))))
    for count, preemption in enumerate(saved.preemptions, 1):
        step = store.begin_step(saved.eviction_id, preemption.job_id, "requeue", NOW)
        print(saved.eviction_id, step, flush=True)
        moved = tuple(replace(each, attempts=count) for each in saved.preemptions)
        store.save_eviction(replace(saved, preemptions=moved, outcome=str(count)))
"""


@pytest.mark.parametrize("lines", [1, 2, 7, 30])
def test_a_killed_writer_leaves_every_intent_that_it_stored(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "clearway.sqlite"
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, f"sqlite:///{path}"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
    )
    try:
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(lines)]
    finally:
        process.kill()
        process.wait()
    told += process.stdout.readlines()
    process.stdout.close()
    acknowledged = {tuple(map(int, line.split())) for line in told if line.endswith("\n")}
    assert len(acknowledged) >= lines

    store = Store(f"sqlite:///{path}")
    found = store.open_evictions()
    stored = {(step.eviction_id, step.step_id) for each in found for step in store.steps(each.eviction_id)}
    assert acknowledged <= stored
    assert len(stored - acknowledged) <= 1, "one step at most was stored and not told"
    for each in found:  # every save is there as a whole or not at all
        assert {preemption.attempts for preemption in each.preemptions} == {int(each.outcome or 0)}
    store.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


def test_sqlite_is_private_and_durable(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'clearway.sqlite'}")
    store.create_eviction(eviction())
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"clearway.sqlite": 0o600, "clearway.sqlite-wal": 0o600, "clearway.sqlite-shm": 0o600}

    def pragma(name: str) -> Any:
        with store._database.reading() as connection:
            return connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()

    assert pragma("journal_mode") == "wal"
    assert pragma("synchronous") == 2  # FULL
    assert pragma("foreign_keys") == 1
    assert pragma("busy_timeout") == 10_000
    store.close()


def test_a_database_in_memory_serves_threads_too() -> None:
    store = Store("sqlite://")
    saved = store.create_eviction(eviction())
    assert store.open_evictions() == (saved,)
    store.close()


@pytest.mark.parametrize("server_name", ["postgresql", "mariadb"])
def test_a_server_that_restarts(server_name: str, request: pytest.FixtureRequest) -> None:
    server: DatabaseServer = request.getfixturevalue(f"{server_name}_server")
    store = Store(server.new_database())
    saved = store.create_eviction(eviction())
    server.stop()
    try:
        with pytest.raises(StoreError) as caught:
            store.open_evictions()
        assert caught.value.retryable
        assert_presentable(caught.value)
    finally:
        server.start()
    assert store.open_evictions() == (saved,)
    server.restart()  # nothing was asked of the store meanwhile: its pool is full of dead connections
    store.begin_step(saved.eviction_id, None, "attach", NOW)
    store.close()


@pytest.mark.parametrize("server_name", ["postgresql", "mariadb"])
def test_a_server_that_goes_away_in_the_middle(server_name: str, request: pytest.FixtureRequest) -> None:
    server: DatabaseServer = request.getfixturevalue(f"{server_name}_server")
    store = Store(server.new_database())

    def interrupted() -> None:
        with store._database.writing() as connection:
            connection.exec_driver_sql("SELECT 1")
            server.restart()
            connection.exec_driver_sql("SELECT 1")

    with pytest.raises(StoreError) as caught:
        interrupted()
    assert_presentable(caught.value)
    assert store.open_evictions() == ()
    store.close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "malformed"),
        ("clearway.sqlite", "malformed"),
        ("postgresql://user:s3cret@host:port/name", "malformed"),
        ("oracle://user:s3cret@host/name", "'oracle', which is not supported"),
        ("postgresql://user:s3cret@host", "names no database"),
        ("mariadb://user:s3cret@host/", "names no database"),
    ],
)
def test_an_url_that_cannot_be_used(url: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Store(url)
    assert said in str(caught.value)
    assert_presentable(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:s3cret@127.0.0.1:1/name",
        "postgresql://user@127.0.0.1:1/name?password=s3cret",
        "mysql+pymysql://user:s3cret@127.0.0.1:1/name",
        "sqlite:////nowhere/at/all/clearway.sqlite",
        "sqlite:////proc",
    ],
)
def test_a_database_that_cannot_be_reached(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        Store(url)
    assert_presentable(caught.value)
    assert "database " in str(caught.value)


def test_options_that_the_driver_does_not_know(postgresql_server: DatabaseServer) -> None:
    with pytest.raises(ClearwayError) as caught:
        Store(postgresql_server.new_database() + "&colour=blue")
    assert_presentable(caught.value)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, " * 1000)
    with pytest.raises(StoreError, match="file is not a database"):
        Store(f"sqlite:///{path}")
    assert path.read_text().startswith("not a database"), "somebody's file was changed"


def test_the_url_in_logs_has_no_password() -> None:
    database = open_database("postgresql://user:s3cret@host/name?password=s3cret&sslmode=require")
    assert database.shown_url == "postgresql+psycopg://user:***@host/name"
    assert "s3cret" not in repr(database)


def assert_presentable(error: Exception) -> None:
    text = str(error)
    assert "\n" not in text
    assert len(text) < 500
    for secret in ("s3cret", "not-a-secret"):
        assert secret not in text
