"""The three databases, and the launcher's bench.

SQLite is always there; a server that is not installed is skipped with the reason.

When CLEARWAY_REQUIRE_TIERS names ``integration``, a missing server fails the run: what is promised is not skipped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clearway.store.repository import Store
from tests.integration.bench import SHELLS, Bench
from tests.integration.store.servers import DatabaseServer, MariadbServer, PostgresServer

DATABASES = ("sqlite", "postgresql", "mariadb")


def _serve(server: type[DatabaseServer]) -> Iterator[DatabaseServer]:
    reason = server.missing()
    if reason is not None:
        if "integration" in os.environ.get("CLEARWAY_REQUIRE_TIERS", "").replace(",", " ").split():
            pytest.fail(f"tier integration is required, but {server.name} cannot run here: {reason}", pytrace=False)
        pytest.skip(f"no {server.name} here: {reason}")
    with server() as running:
        yield running


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[DatabaseServer]:
    yield from _serve(PostgresServer)


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[DatabaseServer]:
    yield from _serve(MariadbServer)


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, on each of the three in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'clearway.sqlite'}"
    server: DatabaseServer = request.getfixturevalue(f"{request.param}_server")
    return server.new_database()


@pytest.fixture
def open_store(database_url: str) -> Iterator[Callable[[], Store]]:
    """Opens stores on the same database, as several processes would, and closes them."""
    opened: list[Store] = []

    def open_one() -> Store:
        opened.append(Store(database_url))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


@pytest.fixture
def store(open_store: Callable[[], Store]) -> Store:
    return open_store()


@pytest.fixture(params=SHELLS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    (tmp_path / "comment").write_text("my own words clearway:max_delay=5m\n")
    (tmp_path / "squeue").write_text(
        '#!/bin/sh\n[ -z "${SQUEUE_STATES:-}${SQUEUE_USERS:-}${SLURM_CLUSTERS:-}" ] || exit 0\n'
        'case "$*" in *%T*) cat "$FOLDER/job-state" 2>/dev/null || echo RUNNING ;;\n'
        '*RestartCnt*) echo "${SLURM_RESTART_COUNT:-0}" ;;\n*) cat "$FOLDER/comment" ;; esac\n'
    )
    (tmp_path / "scontrol").write_text(
        '#!/bin/sh\nfor a; do case $a in Comment=*) printf "%s\\n" "${a#Comment=}" > "$FOLDER/comment.new"\n'
        'mv "$FOLDER/comment.new" "$FOLDER/comment";; esac; done\n'
    )
    # Named slurmstepd, for the launcher to find as its parent. It takes nothing away from what it starts.
    as_slurm = "env --default-signal=INT --default-signal=QUIT"
    tells = 'echo $! > "$FOLDER/pid"\nwait $!\nexit $?\n'
    (tmp_path / "slurmstepd").write_text(f'#!/bin/bash\n{as_slurm} "$@" <&0 &\n{tells}')
    for name in ("squeue", "scontrol", "slurmstepd"):
        (tmp_path / name).chmod(0o755)
    made = Bench(tmp_path, request.param)
    yield made
    made.end()
