"""The daemon's own ground: its database, its port, its tokens, Prometheus, and the stop switch."""

import json
import os
import shutil
import socket
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx

from clearway.api.logins import Tokens
from clearway.config.configuration import Config, Mode
from clearway.doctor.case import Case, Result, advice, clocks, fault, ok, sqlite_file, untried
from clearway.execution.restraints import halted_by_file, told
from clearway.model.durations import format_duration
from clearway.model.errors import ConfigError, SchemaError, StoreError
from clearway.promise.calendar import CalendarContents
from clearway.promise.calendar_controller import CalendarFile, read_file
from clearway.service.leadership import APART_S
from clearway.service.listening import listen
from clearway.store import migrate
from clearway.store.cluster import stranger

LEAST_FREE_MIB = 1_024  # below it a database of a year's evictions may not fit
_SOON = timedelta(days=7)
_LIMIT_S = 10.0


def database(case: Case) -> Result | None:
    """None where the check of the files has found its folder closed."""
    file = sqlite_file(case.config)
    if file is not None and not os.access(file.parent, os.W_OK | os.X_OK):
        return None
    try:
        facts = case.database
        if facts is not None and facts.revision is not None:
            migrate.check_known(facts.revision, facts.kind)
    except SchemaError as error:
        return fault(error.what, error.remedy)
    except StoreError as error:
        remedy = "clearway verify says what is damaged, clearway restore puts a backup in its place"
        if file is None:
            remedy = "start the server and look into its log, or write in store.url where it is and whom it lets in"
        return fault(str(error), remedy)
    if facts is None:
        return ok(f"SQLite in {file}, which the daemon makes at its first start")
    if facts.revision is None:
        return ok(f"{facts.kind}, empty; the daemon makes its tables at its first start")
    if facts.revision != migrate.HEAD:
        return advice(
            f"{facts.kind}, schema {facts.revision}; the daemon's next start migrates it to {migrate.HEAD}",
            "clearway backup FILE first",
        )
    return ok(f"{facts.kind}, schema {facts.revision}")


def cluster(case: Case) -> Result | None:
    """Whether the database is this cluster's. None where it belongs to none yet."""
    owner = case.database.cluster if case.database else None
    if owner is None:
        return None
    why, _, remedy = stranger(owner, case.site.cluster).rpartition(": ")
    return fault(why, remedy) if why else ok(f"it belongs to {owner}")


def database_clock(case: Case) -> Result | None:
    """None for SQLite, which has no clock of its own."""
    facts = case.database
    if facts is None or facts.clock is None:
        return None
    then = f"Clearway does nothing while they are {APART_S:.0f} s apart"
    return clocks(case.database_read_at - facts.clock, APART_S, "the database", then)


def database_disk(case: Case) -> Result | None:
    file = sqlite_file(case.config)
    if file is None or not os.access(file.parent, os.X_OK):
        return None
    free_mib = shutil.disk_usage(file.parent).free / 2**20
    if free_mib < LEAST_FREE_MIB:
        remedy = f"make room: at least {LEAST_FREE_MIB:,} MiB"
        return fault(f"{free_mib:,.0f} MiB are free in {file.parent}: what cannot be stored is not done", remedy)
    return ok(f"{free_mib / 1_024:,.0f} GiB are free in {file.parent}")


def port(case: Case) -> Result:
    """Free, or this daemon's own."""
    api = case.config.api
    health, silent = case.answer
    if health is not None:
        return ok(f"{api.url} answers: Clearway {health.version} in {health.mode.value} mode")
    try:
        listen(api).close()
    except ConfigError as error:
        if silent:
            return fault(
                f"{api.url} takes connections and gives no answer: the daemon hangs, or was stopped",
                "systemctl status clearway, and journalctl -u clearway -n 50; systemctl restart clearway takes up "
                "what it was doing",
            )
        remedy = "ss -ltnp shows what does; choose another api.port, or end that"
        return fault(f"{error}, and it is no Clearway that answers there", remedy)
    return ok(f"{api.url} is free; no daemon runs here yet")


def switches(case: Case) -> Iterator[Result]:
    """What keeps it from acting, as the daemon says; where none answers, as its database does."""
    file, (health, _) = case.config.daemon.halt_file, case.answer
    if why := halted_by_file(file):
        yield fault(f"the stop switch is on: {why}; no command is given to Slurm", f"rm {file}, as the daemon's user")
        return
    if health is not None:
        halted, stopped, paused = health.halted, health.stopped, health.paused
    else:
        kept = case.database
        halted, stopped, paused = (told(kept.halted_by), kept.stopped, kept.paused) if kept else ("", "", False)
    if halted:
        yield fault(f"the stop switch is on: {halted}; no command is given to Slurm", "clearway unhalt")
    elif stopped:
        yield fault(f"no job is made to leave: {stopped}", "look at these nodes, then: clearway resume")
    elif health is not None and health.status == "stale":
        what = f"no cycle has succeeded for {health.last_cycle_age_s:.0f} s"
        yield fault(what, "journalctl -u clearway -n 50 says why")
    elif paused:
        yield advice("it is paused: nothing new is begun", "clearway resume")
    elif health is not None and health.mode != case.config.daemon.mode:
        yield advice(
            f"the daemon runs in {health.mode.value} mode, the file says {case.config.daemon.mode.value}",
            "systemctl reload clearway",
        )
    else:
        yield ok("nothing is halted or paused")


