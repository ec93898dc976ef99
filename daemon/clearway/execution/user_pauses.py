"""Urgent jobs that others do not leave for without more ado, and why: certain runs, and all jobs of a user for a while.

A run is suppressed for good: an operator cancelled its eviction, or that failed. Slurm starts it. An operator may end
the pause of a user:

left alone      nothing is planned: another job of the user was in a placement, which is for the urgent job alone.
asked about     plans wait for approval: an urgent job was cancelled once others had left for it, or jobs leave again
                and again (the same job for the same urgent job, or evictions whose urgent jobs do not start).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from clearway.config.access import BudgetConfig
from clearway.execution.cycle_context import CycleContext
from clearway.model.audit import Audited, AuditKind
from clearway.model.cluster import ClusterSnapshot, Job, JobState
from clearway.model.operations import Eviction
from clearway.model.outcome import OutcomeCode
from clearway.store.repository import Store

SUPPRESSED = "left_alone"  # the name of the stored value, as earlier versions wrote it
USER_PAUSES, _LOOKED_AT = "user_pauses", "loops_looked_at"  # the names of stored values
EVERYBODY = "*"  # no user's name in Slurm


@dataclass(frozen=True, slots=True)
class UserPause:
    """``left_alone``: nothing is planned; else plans wait for approval."""

    until: datetime
    why: str
    left_alone: bool


class UserPauses:
    """By user; every change is stored at once."""

    def __init__(
        self, store: Store, tell: Callable[[str, UserPause, datetime], None] = lambda _user, _pause, _now: None
    ) -> None:
        self._store = store
        self._tell = tell  # of a loop, before its pause is stored: a crash in between loses nothing
        self._known: dict[str, UserPause] = {}
        self._steps_taken = True  # by evictions, since loops were looked for last; unknown at the start

    def refresh(self, stored: Mapping[str, Any] | None) -> None:
        """Go by what is stored, under ``USER_PAUSES``."""
        self._known = {
            user: UserPause(datetime.fromisoformat(each["until"]), each["why"], bool(each["left_alone"]))
            for user, each in (stored or {}).items()
        }

    def left_alone(self, user: str, now: datetime) -> str | None:
        """Why nothing is planned for this user's jobs; None when it may be."""
        found = self._known.get(user)
        if found is None or not found.left_alone or now >= found.until:
            return None
        return f"left to Slurm until {found.until:%H:%M} UTC: {found.why}"

    def asked_about(self, user: str, now: datetime) -> str:
        """Why plans for this user's jobs need approval; empty where they do not."""
        for found in (self._known.get(user), self._known.get(EVERYBODY)):
            if found is not None and now < found.until:
                return f"until {found.until:%H:%M} UTC, as {found.why}"
        return ""

    def all(self, now: datetime) -> tuple[UserPause, ...]:
        """Those that last."""
        return tuple(each for each in self._known.values() if now < each.until)

    def look_for_loops(self, now: datetime, budget: BudgetConfig) -> None:
        """Let an operator decide where jobs leave again and again without an end to it."""
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
        if after.outcome_code is OutcomeCode.MISUSED:
            pause_s, why = budget.misuse_pause, after.why
        elif after.outcome_code is OutcomeCode.POINTLESS and any(p.requeued_at for p in after.preemptions):
            job = cycle.snapshot.job_by_id.get(after.preemptor.job_id)
            if job is None or job.state is not JobState.ENDED or job.start_time is None:  # it did not run after all
                pause_s = budget.cancelled_pause
                why = f"urgent job {after.preemptor.job_id} was given up once others had left for it"
        if pause_s > 0 and not after.plan.ordinary:
            until = now + timedelta(seconds=pause_s)
            kind = after.outcome_code is OutcomeCode.MISUSED
            self._begin(after.preemptor.user, UserPause(until, _half(why), kind), now)

    def end(self, now: datetime) -> None:
        """An operator has looked at it: only what happens from now on can be a loop."""
        if self._known:
            self._store.set_value(_LOOKED_AT, now.isoformat())
            self._keep({})

    def forget_ended(self, now: datetime) -> None:
        """Drop those that are over."""
        if any(now >= each.until for each in self._known.values()):
            self._keep({user: each for user, each in self._known.items() if now < each.until})

    def _begin(self, user: str, pause: UserPause, now: datetime) -> None:
        self._keep(self._known | {user: pause})
        about = {"user": user, "until": pause.until.isoformat(), "why": pause.why, "left_alone": pause.left_alone}
        self._store.audit(Audited(at=now, actor="clearway", kind=AuditKind.USER_PAUSE, about=about))

    def _keep(self, known: dict[str, UserPause]) -> None:
        stored = {
            user: {"until": each.until.isoformat(), "why": each.why, "left_alone": each.left_alone}
            for user, each in known.items()
        }
        self._store.set_value(USER_PAUSES, stored)
        self._known = known


def _half(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


class Suppression:
    """The suppressed runs of jobs, each with the eviction that ended so; every change is stored at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, int] = {}

    def refresh(self, stored: Mapping[str, int] | None) -> None:
        """Go by what is stored, under ``SUPPRESSED``."""
        self._known = dict(stored or {})

    def suppress(self, eviction: Eviction) -> None:
        """Do not plan again for this run of its preemptor."""
        self._keep(self._known | {_run_key(eviction.preemptor): eviction.eviction_id})

    def reason(self, job: Job) -> str | None:
        """Why this job is not planned for, in words; None when it may be."""
        number = self._known.get(_run_key(job))
        return None if number is None else f"left to Slurm: see eviction {number}"

    def forget_ended(self, snapshot: ClusterSnapshot) -> None:
        """Drop the runs that Slurm no longer has."""
        there = {_run_key(job) for job in snapshot.jobs}
        if not self._known.keys() <= there:
            self._keep({key: number for key, number in self._known.items() if key in there})

    def _keep(self, known: dict[str, int]) -> None:
        self._store.set_value(SUPPRESSED, known)
        self._known = known


def _run_key(job: Job) -> str:
    return f"{job.job_id}/{job.restart_count}"
