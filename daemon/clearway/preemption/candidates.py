"""What each running job can do for a preemptor: its options, or the verdict why it has none. Pure.

Each part of a problem is found once (``Survey``), and named by all that it depends on beside the snapshot, the
configuration and the moment. Equal parts are one object, so that comparing them takes no time. A survey for several
urgent jobs knows all ends within the longest delay: one that comes too late for a job is an option that it never has.

Looks are taken between two cycles, too, and kept while a job's record is the same object (``CandidateCache``); not
where more than lost work and the job's end depends on the time, on what is under way, or on a rule of its own. With
10,000 running jobs that saves 0.2 s of a cycle that plans.
"""

import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar, cast

from clearway.eligibility.context import PlanningContext
from clearway.eligibility.exemption import Purpose, exemption, least_runtime_s
from clearway.eligibility.options import end_is_awaited, expected_end_s, may_kill, options_for, why_not_saved
from clearway.eligibility.urgent import is_eternal
from clearway.estimates.checkpoint_load import approval_s, latest_of
from clearway.estimates.costs import end_ready_s, lost_work_node_s, suspend_option, why_no_checkpoint
from clearway.estimates.learning import key_of
from clearway.model.claims import CheckpointHow, Claims, read_claims
from clearway.model.cluster import Job, JobState
from clearway.model.limits import Limits
from clearway.model.plan import Choice, Preemptor, Verdict
from clearway.model.problem import Action, Option

T = TypeVar("T")

# Verdicts that time ends, or words anew, or that follow from more than is compared.
_CHANGING = frozenset({"too_young", "near_end", "would_not_return"})
_FOREVER = datetime.max.replace(tzinfo=UTC)


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


def look_at(
    job: Job, preemptor: Preemptor | None, context: PlanningContext, suspend_on: frozenset[str] = frozenset()
) -> Look:
    """In which ways one job can leave; one that must not be preempted can still end by itself in time.

    ``preemptor`` None: any that has no ``max_kill_loss``, is not ordinary, and for which all jobs may leave. A job
    whose nodes are all in ``suspend_on`` may be suspended in memory.
    """
    ordinary = preemptor is not None and preemptor.ordinary
    most_loss_s = None if preemptor is None else preemptor.max_kill_loss_s
    exempt = exemption(job, Purpose.PREEMPTION, context, preemptor=preemptor)
    ends_s = math.inf if ordinary else _ends_s(job, context)
    if exempt is not None:
        return Look(ends_s, (), None, Verdict(job.job_id, Choice.EXEMPT, *exempt))
    later_s = 0.0 if ordinary else _approved_in_s(context)
    kill, eternal = may_kill(job, context, most_loss_s, later_s), is_eternal(job, context.config.eternal)
    ways = options_for(job, context, kill=kill, shared=True, later_s=later_s)
    if preemptor is not None and not eternal and suspend_on.issuperset(job.nodes):
        nodes, jobs_on = context.snapshot.node_by_name, context.snapshot.jobs_on  # suspended jobs are on them too
        memories = [(nodes[n].memory_mib, [other.memory_mib for other in jobs_on.get(n, ())]) for n in job.nodes]
        ways += suspend_option(job, memories, preemptor.job.memory_mib)
    unsaved = why_no_checkpoint(read_claims(job)[0], context.actions)
    why = "" if ways else f"{why_not_saved(job, context)}, and {_why_not_killed(preemptor, context, eternal=eternal)}"
    return Look(ends_s, ways, unsaved, Verdict(job.job_id, Choice.EXEMPT, "no_option", why))


def _approved_in_s(context: PlanningContext) -> float:
    return approval_s(context.config.daemon.mode, context.config.execution)


def _ends_s(job: Job, context: PlanningContext) -> float:
    """Seconds until its own end, where that can be counted on; infinite where it cannot."""
    if job.state is not JobState.RUNNING or job.job_id in context.under_way.lasting:
        return math.inf
    ends_s = expected_end_s(job, context)
    return math.inf if ends_s is None else ends_s


def _why_not_killed(preemptor: Preemptor | None, context: PlanningContext, *, eternal: bool) -> str:
    if eternal:
        return "eternal jobs are never killed"
    if preemptor is None or not context.config.candidates.allow_kill:
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
        yield job.start_time + timedelta(seconds=least_runtime_s(job, context) + job.stood_s)
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


@dataclass(frozen=True, slots=True)
class _Kept:
    """A look at one job that holds until then, but for the lost work and the time until the job's end."""

    job: Job
    claims: Claims | None = None
    look: Look | None = None  # None: it depends on too much to be kept
    until: datetime = _FOREVER

    def at(self, job: Job, now: datetime, later_s: float) -> Look | None:
        if self.look is None or self.job is not job or now >= self.until:
            return None
        ends_s, ways = end_ready_s(job, now, 0.0), self.look.ways
        if ways and ways[0].action is Action.KILL:
            lost_node_s = lost_work_node_s(job, self.claims, now, later_s)
            ways = (Option(Action.KILL, lost_node_s, return_node_s=ways[0].return_node_s), *ways[1:])
        return Look(self.look.ends_s if ends_s is None else ends_s, ways, self.look.unsaved, self.look.verdict)


