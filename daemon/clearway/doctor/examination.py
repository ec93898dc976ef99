"""The one list of checks. `clearway serve` and `clearway check-config` make the first ones, `clearway doctor` all.

The checks of ``AT_START`` need nothing but files; what they refuse the daemon refuses. ``serve`` then asks Slurm, opens
the database and binds its port itself, by the functions that the other checks call as well.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from clearway.config.configuration import Config
from clearway.doctor import daemon_checks, node_checks, slurm_checks, start_checks
from clearway.doctor.case import Case, Finding, Result, State
from clearway.model.errors import ClearwayError

_Found = Result | Iterator[Result] | None


@dataclass(frozen=True, slots=True)
class StartCheck:
    """``check`` raises ``ClearwayError``; ``good`` and ``remedy`` are what is told otherwise and in that case."""

    name: str
    check: Callable[[Config], None]
    good: str
    remedy: str


@dataclass(frozen=True, slots=True)
class SiteCheck:
    area: str
    name: str
    check: Callable[[Case], _Found]


AT_START = (
    StartCheck("planner", start_checks.planner, "installed", "write one of those that it names"),
    StartCheck("backend", start_checks.backend, "installed", "install what it names, or write another backend"),
    StartCheck("slurm.conf", start_checks.slurm_conf, "readable", "write its path, and let the daemon's user read it"),
    StartCheck(
        "slurm token",
        start_checks.slurm_token,
        "closed to others, or not needed",
        "scontrol token username=clearway > FILE; chmod 0640, group of the daemon's user",
    ),
    StartCheck(
        "database",
        start_checks.store,
        "can be made or opened",
        "for SQLite: a folder of the daemon's own user (install -d -m 750 -o clearway FOLDER); run this as that user",
    ),
    StartCheck(
        "token file", start_checks.tokens, "closed to others, or none", "install -m 640 -g clearway /dev/null FILE"
    ),
    StartCheck("keys", start_checks.keys, "readable, or none", "write the path of a JWKS file with public keys"),
    StartCheck(
        "address", start_checks.listening, "can be listened on", "an address of this machine; PEM files that fit"
    ),
    StartCheck("notices", start_checks.notify, "can be sent, or none", "docs/howto/notifications.md"),
)

ON_SITE = (
    SiteCheck("Slurm", "answers", slurm_checks.answers),
    SiteCheck("Slurm", "release", slurm_checks.release),
    SiteCheck("Slurm", "rights", slurm_checks.rights),
    SiteCheck("Slurm", "draining", slurm_checks.draining),
    SiteCheck("Slurm", "clock", slurm_checks.clock),
    SiteCheck("Slurm", "slurmdbd", slurm_checks.slurmdbd),
    SiteCheck("Slurm", "nodes", slurm_checks.nodes),
    SiteCheck("Slurm", "names", slurm_checks.names),
    SiteCheck("Slurm", "KillWait", slurm_checks.kill_wait),
    SiteCheck("Slurm", "requeue", slurm_checks.requeue),
    SiteCheck("Slurm", "preemption", slurm_checks.own_preemption),
    SiteCheck("Slurm", "exempt time", slurm_checks.exempt_time),
    SiteCheck("Daemon", "database", daemon_checks.database),
    SiteCheck("Daemon", "its clock", daemon_checks.database_clock),
    SiteCheck("Daemon", "its disk", daemon_checks.database_disk),
    SiteCheck("Daemon", "port", daemon_checks.port),
    SiteCheck("Daemon", "tokens", daemon_checks.tokens),
    SiteCheck("Daemon", "calendar", daemon_checks.calendar),
    SiteCheck("Daemon", "stop switch", daemon_checks.switches),
    SiteCheck("Daemon", "wake file", daemon_checks.wake_file),
    SiteCheck("Daemon", "Prometheus", daemon_checks.prometheus),
    SiteCheck("Nodes", "launcher", node_checks.launcher),
    SiteCheck("Nodes", "checkpointers", node_checks.checkpointers),
    SiteCheck("Nodes", "clock", node_checks.node_clock),
    SiteCheck("Nodes", "disk", node_checks.disk),
)


def faults(config: Config) -> tuple[str, ...]:
    """What the daemon would refuse in its files: one line for each, with its key; empty where it can start."""
    return tuple(each.what for each in _of_files(config) if each.state is State.FAULT)


def examine(case: Case) -> Iterator[Finding]:
    """All checks in their order. What cannot be found out, because Slurm or a server does not answer, is untried."""
    found = list(_of_files(case.config))
    bad = [each for each in found if each.state is State.FAULT]
    yield from bad
    if not bad:
        yield Finding(
            area="Configuration", check="files", state=State.OK, what="nothing that clearway serve would refuse"
        )
    for check in ON_SITE:
        yield from _made(check, case)


def _of_files(config: Config) -> Iterator[Finding]:
    for each in AT_START:
        state, what, remedy = State.OK, each.good, ""
        try:
            each.check(config)
        except ClearwayError as error:
            state, what, remedy = State.FAULT, str(error), each.remedy
        yield Finding(area="Configuration", check=each.name, state=state, what=what, remedy=remedy)


def _made(check: SiteCheck, case: Case) -> Iterator[Finding]:
    try:
        found = check.check(case)
        results = [] if found is None else [found] if isinstance(found, Result) else list(found)
    except ClearwayError as error:
        results = [Result(State.UNTRIED, f"cannot be found out: {error}")]
    for each in results:
        yield Finding(area=check.area, check=check.name, state=each.state, what=each.what, remedy=each.remedy)
