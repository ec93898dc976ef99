"""What the checks are told and look at: the configuration, what was asked for, and Slurm's answers, each read once;
and what a check finds, in words: what is so, and what to do about it.

The database is opened and read, never made or migrated.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, make_url, text

from clearway.api.report_schemas import Health
from clearway.client import Client, SilentError
from clearway.config import plugins
from clearway.config.configuration import Config
from clearway.execution.restraints import BREAKER
from clearway.model.errors import ClearwayError, StoreError
from clearway.model.records import CLUSTER, PAUSED
from clearway.model.site import ClusterIdentity
from clearway.promise.calendar_controller import CALENDAR, CalendarMemory
from clearway.slurm.site_facts import Site, SiteFacts
from clearway.store import lease_rows, migrate, request_rows
from clearway.store.cluster import identity_of
from clearway.store.database import open_database


class State(StrEnum):
    OK = "ok"
    ADVICE = "advice"  # Clearway works; something is better known or changed
    FAULT = "fault"  # something that must hold does not
    UNTRIED = "untried"  # nobody has asked for it, or it cannot be found out


@dataclass(frozen=True, slots=True)
class Finding:
    """``what`` is one line. ``remedy`` is what to do, one line; empty where there is nothing to do."""

    area: str
    check: str
    state: State
    what: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """A finding without the name of its check."""

    state: State
    what: str
    remedy: str = ""


ok = partial(Result, State.OK)
advice = partial(Result, State.ADVICE)
fault = partial(Result, State.FAULT)
untried = partial(Result, State.UNTRIED)


def clocks(
    ahead: timedelta, limit_s: float, other: str, then: str, whose: str = "both clocks (chronyc tracking)"
) -> Result:
    """Whether this machine's clock and another one agree; ``then`` is what follows where they do not."""
    ahead_s = ahead.total_seconds()
    if abs(ahead_s) <= limit_s:
        return ok(f"this machine and {other} agree")
    return fault(f"this machine is {ahead_s:+.0f} s ahead of {other}: {then}", f"let chrony or ntpd set {whose}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts:
    """``revision`` None: it has no tables yet. ``clock`` None: it has none of its own, as SQLite."""

    kind: str  # with its version, where it is a server
    revision: str | None
    clock: datetime | None = None
    halted_by: str = ""  # as requests say; empty: nobody, or the tables are not this version's
    paused: bool = False
    stopped: str = ""  # why no job is made to leave any more; empty: jobs may be, or as above
    cluster: ClusterIdentity | None = None  # that it belongs to; None: to none yet, or as above
    calendar: CalendarMemory | None = None  # None: no calendar has been followed, or as above


def sqlite_file(config: Config) -> Path | None:
    """None for a database server."""
    url = make_url(config.store.url)
    return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None


def _database_facts(connection: Connection, dialect: str) -> DatabaseFacts:
    kind = "SQLite"
    if dialect != "sqlite":
        said = str(connection.execute(text("SELECT version()")).scalar()).split()
        kind = f"PostgreSQL {said[1]}" if dialect == "postgresql" and len(said) > 1 else f"MariaDB {said[0]}"
    revision = migrate.revision_of(connection)
    facts = DatabaseFacts(kind=kind, revision=revision, clock=lease_rows.server_time(connection))
    if revision != migrate.HEAD:
        return facts
    return replace(
        facts,
        halted_by=request_rows.halted_by(connection),
        paused=bool(request_rows.kept_value(connection, PAUSED)),
        stopped=(request_rows.kept_value(connection, BREAKER) or {}).get("stopped", ""),
        cluster=identity_of(request_rows.kept_value(connection, CLUSTER)),
        calendar=CalendarMemory.of(request_rows.kept_value(connection, CALENDAR)),
    )


T = TypeVar("T")


class Once(Generic[T]):
    """A property that is read at its first use. Where that failed, each use raises the same error and waits no more."""

    def __init__(self, read: Callable[[Any], T]) -> None:
        self._read = read
        self._key = f"_once_{read.__name__}"

    def __get__(self, case: object, _: object = None) -> T:
        kept = vars(case)
        if self._key not in kept:
            try:
                kept[self._key] = (self._read(case), None)
            except ClearwayError as error:
                kept[self._key] = (None, error)
        answer, failed = kept[self._key]
        if failed is not None:
            raise failed
        found: T = answer
        return found


WAIT_S = 30.0  # for a free node; the job itself takes seconds
NEEDS_NOTHING = "suspend"  # the checkpointer that needs nothing on the node

# Runs on the node; its first argument is the launcher, the others are checkpointers. It prints KEY=VALUE lines.
_SCRIPT = r"""
echo "node=$(hostname)"
echo "time=$(date +%s)"
run=$(command -v "$1" 2>/dev/null) || { echo launcher=absent; exit 0; }
run=$(readlink -f "$run")
here=$(dirname "$run")
echo "launcher=$run"
echo "sum=$(sha256sum <"$run" | cut -d ' ' -f 1)"
shift
for each; do
    driver=$here/checkpointers/$each.sh
    [ -r "$driver" ] || driver=$here/../clearway_checkpoint/$each.sh
    if [ ! -r "$driver" ]; then
        echo "checkpointer.$each=no there is no $driver"
        continue
    fi
    CLEARWAY_STATE=${TMPDIR:-/tmp} CLEARWAY_DIR=${TMPDIR:-/tmp} timeout 20 sh "$driver" probe </dev/null 2>/dev/null |
        sed -n 's/^ok=//p; s/^reason=/ /p' | tr -d '\n' | sed "s/^/checkpointer.$each=/"
    echo
done
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is tried only where somebody asks for it."""

    prometheus: str = ""  # its address
    checkpoints: Path | None = None  # the folder that jobs save into
    job: bool = False  # whether a job of a minute at most may be started
    partition: str = ""  # of that job; "": Slurm's default
    launcher: str = "clearway-run"  # how jobs call it
    launcher_sum: str = ""  # SHA-256 of this version's; "": not compared


class Case:
    """For one examination. ``user`` is the one that runs it, ``config`` what the daemon would go by."""

    def __init__(self, config: Config, asked: Asked, user: str) -> None:
        self.config = config
        self.asked = asked
        self.user = user
        conf = str(config.slurm.conf) if config.slurm.conf else None
        self.slurm = Site(conf, config.slurm.timeout)

    @Once
    def site(self) -> SiteFacts:
        """Raises ``SlurmError``."""
        asked_at = self.now()
        found = self.slurm.read()
        self.site_read_at = asked_at
        return found

    @Once
    def node(self) -> Mapping[str, str]:
        """What one compute node says, by a job that leaves nothing on the cluster. Raises ``SlurmError``."""
        drivers = [each for each in plugins.names(plugins.CHECKPOINTERS) if each != NEEDS_NOTHING]
        command = ["sh", "-c", _SCRIPT, "sh", self.asked.launcher, *drivers]
        said = self.slurm.on_a_node(command, user=self.user, partition=self.asked.partition, wait_s=WAIT_S)
        return dict(line.split("=", 1) for line in said.splitlines() if "=" in line)

    @Once
    def database(self) -> DatabaseFacts | None:
        """None: SQLite's file is not there yet. Raises ``StoreError``."""
        found = self._read_database()
        self.database_read_at = self.now()
        return found

    def _read_database(self) -> DatabaseFacts | None:
        file = sqlite_file(self.config)
        try:
            if file is not None:
                file.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"{file}: {error.strerror}") from error
        opened = open_database(self.config.store.url)
        try:
            with opened.reading() as connection:
                return _database_facts(connection, opened.engine.dialect.name)
        finally:
            opened.engine.dispose()

    @cached_property
    def answer(self) -> tuple[Health | None, bool]:
        """What a daemon says of itself where it should listen (None: none does); whether something there is silent."""
        api = self.config.api
        if api.port == 0 and api.socket is None:
            return None, False  # it may be anywhere
        try:
            with Client(api.url, authority=api.certificate) as client:
                return client.health(), False
        except ClearwayError as error:
            return None, isinstance(error, SilentError)

    @staticmethod
    def now() -> datetime:
        return datetime.now(UTC)