class CandidateCache:
    """The looks at jobs that hold for most preemptors, by job_id; lost when the daemon ends."""

    def __init__(self) -> None:
        self._made_with: tuple[object, ...] = ()
        self._made_at = datetime.min.replace(tzinfo=UTC)  # the newest of them
        self._kept: dict[str, _Kept] = {}
        # Whether jobs would return follows from these too: partitions as they were read for the last plan, and nodes.
        self._limits: Limits | None = None
        self._nodes: tuple[object, ...] = ()

    def look_ahead(self, context: PlanningContext, go_on: Callable[[], bool]) -> None:
        """Look at jobs that have not been looked at, while ``go_on`` says so, and forget those that are gone."""
        before = self._kept if self._holds(context) else {}
        self._made_with, self._made_at, self._kept = _basis(context), context.now, {}
        self._nodes, context = _nodes(context), replace(context, limits=self._limits)
        for job in context.snapshot.holders:
            known = before.get(job.job_id)
            if known is not None and known.job is job:
                self._kept[job.job_id] = known
            elif go_on():
                self._kept[job.job_id] = _Kept(job)
                with suppress(Exception):  # what fails here fails in the cycle as well, where it is told
                    self._kept[job.job_id] = _kept(job, context)

    def of(self, preemptor: Preemptor, context: PlanningContext) -> Mapping[str, _Kept]:
        """Those that hold for this preemptor, but for jobs that are under way or were preempted before."""
        own_rules = preemptor.max_kill_loss_s is not None or preemptor.only_opportunistic or preemptor.ordinary
        if context.limits is not None:
            if self._limits is None or self._limits.partitions != context.limits.partitions:
                self._kept = {}
            self._limits = context.limits
        return {} if own_rules or not self._holds(context) else self._kept

    def _holds(self, context: PlanningContext) -> bool:
        """Not where the clock was set back: a job may be too young again."""
        same = all(old is new for old, new in zip(self._made_with, _basis(context), strict=False))
        return same and self._made_at <= context.now and self._nodes == _nodes(context)


def _nodes(context: PlanningContext) -> tuple[object, ...]:
    return tuple([(node.name, node.partitions, node.features) for node in context.snapshot.nodes])


def _basis(context: PlanningContext) -> tuple[object, ...]:
    return context.config, context.history, context.actions


@dataclass
class Survey:
    """Parts by name; made for one snapshot, configuration and moment."""

    longest_s: float = 0.0  # that any of the urgent jobs has: later ends are not looked at; 0: it is for one of them
    cache: CandidateCache | None = None
    parts: dict[Hashable, Any] = field(default_factory=dict)

    def once(self, name: Hashable, find: Callable[[], T]) -> T:
        """The part of this name."""
        if name not in self.parts:
            self.parts[name] = find()
        return cast(T, self.parts[name])


def looks_at_jobs(
    preemptor: Preemptor,
    context: PlanningContext,
    leaving: Collection[str],
    suspend_on: frozenset[str],
    cache: CandidateCache | None = None,
) -> dict[str, Look]:
    """A look at each job that holds nodes, by job_id in its order, but for those that are ``leaving`` anyway.

    Jobs whose nodes are all in ``suspend_on`` may be suspended in memory.
    """
    known = cache.of(preemptor, context) if cache is not None and not suspend_on else {}
    under_way = context.under_way
    changed = context.preempted.keys() | under_way.jobs | under_way.avoid | under_way.unsaved | under_way.lasting
    found: dict[str, Look] = {}
    later_s = _approved_in_s(context) + context.begins_in_s
    for job in sorted(context.snapshot.holders, key=lambda job: job.job_id):
        if job.job_id in leaving:
            continue
        before = None if job.job_id in changed or end_is_awaited(job, context) else known.get(job.job_id)
        look = None if before is None else before.at(job, context.now, later_s)
        if look is None:
            act = partial(look_at, job, preemptor, context, suspend_on)
            look = context.attempt(f"{job.job_id} as a candidate", act)
        if look is None:
            why = "Clearway failed at its record; see the log"
            look = Look(math.inf, (), None, Verdict(job.job_id, Choice.EXEMPT, "not_understood", why))
        found[job.job_id] = look
    return found


def _follows_from_more(job: Job, context: PlanningContext) -> bool:
    """Its end from earlier runs, its guards from its being eternal, its return from the urgent job or from nodes."""
    returns = job.deadline is not None or job.reservation is not None or bool(job.required_nodes)
    by_guess = context.config.planning.end_confidence is not None
    return returns or by_guess or is_eternal(job, context.config.eternal)


def _kept(job: Job, context: PlanningContext) -> _Kept:
    """A look at this job, where little of it will change with the time."""
    claims, _ = read_claims(job)
    if job.state is not JobState.RUNNING or job.start_time is None or _follows_from_more(job, context):
        return _Kept(job)
    if claims is not None and claims.checkpoint not in (None, CheckpointHow.NONE):
        own_pace = claims.checkpoint is not CheckpointHow.SIGNAL
        to_come = claims.last is not None and claims.last > context.now  # it counts from some moment on
        by_its_nodes = claims.size_mib is None and not job.memory_mib  # how long its checkpoint takes
        failures = context.history.failures_in_a_row(*key_of(job, claims))
        failing = failures >= context.history.learning.failures
        if own_pace or to_come or by_its_nodes or failing or end_is_awaited(job, context):
            return _Kept(job)
    look, until = look_at(job, None, context), _FOREVER
    if look.verdict.code in _CHANGING:
        return _Kept(job)
    if job.ends_by is not None:
        until = job.ends_by - timedelta(seconds=context.config.candidates.spare_before_end)
    return _Kept(job, claims, look, until)
