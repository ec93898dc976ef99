"""A database that takes every packet and answers none, or takes no write: the daemon goes on, and says what it is."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from clearway.config.configuration import parse_config
from clearway.model.errors import StoreError
from clearway.service import server
from clearway.store import database
from clearway.store.repository import Store
from tests.integration.daemon import PATIENT_S, Simulated, get, wait_for, write_config
from tests.integration.store.deaf import DeafProxy
from tests.integration.store.servers import DatabaseServer

ANSWERS_WITHIN_S = 1


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "ANSWER_TIMEOUT_S", ANSWERS_WITHIN_S)
    monkeypatch.setitem(database._CONNECT_ARGS["mariadb"], "read_timeout", ANSWERS_WITHIN_S)


@pytest.fixture(params=["postgresql", "mariadb"])
def proxied(request: pytest.FixtureRequest) -> Iterator[tuple[DeafProxy, str]]:
    """The proxy, and the database's URL without it."""
    running: DatabaseServer = request.getfixturevalue(f"{request.param}_server")
    with DeafProxy(running) as proxy:
        yield proxy, running.new_database()


def ended(act: Callable[[], Any], limit_s: float = PATIENT_S) -> BaseException | None:
    """What it raised; fails where it does not end at all."""
    raised: list[BaseException | None] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            raised.append(error)
        else:
            raised.append(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    assert raised, f"no end within {limit_s:g} s"
    return raised[0]


@pytest.mark.usefixtures("impatient")
def test_a_query_has_an_end_that_the_client_keeps(proxied: tuple[DeafProxy, str]) -> None:
    proxy, direct = proxied
    store = Store(proxy.url(direct))
    assert store.open_evictions() == ()
    proxy.go_deaf()
    for _ in range(2):  # on a connection that was good, and on one that is yet to be made
        error = ended(store.open_evictions)
        assert isinstance(error, StoreError)
        assert error.retryable
    proxy.hear_again()
    assert wait_for(lambda: ended(store.open_evictions) is None)
    store.close()


@pytest.mark.usefixtures("impatient")
def test_deaf_in_the_middle_of_a_transaction(proxied: tuple[DeafProxy, str]) -> None:
    proxy, direct = proxied
    store = Store(proxy.url(direct))

    def interrupted() -> None:
        with store._database.writing() as connection:
            connection.exec_driver_sql("SELECT 1")
            proxy.go_deaf()
            connection.exec_driver_sql("SELECT 1")

    assert isinstance(ended(interrupted), StoreError)
    proxy.hear_again()
    assert wait_for(lambda: ended(store.open_evictions) is None)
    store.close()


def test_a_long_query_that_the_server_carries_on_is_not_cut_before_its_time(
    postgresql_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends what takes too long, and the connection stays good."""
    monkeypatch.setattr(database, "ANSWER_TIMEOUT_S", 1)
    store = Store(postgresql_server.new_database())
    with store._database.reading() as connection:
        connection.exec_driver_sql("SELECT pg_sleep(0.5)")
        backend = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    with pytest.raises(StoreError, match="statement timeout"), store._database.reading() as connection:
        connection.exec_driver_sql("SELECT pg_sleep(60)")
    with store._database.reading() as connection:
        assert connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one() == backend
    store.close()


@contextmanager
def a_daemon(folder: Path, url: str) -> Iterator[str]:
    folder.mkdir()
    path = write_config(folder)
    text = path.read_text().replace(f"sqlite:///{folder}/clearway.sqlite", url)
    path.write_text(text.replace("[daemon]\n", "[daemon]\nlease = 3\n"))
    with server.background(Simulated(parse_config(path.read_text(), str(path)), path).service()) as service:
        wait_for(lambda: get(f"{service.address}/readiness").status_code == 200)
        yield service.address


def metric(address: str, name: str) -> float:
    text = get(f"{address}/metrics").text
    return float(next(line for line in text.splitlines() if line.startswith(f"{name} ")).split()[1])


@pytest.mark.fault(
    "Behind a proxy that had gone deaf the loop waited for the database for ever, and still claimed to lead.",
    found_by="trial",
)
@pytest.mark.usefixtures("impatient")
def test_a_leader_behind_a_deaf_proxy_does_not_claim_to_lead(tmp_path: Path, postgresql_server: DatabaseServer) -> None:
    direct = postgresql_server.new_database()
    with (
        DeafProxy(postgresql_server) as proxy,
        a_daemon(tmp_path / "one", proxy.url(direct)) as one,
        a_daemon(tmp_path / "two", direct) as two,
    ):
        assert [metric(each, "clearway_standby") for each in (one, two)] == [0, 1]
        failures = metric(one, 'clearway_cycle_failures_total{kind="store"}')
        proxy.go_deaf()
        wait_for(lambda: get(f"{two}/leader").status_code == 200, 30)
        assert metric(one, "clearway_standby") == 1
        wait_for(lambda: metric(two, "clearway_standby") == 0, 30)  # counted at the end of its cycle
        assert metric(one, "clearway_lease_epoch") == 0
        asked = time.monotonic()
        assert get(f"{one}/readiness").status_code == 503
        assert time.monotonic() - asked < PATIENT_S / 4, "it takes no thread that waits for the database"
        assert get(f"{one}/leader").status_code == 503
        assert get(f"{one}/api/v1/status").status_code == 503, "it has that from the database"
        assert get(f"{two}/api/v1/status").json()["running"] is True
        now = get(f"{one}/api/v1/now").json()
        assert now["leads"] is False
        assert now["health"]["standby"] is True
        assert now["cluster"]["standby"] is True
        assert get(f"{one}/api/v1/cluster").json()["standby"] is True
        # The loop does not hang: its cycles fail, one after another.
        wait_for(lambda: metric(one, 'clearway_cycle_failures_total{kind="store"}') > failures + 1, 30)
        proxy.hear_again()
        wait_for(lambda: get(f"{one}/readiness").status_code == 200, 30)
        assert [metric(each, "clearway_standby") for each in (one, two)] == [1, 0]


def ready(address: str) -> int:
    """Asked again when the last answer counts no longer."""
    time.sleep(1.1)
    return httpx.get(f"{address}/readiness", timeout=PATIENT_S).status_code


@pytest.mark.fault("A daemon whose database was locked or full said that it was ready.", found_by="trial")
def test_not_ready_while_another_process_locks_the_database(tmp_path: Path) -> None:
    folder = tmp_path / "daemon"
    with a_daemon(folder, f"sqlite:///{folder}/clearway.sqlite") as address:
        other = sqlite3.connect(folder / "clearway.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        try:
            assert ready(address) == 503
            assert get(f"{address}/health").status_code == 200
        finally:
            other.execute("ROLLBACK")
            other.close()
        wait_for(lambda: ready(address) == 200)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system, which only root may")
def test_not_ready_while_the_disk_is_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], check=True)
    try:
        folder = disk / "daemon"
        with a_daemon(folder, f"sqlite:///{folder}/clearway.sqlite") as address:
            filler = disk / "filler"

            def fills_up() -> bool:
                with filler.open("ab", buffering=0) as file:
                    try:
                        while file.write(b"x" * 4_096) == 4_096:
                            pass
                    except OSError:
                        pass
                return ready(address) == 503

            # What its log has of room already is written again; the daemon's own cycles use that up.
            wait_for(fills_up, 60)
            filler.unlink()
            wait_for(lambda: ready(address) == 200)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_not_ready_while_the_database_is_read_only(tmp_path: Path, postgresql_server: DatabaseServer) -> None:
    direct = postgresql_server.new_database()
    name = direct.partition("?")[0].rpartition("/")[2]
    with a_daemon(tmp_path / "daemon", direct) as address:
        for setting, status in (("on", 503), ("off", 200)):
            told = f"ALTER DATABASE {name} SET default_transaction_read_only = {setting}"
            ends = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
            for statement in (told, ends):
                command = ["psql", "-X", "-h", str(postgresql_server.folder), "-U", "clearway", "-d", "postgres"]
                postgresql_server.check([*command, "-c", statement])
            wait_for(lambda expected=status: ready(address) == expected)
