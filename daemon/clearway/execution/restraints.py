"""What keeps the daemon from acting: on everything, on a user's urgent jobs, on one run of a job, or on a bad record.

``Gate`` is the stop switch, asked before each command: a request in the database, or a file, which needs neither the
database nor the API. One that cannot be looked at counts as there. ``Breaker`` stops all that makes jobs leave once two
nodes were lost within a day after jobs had left them: an epilog that fails drains each node that a job leaves, and the
next plan frees the next node, through the whole cluster. ``UserPauses`` hold for all urgent jobs of a user for a while:
left alone (another job of the user was in a placement), or plans wait for approval (an urgent job was cancelled once
others had left for it, or jobs leave again and again). ``Suppression`` leaves one run of a job to Slurm for good.
``Quarantine`` ends what raised while one job, operation or part of a cycle was handled, not the cycle; errors that
concern everything go through. Nothing of it is stored.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from clearway.config.access import BudgetConfig
from clearway.execution.cycle_context import CycleContext
from clearway.execution.lifecycle import drain_number
from clearway.model.audit import Audited, AuditKind
from clearway.model.clock import Clock
from clearway.model.cluster import ClusterSnapshot, Job, JobState, Node
from clearway.model.errors import ClearwayError
from clearway.model.events import Emit, HandlingFailed
from clearway.model.operations import Drain, Eviction, Operation
from clearway.model.outcome import OutcomeCode
from clearway.model.report import Quarantined, Subject, T, described
from clearway.store.repository import Store

# The names of stored values; "left_alone" as earlier versions wrote it.
BREAKER, SUPPRESSED, USER_PAUSES, _LOOKED_AT = "breaker", "left_alone", "user_pauses", "loops_looked_at"
EVERYBODY = "*"  # no user's name in Slurm
TRIPS_AT = 2  # lost nodes
WITHIN = timedelta(days=1)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 300.0  # of what is in quarantine
_FORGOTTEN_AFTER = timedelta(minutes=10)  # without another try: the job or the operation is gone


@dataclass(frozen=True, slots=True)
class Gate:
    store: Store
    file: Path | None = None  # halts the daemon while it exists
    others: tuple[Callable[[], str], ...] = ()  # why nothing may be done for other reasons

    def closed(self) -> str:
        """Why no command may be given now, half a sentence; empty where one may. ``StoreError``: none may."""
        return self.closed_here() or told(self.store.halted_by())

    def closed_here(self) -> str:
        return next((why for other in self.others if (why := other())), "") or halted_by_file(self.file)


def halted_by_file(file: Path | None) -> str:
    """Half a sentence where the file is there, or where that cannot be known; empty otherwise."""
    if file is None:
        return ""
    try:
        file.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return f"halted: {file} cannot be looked at ({error.strerror})"
    return f"halted by the file {file}"


def told(actor: object) -> str:
    """The sentence for a halt that was asked for; ``actor`` is empty where there is none."""
    return f"halted by {actor} (clearway unhalt)" if actor else ""


# Once the urgent job has started, only a prolog or an epilog that is still to come is about the job that left.
_AFTER_THE_START = timedelta(minutes=5)
_WORD = re.compile(r"[A-Z]+(?:_[A-Z]+)*")
_OUT_OF_ORDER = frozenset({"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "ERROR"})
_MOST_TOLD = 3  # nodes in a sentence


@dataclass(frozen=True, slots=True)
class LostNode:
    """A node that takes no jobs any more since one has left it for an operation."""

    node: str
    job_id: str  # that left it
    left_at: str  # when that was decided, ISO 8601
    eviction_id: int
    seen_at: datetime
    state: str  # and reason, as Slurm says them
    looked_at: bool = False  # by an operator


def lost_nodes(operations: Iterable[Operation], snapshot: ClusterSnapshot, now: datetime) -> Iterator[LostNode]:
    """Of operations under way; a drain takes its nodes out of service itself. Pure."""
    for e in operations:
        if not e.state.acting or isinstance(e, Drain):
            continue
        wanted = set(e.plan.placement_nodes)
        for p in e.preemptions:
            if p.requeued_at is None or not (e.state.before_start or now - p.requeued_at <= _AFTER_THE_START):
                continue
            for name in sorted(wanted.intersection(p.job.nodes)):
                node = snapshot.node_by_name.get(name)
                if node is not None and _is_lost(node):
                    why = f"{node.raw_state}, {node.reason}" if node.reason else node.raw_state
                    yield LostNode(name, p.job_id, p.requeued_at.isoformat(), e.eviction_id, now, why[:120])


def _is_lost(node: Node) -> bool:
    """Not one that only has not answered yet, is switched off, or was drained by Clearway."""
    words = set(_WORD.findall(node.raw_state))
    return not node.available and not words.isdisjoint(_OUT_OF_ORDER) and drain_number(node.reason) is None


class Breaker:
    """Every change is stored at once."""

    def __init__(self, store: Store, tell: Callable[[str, datetime], None]) -> None:
        self._store = store
        self._tell = tell  # before it is stored: a crash in between loses nothing
        self._lost: tuple[LostNode, ...] = ()
        self.stopped = ""  # why nothing is begun, half a sentence; empty: it may be

    def refresh(self, stored: Mapping[str, Any] | None) -> None:
        self.stopped, lost = (stored["stopped"], stored["lost"]) if stored else ("", ())
        self._lost = tuple(LostNode(**each | {"seen_at": datetime.fromisoformat(each["seen_at"])}) for each in lost)

    def look(self, operations: Iterable[Operation], snapshot: ClusterSnapshot, now: datetime) -> None:
        known = {(each.node, each.job_id, each.left_at) for each in self._lost}
        found = lost_nodes(operations, snapshot, now)
        new = [each for each in found if (each.node, each.job_id, each.left_at) not in known]
        if not new:
            return
        for each in new:
            text = f"Node {each.node} was lost after job {each.job_id} had left it ({each.state})."
            self._store.add_event(each.eviction_id, None, now, text)
        kept = (*(each for each in self._lost if now - each.seen_at < WITHIN), *new)
        counted = {each.node: each for each in kept if not each.looked_at}
        stopped = self.stopped
        if not stopped and len(counted) >= TRIPS_AT:
            shown = "; ".join(f"{each.node}: {each.state}" for each in list(counted.values())[:_MOST_TOLD])
            more = f"; and {len(counted) - _MOST_TOLD} more" if len(counted) > _MOST_TOLD else ""
            stopped = f"{len(counted)} nodes were lost after jobs had left them ({shown}{more})"
            self._tell(stopped, now)
            about = {"why": stopped, "nodes": sorted(counted)[:100]}
            self._store.audit(Audited(at=now, actor="clearway", kind=AuditKind.STOPPED, about=about))
        self._keep(stopped, kept)

    def lost_by(self, e: Operation) -> bool:
        return any(each.eviction_id == e.eviction_id and not each.looked_at for each in self._lost)

    def end(self) -> None:
        """An operator has looked: only what is lost from now on counts."""
        if self.stopped or self._lost:
            self._keep("", tuple(replace(each, looked_at=True) for each in self._lost))

    def _keep(self, stopped: str, lost: tuple[LostNode, ...]) -> None:
        listed = [asdict(each) | {"seen_at": each.seen_at.isoformat()} for each in lost]
        self._store.set_value(BREAKER, {"stopped": stopped, "lost": listed})
        self.stopped, self._lost = stopped, lost


class Quarantine:
    def __init__(self, clock: Clock, emit: Emit) -> None:
        self._clock = clock
        self._emit = emit
        self._known: dict[tuple[Subject, str], Quarantined] = {}

    def all(self) -> tuple[Quarantined, ...]:
        oldest = self._clock.now() - _FORGOTTEN_AFTER
        self._known = {key: each for key, each in self._known.items() if each.until > oldest}
        return tuple(self._known.values())

    def why(self, subject: Subject, ident: str) -> str:
        known = self._known.get((subject, ident))
        return "" if known is None else f"Clearway failed at it and tries again later ({known.why})"

    def attempt(self, subject: Subject, ident: str, act: Callable[[], T]) -> T | None:
        """None where it raised, now or a short while ago. Raises ``ClearwayError`` where another try can help."""
        key, now = (subject, ident), self._clock.now()
        known = self._known.get(key)
        if known is not None and now < known.until:
            return None
        try:
            result = act()
        except Exception as error:
            if isinstance(error, ClearwayError) and error.retryable:
                raise
            self.failed(subject, ident, error, now)
            return None
        self._known.pop(key, None)
        return result

    def attempt_job(self, ident: str, act: Callable[[], T]) -> T | None:
        return self.attempt(Subject.JOB, ident, act)

    def attempt_part(self, name: str, act: Callable[..., T], *arguments: object) -> T | None:
        return self.attempt(Subject.PART, name, partial(act, *arguments))

    def failed(self, subject: Subject, ident: str, error: Exception, now: datetime) -> None:
        """Pass it over for a while, which doubles with each failure in a row."""
        before = self._known.get((subject, ident))
        times = 1 if before is None else before.times + 1
        pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(times - 1, 20))
        found = Quarantined(subject, ident, described(error), times, now + timedelta(seconds=pause_s))
        if subject is not Subject.REQUEST:
            self._known[subject, ident] = found
        self._emit(HandlingFailed(found, error))


@dataclass(frozen=True, slots=True)
class UserPause:
    until: datetime
    why: str
    left_alone: bool  # nothing is planned; else plans wait for approval

    def stored(self) -> dict[str, Any]:
        return asdict(self) | {"until": self.until.isoformat()}


class UserPauses:
    """By user; every change is stored at once."""

    def __init__(self, store: Store, tell: Callable[[str, UserPause, datetime], None]) -> None:
        self._store = store
        self._tell = tell  # of a loop, before its pause is stored: a crash in between loses nothing
        self._known: dict[str, UserPause] = {}
        self._steps_taken = True  # by evictions, since loops were looked for last; unknown at the start

    def refresh(self, stored: Mapping[str, Any] | None) -> None:
        self._known = {
            user: UserPause(**each | {"until": datetime.fromisoformat(each["until"])})
            for user, each in (stored or {}).items()
        }

    def left_alone(self, user: str, now: datetime) -> str | None:
        found = self._known.get(user)
        if found is None or not found.left_alone or now >= found.until:
            return None
        return f"left to Slurm until {found.until:%H:%M} UTC: {found.why}"

    def asked_about(self, user: str, now: datetime) -> str:
        for found in (self._known.get(user), self._known.get(EVERYBODY)):
            if found is not None and now < found.until:
                return f"until {found.until:%H:%M} UTC, as {found.why}"
        return ""

    def all(self, now: datetime) -> tuple[UserPause, ...]:
        return tuple(each for each in self._known.values() if now < each.until)

    def look_for_loops(self, now: datetime, budget: BudgetConfig) -> None:
        if budget.loop_window <= 0 or not self._steps_taken:
            return
        window = timedelta(seconds=budget.loop_window)
        looked_at = self._store.get_value(_LOOKED_AT)
        since = now - window if looked_at is None else max(now - window, datetime.fromisoformat(looked_at))
        for loop in self._store.loops(since, budget.loop_repeats):
            user = EVERYBODY if loop.user is None else loop.user
            known = self._known.get(user)
            if known is None or now >= known.until:
                pause = UserPause(now + window, f"{loop.why}, which looks like a loop", left_alone=False)
                self._tell(user, pause, now)
                self._begin(user, pause, now)
        self._steps_taken = False

    def notice(self, before: Eviction, after: Eviction, cycle: CycleContext) -> None:
        """An eviction has taken a step: pause its user where it ends by what the user did."""
        self._steps_taken = True
        if after.outcome_code is before.outcome_code:
            return
        now, budget, pause_s, why = cycle.now, cycle.config.budget, 0.0, ""
        misused = after.outcome_code is OutcomeCode.MISUSED
        if misused:
            pause_s, why = budget.misuse_pause, after.why
        elif after.outcome_code is OutcomeCode.POINTLESS and any(p.requeued_at for p in after.preemptions):
            job = cycle.snapshot.job_by_id.get(after.preemptor.job_id)
            if job is None or job.state is not JobState.ENDED or job.start_time is None:  # it did not run after all
                pause_s = budget.cancelled_pause
                why = f"urgent job {after.preemptor.job_id} was given up once others had left for it"
        if pause_s > 0 and not after.plan.ordinary:
            pause = UserPause(now + timedelta(seconds=pause_s), why[:1].lower() + why[1:], left_alone=misused)
            self._begin(after.preemptor.user, pause, now)

    def end(self, now: datetime) -> None:
        """An operator has looked at it: only what happens from now on can be a loop."""
        if self._known:
            self._store.set_value(_LOOKED_AT, now.isoformat())
            self._keep({})

    def forget_ended(self, now: datetime) -> None:
        if any(now >= each.until for each in self._known.values()):
            self._keep({user: each for user, each in self._known.items() if now < each.until})

    def _begin(self, user: str, pause: UserPause, now: datetime) -> None:
        self._keep(self._known | {user: pause})
        about = {"user": user} | pause.stored()
        self._store.audit(Audited(at=now, actor="clearway", kind=AuditKind.USER_PAUSE, about=about))

    def _keep(self, known: dict[str, UserPause]) -> None:
        self._store.set_value(USER_PAUSES, {user: each.stored() for user, each in known.items()})
        self._known = known


class Suppression:
    """The suppressed runs of jobs, each with the eviction that ended so; every change is stored at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, int] = {}

    def refresh(self, stored: Mapping[str, int] | None) -> None:
        self._known = dict(stored or {})

    def suppress(self, eviction: Eviction) -> None:
        self._keep(self._known | {_run_key(eviction.preemptor): eviction.eviction_id})

    def reason(self, job: Job) -> str | None:
        number = self._known.get(_run_key(job))
        return None if number is None else f"left to Slurm: see eviction {number}"

    def forget_ended(self, snapshot: ClusterSnapshot) -> None:
        there = {_run_key(job) for job in snapshot.jobs}
        if not self._known.keys() <= there:
            self._keep({key: number for key, number in self._known.items() if key in there})

    def _keep(self, known: dict[str, int]) -> None:
        self._store.set_value(SUPPRESSED, known)
        self._known = known


def _run_key(job: Job) -> str:
    return f"{job.job_id}/{job.restart_count}/{job.submit_time.timestamp():.0f}"
