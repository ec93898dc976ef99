"""What each running job can do for a preemptor: its options, or the verdict why it has none. Pure.

Each part of a problem is found once (``Survey``), and named by all that it depends on beside the snapshot, the
configuration and the moment. Equal parts are one object, so that comparing them takes no time. A survey for several
urgent jobs knows all ends within the longest delay: one that comes too late for a job is an option that it never has.
"""

import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar, cast

from clearway.eligibility.context import PlanningContext
from clearway.eligibility.exemption import Purpose, exemption, least_runtime_s
from clearway.eligibility.options import expected_end_s, may_kill, options_for, why_not_saved
from clearway.eligibility.urgent import is_eternal
from clearway.estimates.checkpoint_load import approval_s, latest_of
from clearway.estimates.costs import suspend_option, why_no_checkpoint
from clearway.estimates.learning import key_of
from clearway.model.claims import CheckpointHow, read_claims
from clearway.model.cluster import Job, JobState
from clearway.model.plan import Choice, Preemptor, Verdict
from clearway.model.problem import Action, Option

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at one running job has found, whatever time there is."""

    ends_s: float  # until it ends by itself, as far as that can be counted on; infinite where it cannot
    ways: tuple[Option, ...]  # in which it can be made to leave
    unsaved: str | None  # why it cannot be checkpointed; None: it may only end
    verdict: Verdict  # where it has no option


@dataclass(frozen=True, slots=True)
class JobOptions:
    """By job_id, in its order: in which ways each running job can leave, and what is said of those that cannot."""

    looks: Mapping[str, Look]
    options: Mapping[str, tuple[Option, ...]]
    verdicts: tuple[Verdict, ...]  # of jobs without any option
    only_end: Mapping[str, Verdict]  # of jobs that may not be preempted, but end by themselves: why they may not


def look_at(job: Job, preemptor: Preemptor, context: PlanningContext, suspend_on: frozenset[str] = frozenset()) -> Look:
    """In which ways one job can leave; one that must not be preempted can still end by itself in time.

    A job whose nodes are all in ``suspend_on`` may be suspended in memory.
    """
    exempt = exemption(job, Purpose.PREEMPTION, context, preemptor=preemptor)
    ends_s = math.inf if preemptor.ordinary else _ends_s(job, context)
    if exempt is not None:
        return Look(ends_s, (), None, Verdict(job.job_id, Choice.EXEMPT, *exempt))
    later_s = 0.0 if preemptor.ordinary else approval_s(context.config.daemon.mode, context.config.execution)
    kill, eternal = may_kill(job, context, preemptor.max_kill_loss_s), is_eternal(job, context.config.eternal)
    ways = options_for(job, context, kill=kill, shared=True, later_s=later_s)
    if not eternal and suspend_on.issuperset(job.nodes):
        nodes, jobs_on = context.snapshot.node_by_name, context.snapshot.jobs_on  # suspended jobs are on them too
        memories = [(nodes[n].memory_mib, [other.memory_mib for other in jobs_on.get(n, ())]) for n in job.nodes]
        ways += suspend_option(job, memories, preemptor.job.memory_mib)
    unsaved = why_no_checkpoint(read_claims(job)[0], context.actions)
    why = "" if ways else f"{why_not_saved(job, context)}, and {_why_not_killed(preemptor, context, eternal=eternal)}"
    return Look(ends_s, ways, unsaved, Verdict(job.job_id, Choice.EXEMPT, "no_option", why))


def _ends_s(job: Job, context: PlanningContext) -> float:
    """Seconds until its own end, where that can be counted on; infinite where it cannot."""
    if job.state is not JobState.RUNNING or job.job_id in context.under_way.lasting:
        return math.inf
    ends_s = expected_end_s(job, context)
    return math.inf if ends_s is None else ends_s


def _why_not_killed(preemptor: Preemptor, context: PlanningContext, *, eternal: bool) -> str:
    if eternal:
        return "eternal jobs are never killed"
    if not context.config.candidates.allow_kill:
        return "killing is not allowed"
    return f"killing it would lose more than max_kill_loss of rule {preemptor.rule} allows"


def job_options(looks: Mapping[str, Look], horizon_s: float) -> JobOptions:
    """The options of all these jobs where there is so much time."""
    options: dict[str, tuple[Option, ...]] = {}
    for job_id, look in looks.items():
        if look.ends_s <= horizon_s:
            options[job_id] = (Option(Action.END, ready_s=round(look.ends_s, 3)), *look.ways)
        elif look.ways:
            options[job_id] = look.ways
    verdicts = tuple([look.verdict for job_id, look in looks.items() if job_id not in options])
    only_end = {job_id: looks[job_id].verdict for job_id in options if not looks[job_id].ways}
    return JobOptions(looks, options, verdicts, only_end)


def changes_at(context: PlanningContext, deadline: datetime | None, moves_with_s: float) -> datetime | None:
    """When time alone may next turn "there is no plan" into a plan; None: never.

    While a ``deadline`` is to come, more becomes possible only when jobs come of age, when checkpoints are trusted
    again or begin to count, when reservations begin or end, and when others' operations are due. Once it has passed
    (or where there is None) the time that a plan may take moves on with the clock, ``moves_with_s`` ahead of it: then
    also when a job's own end, or its own next checkpoint, comes within that.
    """
    moves = deadline is None or deadline <= context.now
    found = [] if deadline is None else [deadline]
    for each in context.reservations:
        found += [each.start_time, each.end_time]
    found += [latest_of(e, context.config.execution) for e in context.under_way.evictions]
    for job in context.snapshot.holders:
        found += _moments(job, context, moves_with_s if moves else None)
    return min((each for each in found if each > context.now), default=None)


def _moments(job: Job, context: PlanningContext, window_s: float | None) -> Iterator[datetime]:
    if job.start_time is not None:
        yield job.start_time + timedelta(seconds=least_runtime_s(job, context))
    claims, _ = read_claims(job)
    if claims is not None:
        forgiven = context.history.forgiven_at(*key_of(job, claims))
        yield from (each for each in (claims.last, forgiven) if each is not None)
    if window_s is None:
        return
    later_s = [expected_end_s(job, context)]
    if claims is not None and claims.checkpoint is CheckpointHow.INTERVAL:
        later_s += [option.checkpoint_s + option.ready_s for option in options_for(job, context, kill=False)]
    for each in later_s:
        if each is not None and window_s < each < math.inf:
            yield context.now + timedelta(seconds=each - window_s)


@dataclass
class Survey:
    """Parts by name; made for one snapshot, configuration and moment."""

    longest_s: float = 0.0  # that any of the urgent jobs has: later ends are not looked at; 0: it is for one of them
    parts: dict[Hashable, Any] = field(default_factory=dict)

    def once(self, name: Hashable, find: Callable[[], T]) -> T:
        """The part of this name."""
        if name not in self.parts:
            self.parts[name] = find()
        return cast(T, self.parts[name])


def looks_at_jobs(
    preemptor: Preemptor, context: PlanningContext, leaving: Collection[str], suspend_on: frozenset[str]
) -> dict[str, Look]:
    """A look at each job that holds nodes, by job_id in its order, but for those that are ``leaving`` anyway.

    Jobs whose nodes are all in ``suspend_on`` may be suspended in memory.
    """
    found: dict[str, Look] = {}
    for job in sorted(context.snapshot.holders, key=lambda job: job.job_id):
        if job.job_id not in leaving:
            look = partial(look_at, job, preemptor, context, suspend_on)
            found[job.job_id] = context.attempt(f"{job.job_id} as a candidate", look) or _not_understood(job)
    return found


def _not_understood(job: Job) -> Look:
    why = "Clearway failed at its record; see the log"
    return Look(math.inf, (), None, Verdict(job.job_id, Choice.EXEMPT, "not_understood", why))