def wake_file(case: Case) -> Result | None:
    """None where there is none."""
    file = case.config.daemon.wake_file
    if file is None:
        return None
    folder, better = file.parent, "have it in a folder that SlurmUser alone may write to, such as /run/slurmctld"
    late = "an urgent job is seen only after the pause of daemon.poll_interval"
    try:
        mode = stat.S_IMODE(folder.stat().st_mode)
        written = file.lstat() if file.exists() or file.is_symlink() else None
    except OSError as error:
        return fault(f"{folder}: {error.strerror}; {late}", better)
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        return fault(f"{folder}: mode {mode:04o} lets others put a pipe there, for which slurmctld would wait", better)
    if written is None:
        return ok(f"{file} is not there yet: no urgent job has been submitted, or job_submit.lua does not name it")
    if not stat.S_ISREG(written.st_mode):
        return fault(f"{file} is no ordinary file: slurmctld could wait for it", f"remove it; {better}")
    return ok(f"{file} was written last at {datetime.fromtimestamp(written.st_mtime, UTC):%Y-%m-%d %H:%M:%S} UTC")


def tokens(case: Case) -> Result:
    try:
        held = Tokens(case.config.api.token_file)
    except ConfigError as error:
        return untried(str(error))  # the file's own check has told
    if not held.configured:
        return ok("no token file: Slurm's own identities count (access.slurm_tokens)")
    now = case.now()
    live = [each for each in held.entries if not each.ended(now)]
    if not live:
        ended = "all tokens have ended" if held.entries else "there is no token"
        remedy = "clearway token NAME --role operator"
        return fault(f"{case.config.api.token_file}: {ended}: no one can log in with one", remedy)
    soon = [each.identity.name for each in live if each.ended(now + _SOON)]
    if soon:
        remedy = "clearway token NAME --role ROLE for new ones"
        return advice(f"the tokens of {', '.join(sorted(soon)[:5])} end within a week", remedy)
    return ok(f"{len(live)} that can log in")


def prometheus(case: Case) -> Result:
    """Whether a Prometheus has scraped the daemon, by the name that the alerts ask for."""
    address = case.asked.prometheus
    if not address:
        return untried("not asked for", "--prometheus http://HOST:9090")
    try:
        answer = httpx.get(
            f"{address.rstrip('/')}/api/v1/query", params={"query": 'up{job="clearway"}'}, timeout=_LIMIT_S
        )
        found = [each["value"][1] for each in answer.raise_for_status().json()["data"]["result"]]
    except (httpx.HTTPError, httpx.InvalidURL, json.JSONDecodeError, KeyError, IndexError, TypeError) as error:
        return fault(f"{address} does not answer as Prometheus does: {error}", "give --prometheus its address")
    if not found:
        remedy = "take the scrape job of /usr/share/clearway/prometheus/prometheus.yml (clearway files FOLDER)"
        return fault(f'{address} has no target with job="clearway"', remedy)
    if "1" not in found:
        remedy = f"the target must be this daemon's address ({case.config.api.url}), which Prometheus must reach"
        return fault(f"{address} knows the daemon, but its last scrape failed", remedy)
    return ok(f"{address} scrapes {len(found)} daemon{'s' * (len(found) != 1)}")


_MOST = 5  # findings of one sort
_FORM = "docs/howto/promises.md says how an event asks for nodes"


def complaints(config: Config, now: datetime) -> tuple[str, ...]:
    """What files alone tell: why the calendar cannot be followed, one line each."""
    file = config.promises.calendar
    if file is None:
        return ()
    try:
        return read_file(file, config.promises, now).contents.complaints
    except ConfigError as error:
        return (str(error),)


def calendar(case: Case) -> Iterator[Result]:
    """Nothing where there is none."""
    promises, now = case.config.promises, case.now()
    if promises.calendar is None:
        return
    try:
        read = read_file(promises.calendar, promises, now)
    except ConfigError as error:
        yield fault(str(error), "put it right: until then no promise is made, changed or withdrawn by it")
        return
    yield from _events(case, promises.calendar, read.contents)
    yield from _host(case, promises.calendar, read)


def _events(case: Case, file: Path, found: CalendarContents) -> Iterator[Result]:
    for each in found.complaints[:_MOST]:
        yield fault(f"{file}: {each}", _FORM)
    if len(found.complaints) > _MOST:
        yield fault(f"{file}: {len(found.complaints) - _MOST} more events are not understood", _FORM)
    if case.config.daemon.mode is Mode.OBSERVE:
        yield advice("in observe mode nothing is promised by the calendar", 'mode = "approve" or "automatic"')
    elif not found.complaints:
        ahead = format_duration(case.config.promises.calendar_ahead)
        yield ok(f"promises within {ahead}: {len(found.wanted)}")
    sizes = {each.name: each.nodes for each in case.site.partitions}
    for key, wish in sorted(found.wanted.items()):
        name = wish.partition or (next(iter(sizes)) if len(sizes) == 1 else "")
        if wish.nodes > sizes.get(name, 0):
            there = f"has {sizes[name]} nodes" if name in sizes else "is not there" if name else "is not named"
            yield fault(f"event {key} asks for {wish.nodes} nodes: partition {name} {there}".replace("  ", " "), _FORM)


def _host(case: Case, file: Path, read: CalendarFile) -> Iterator[Result]:
    """Whether the daemon, here or on another host, has followed another file."""
    followed = case.database.calendar if case.database else None
    if followed is None or followed.digest in ("", read.digest):
        return
    same = "have the same file on every host where the daemon may run"
    if older := followed.why_older(read):
        yield fault(f"{file} {older}", f"{same}; where it is meant: touch {file}")
    elif followed.host != socket.gethostname():
        yield advice(f"{file} is not the file that is followed on {followed.host}", same)
