"""The one list of checks. `clearway serve` and `clearway check-config` make the first ones, `clearway doctor` all.

The checks of ``AT_START`` need nothing but files: nothing is created, and neither Slurm nor a server is asked. What
they refuse the daemon refuses. ``serve`` then asks Slurm, opens the database and binds its port itself, by the
functions that the other checks call as well.
"""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import make_url

from clearway.api.logins import Tokens, verifier
from clearway.config import plugins
from clearway.config.configuration import Config
from clearway.config.trusted_files import read_trusted
from clearway.doctor import daemon_checks, slurm_checks
from clearway.doctor.case import Asked, Case, Finding, Result, State, sqlite_file
from clearway.eligibility.urgent import refusals
from clearway.model.errors import ClearwayError, ConfigError, SlurmError, StoreError
from clearway.notify.sending import open_senders
from clearway.service.listening import check_certificate
from clearway.store.cluster import stranger
from clearway.store.database import open_database


class StartCheck(NamedTuple):
    """``check`` raises ``ClearwayError`` where something is wrong."""

    name: str
    key: str  # that the line of an error begins with; "": ``check`` names it
    check: Callable[[Config], object]
    remedy: str


def _backend(config: Config) -> None:
    if config.slurm.backend != "auto":
        plugins.load(plugins.BACKENDS, config.slurm.backend)


def _slurm_conf(config: Config) -> None:
    path = config.slurm.conf
    try:
        if path is not None:
            path.open("rb").close()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None


def _slurm_token(config: Config) -> None:
    if config.slurm.rest_token_file is not None:
        read_trusted(config.slurm.rest_token_file, "Slurm's token", secret=True)


def _store(config: Config) -> None:
    """A SQLite file must be there, or its folder must let it be made: but not by a check."""
    url = config.store.url
    file = make_url(url).database if url.startswith("sqlite") else None
    if file is None or file == ":memory:":
        open_database(url).engine.dispose()
        return
    path, folder = Path(file), Path(file).parent
    try:
        usable = os.access(path, os.R_OK | os.W_OK) if path.exists() else bool(folder.stat())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    if not (usable and os.access(folder, os.W_OK | os.X_OK)):
        raise ConfigError(f"{path}: this user may not read and write it and its folder")


def _listening(config: Config) -> None:
    api = config.api
    if api.socket is not None:
        if not api.socket.parent.is_dir():
            raise ConfigError(f"api.socket: {api.socket.parent} is not a folder")
        return
    check_certificate(api)
    try:
        socket.getaddrinfo(api.host, api.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigError(f"api.host: {api.host}: {error.strerror or error}") from None


AT_START = (
    StartCheck(
        "planner",
        "planning.planner",
        lambda config: plugins.load(plugins.PLANNERS, config.planning.planner),
        "write one of those that it names",
    ),
    StartCheck("backend", "slurm.backend", _backend, "install what it names, or write another backend"),
    StartCheck("slurm.conf", "slurm.conf", _slurm_conf, "write its path, and let the daemon's user read it"),
    StartCheck(
        "slurm token",
        "slurm.rest_token_file",
        _slurm_token,
        "scontrol token username=clearway > FILE; chmod 0640, group of the daemon's user",
    ),
    StartCheck(
        "database",
        "store.url",
        _store,
        "for SQLite: a folder of the daemon's own user (install -d -m 750 -o clearway FOLDER); run this as that user",
    ),
    StartCheck(
        "token file",
        "api.token_file",
        lambda config: Tokens(config.api.token_file),
        "install -m 640 -g clearway /dev/null FILE",
    ),
    StartCheck(
        "keys",
        "access.jwks_file",
        lambda config: verifier(config.access),
        "write the path of a JWKS file with public keys",
    ),
    StartCheck("address", "", _listening, "an address of this machine; PEM files that fit"),
    StartCheck("notices", "notify", lambda config: open_senders(config.notify, None), "docs/howto/notifications.md"),
)

ON_SITE: dict[str, dict[str, Callable[[Case], Result | Iterator[Result] | None]]] = {
    "Slurm": {
        "answers": slurm_checks.answers,
        "release": slurm_checks.release,
        "rights": slurm_checks.rights,
        "draining": slurm_checks.draining,
        "clock": slurm_checks.clock,
        "slurmdbd": slurm_checks.slurmdbd,
        "nodes": slurm_checks.nodes,
        "names": slurm_checks.names,
        "rules": slurm_checks.rules,
        "KillWait": slurm_checks.kill_wait,
        "requeue": slurm_checks.requeue,
        "preemption": slurm_checks.own_preemption,
        "exempt time": slurm_checks.exempt_time,
    },
    "Daemon": {
        "database": daemon_checks.database,
        "its cluster": daemon_checks.cluster,
        "its clock": daemon_checks.database_clock,
        "its disk": daemon_checks.database_disk,
        "port": daemon_checks.port,
        "tokens": daemon_checks.tokens,
        "calendar": daemon_checks.calendar,
        "stop switch": daemon_checks.switches,
        "wake file": daemon_checks.wake_file,
        "Prometheus": daemon_checks.prometheus,
    },
    "Nodes": {
        "launcher": slurm_checks.launcher,
        "checkpointers": slurm_checks.checkpointers,
        "clock": slurm_checks.node_clock,
        "disk": slurm_checks.checkpoint_disk,
    },
}


def faults(config: Config) -> tuple[str, ...]:
    """What the daemon would refuse in its files: one line for each, with its key; empty where it can start."""
    return tuple(each.what for each in _of_files(config))


def refused_on_site(config: Config) -> Iterator[str]:
    """What Slurm knows to be wrong: rules that rest on what it does not check, the database of another cluster.

    Nothing where it does not answer: configurations are made on machines without Slurm as well.
    """
    case = Case(config, Asked(), "")
    try:
        cluster, vouched = case.slurm.identity_and_vouched()
    except SlurmError:
        return
    yield from (f"preemptors: {why}" for why in refusals(config.preemptors, vouched).values())
    if sqlite_file(config) is not None:
        with suppress(StoreError):
            if case.database is not None and (why := stranger(case.database.cluster, cluster)):
                yield f"store.url: {why}"


def examine(case: Case) -> Iterator[Finding]:
    """All checks in their order. What cannot be found out, because Slurm or a server does not answer, is untried."""
    bad = list(_of_files(case.config))
    yield from bad or [Finding("Configuration", "files", State.OK, "nothing that clearway serve would refuse")]
    for area, checks in ON_SITE.items():
        for name, check in checks.items():
            try:
                found = check(case)
                results = [] if found is None else [found] if isinstance(found, Result) else list(found)
            except ClearwayError as error:
                results = [Result(State.UNTRIED, f"cannot be found out: {error}")]
            yield from (Finding(area, name, each.state, each.what, each.remedy) for each in results)


def _of_files(config: Config) -> Iterator[Finding]:
    for name, key, check, remedy in AT_START:
        try:
            check(config)
        except ClearwayError as error:
            why = f"{key}: {str(error).removeprefix(f'{key} ')}" if key else str(error)
            yield Finding("Configuration", name, State.FAULT, why, remedy)
