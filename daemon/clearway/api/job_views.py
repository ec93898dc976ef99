"""What the daemon last saw of jobs, and what its database holds, as answers; and the sentences about jobs. Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import SimpleNamespace
from typing import TypeVar

from clearway.api import job_schemas as j
from clearway.api import views
from clearway.api.authorization import Own, Sight
from clearway.api.job_schemas import JobRole
from clearway.api.schemas import VerdictView
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.options import SavingWay, if_urgent, saving
from clearway.eligibility.urgent import matching_rule
from clearway.estimates.costs import lost_work_node_s
from clearway.estimates.learning import runs_again
from clearway.model.claims import read_claims
from clearway.model.cluster import ClusterSnapshot, Job, JobState
from clearway.model.explanation import Explanation
from clearway.model.operations import (
    Eviction,
    EvictionState,
    Operation,
    OperationKind,
    Preemption,
    PreemptionState,
    Relocation,
)
from clearway.model.plan import Choice, Verdict, node_hours
from clearway.model.problem import Action
from clearway.model.records import Involvement, SaveTest
from clearway.model.report import CycleReport, Waiting
from clearway.slurm.parse.hostlist import short

R = TypeVar("R", bound=j.JobRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    operation: Operation
    role: JobRole
    preemption: Preemption | None = None
    verdict: Verdict | None = None
    nodes: tuple[str, ...] = ()  # of the job's own, that the operation empties


def parts_of(jobs: Collection[Job], report: CycleReport, seen: Sight) -> Mapping[str, list[tuple[Part, Own]]]:
    """By job_id, those that the asker may see, newest operation first; jobs of which there is none are absent."""
    wanted = {job.job_id: job for job in jobs}
    found: defaultdict[str, list[tuple[Part, Own]]] = defaultdict(list)
    for operation in sorted(report.open_evictions, key=lambda each: each.eviction_id, reverse=True):
        parts = tuple(_parts_in(operation, wanted))
        if parts and (own := seen.part_of(operation)) is not None:
            for job_id, part in parts:
                found[job_id].append((part, own))
    return found


def _named_in(
    operation: Operation, wanted: Mapping[str, Job]
) -> tuple[Mapping[str, Verdict], Mapping[str, Preemption]]:
    """What is said of these jobs. Of one that was not there yet, the plan said it of another with its id."""
    there = {job_id for job_id, job in wanted.items() if job.submit_time <= operation.plan.made_at}
    leaving = [each for each in operation.preemptions if each.job_id in wanted]
    return (
        {each.job_id: each for each in operation.plan.verdicts if each.job_id in there},
        {p.job_id: p for p in leaving if p.job.submission.leads_to(wanted[p.job_id].submission)},
    )


def _parts_in(operation: Operation, wanted: Mapping[str, Job]) -> Iterator[tuple[str, Part]]:
    verdicts, preempted = _named_in(operation, wanted)
    drained = frozenset(operation.drained_nodes)
    if isinstance(operation, Eviction) and (job := wanted.get(operation.subject.job_id)) is not None:
        if not operation.preemptor.submission.leads_to(job.submission):
            return
        yield operation.subject.job_id, Part(operation=operation, role=JobRole.PREEMPTOR)
    for job_id, job in wanted.items():
        if job_id == operation.subject.job_id:
            continue
        own = tuple(name for name in job.nodes if name in drained)
        preemption, verdict = preempted.get(job_id), verdicts.get(job_id)
        if preemption is not None:
            role = JobRole.PREEMPTEE
        elif own:
            role = JobRole.RESIDENT
        elif verdict is not None and verdict.choice is Choice.SPARED:
            role = JobRole.CANDIDATE
        else:
            continue
        yield job_id, Part(operation=operation, role=role, preemption=preemption, verdict=verdict, nodes=own)


def goal(operation: Operation) -> str:
    """What jobs leave for, within a sentence."""
    if isinstance(operation, Eviction):
        return f"{operation.plan.called} {operation.subject.display_id} of {operation.subject.user}"
    kind = operation.order.kind if isinstance(operation, Relocation) else operation.kind
    return f"{kind.value} {operation.eviction_id}"


def doing(part: Part) -> str:
    operation, verdict = part.operation, part.verdict
    if part.role is JobRole.PREEMPTOR:
        said = _FOR_PREEMPTOR.get(operation.state, "Eviction {number} makes room for it.")
        return said.format(number=operation.eviction_id)
    if part.role is JobRole.RESIDENT:
        why = "it stays until it ends" if verdict is None else verdict.reason
        return f"{short(part.nodes)} is being emptied ({goal(operation)}); the job is left alone: {why}."
    if part.preemption is None:
        why = "" if verdict is None else f": {verdict.reason}"
        return f"It could leave for {goal(operation)}, and stays{why}."
    return _for_preemptee(part.preemption, operation)


_FOR_PREEMPTOR = {
    EvictionState.PROPOSED: "Room would be made for it (eviction {number}); in mode observe nothing is done.",
    EvictionState.AWAITING_APPROVAL: "Room is made for it once an operator approves eviction {number}.",
    EvictionState.STARTED: "Eviction {number} has made room for it.",
    EvictionState.RETURNING: "Eviction {number} has made room for it.",
    EvictionState.CANCELLING: "Eviction {number}, which was to make room for it, is being called off.",
}
_STAYS = "It stays: it need not leave for {goal} any more."
_FOR_PREEMPTEE = {
    PreemptionState.CHECKPOINTING: "It is saving itself, to leave for {goal}.",
    PreemptionState.VACATING: "It is leaving its nodes for {goal}.",
    PreemptionState.SUSPENDED: "It is suspended in memory for {goal}, and goes on afterwards.",
    PreemptionState.VACATED: "It has left for {goal}, and waits to run again.",
    PreemptionState.QUEUED: "It has left for {goal}, and waits to run again.",
    PreemptionState.HELD: "It has left for {goal}, and waits until it is released.",
    PreemptionState.RETURNED: "It was started again, after it had left for {goal}.",
    PreemptionState.ENDED: "It is over; its nodes were for {goal}.",
    PreemptionState.SPARED: _STAYS,
    PreemptionState.FAILED: "It did not leave for {goal} as planned{note}.",
}
_PLANNED = {
    EvictionState.PROPOSED: "It would leave for {goal}; in mode observe nothing is done.",
    EvictionState.AWAITING_APPROVAL: "It leaves for {goal} once an operator approves eviction {number}.",
    EvictionState.SCHEDULED: "It leaves for {goal} when that begins.",
}


def _for_preemptee(p: Preemption, operation: Operation) -> str:
    if p.state is not PreemptionState.PLANNED:
        said = _FOR_PREEMPTEE[p.state]
    elif operation.state.undoing:
        said = _STAYS
    elif p.action is Action.END:
        said = "It is expected to end by itself, in time for {goal}."
    else:
        said = _PLANNED.get(operation.state, "It is to leave for {goal}.")
    note = f": {p.note}" if p.note else ""
    return said.format(goal=goal(operation), number=operation.eviction_id, note=note)


@dataclass(frozen=True, slots=True)
class Known:
    """A job and what the newest cycle makes of it; ``parts`` are those that the asker may see, newest first."""

    job: Job
    parts: Sequence[tuple[Part, Own]] = ()
    waiting: Waiting | None = None
    why: str = ""  # of ``waiting``, as the asker may be told


def find(job: str, snapshot: ClusterSnapshot) -> Job | None:
    """A job by either form of its id. A waiting array is one record, which is found by the id of each task as well."""
    if (found := snapshot.job_by_id.get(job)) is not None:
        return found
    array = job.partition("_")[0] if "_" in job else None
    folded = None
    for each in snapshot.jobs:
        if each.display_id == job:
            return each
        if array is not None and each.array_job_id == array and each.state is JobState.PENDING:
            folded = each if each.array_task_id is None else folded
    return folded


def row(known: Known, context: PlanningContext, schema: type[R], **more: object) -> R:
    job, runs = known.job, known.job.state is JobState.RUNNING
    found, part = saving(job, context), known.parts[0][0] if known.parts else None
    return views.view(
        schema,
        job,
        nodes=job.num_nodes,
        started_at=job.start_time if job.state.holds_nodes else None,
        way=found.way,
        can_be_saved=found.possible,
        would_lose_node_s=lost_work_node_s(job, read_claims(job)[0], context.now) if runs else None,
        eviction_id=None if part is None else part.operation.eviction_id,
        role=None if part is None else part.role,
        doing=_doing_now(known, context),
        **more,
    )


def _doing_now(known: Known, context: PlanningContext) -> str:
    if known.why:
        return known.why[:1].upper() + known.why[1:].rstrip(".") + "."
    if known.parts:
        part, own = known.parts[0]
        return own.told(doing(part))
    if known.job.state is JobState.RUNNING and matching_rule(known.job, context.config.preemptors):
        return "It is an urgent job, so it is never preempted."
    return ""


def job_view(known: Known, report: CycleReport, context: PlanningContext, told: dict[str, object]) -> j.JobView:
    """Of a job that is in the queue."""
    job, rules = known.job, context.config.preemptors
    rule = matching_rule(job, rules)
    waiting = None if known.waiting is None else views.preemptor_view(known.waiting, report)
    return row(
        known,
        context,
        j.JobView,
        **told,
        node_names=job.nodes,
        restarts=job.restart_count,
        urgent="" if rule is None else rule.name or f"rule {rules.index(rule) + 1}",
        waiting=waiting and waiting.model_copy(update={"why": known.why}),
        saving=saving(job, context),
        if_urgent=if_urgent(job, context),
    )


# What is told of a job that is no longer in the queue, whatever the database remembers of it.
_NONE = ("state", "started_at", "would_lose_node_s", "eviction_id", "role", "waiting", "saving", "if_urgent")
_GONE = dict[str, object].fromkeys(_NONE) | {
    "way": SavingWay.NOTHING,
    "can_be_saved": False,
    "node_names": "",
    "urgent": "",
}
_UNKNOWN = SimpleNamespace(name="", account="", qos="", partitions=(), num_nodes=0, time_limit_s=None, restart_count=0)


def gone_view(
    job: str, report: CycleReport, involved: Sequence[Involvement], tests: Sequence[SaveTest], told: dict[str, object]
) -> j.JobView:
    """Of a job that is no longer in the queue, as its operations and tests remember it."""
    left = (each.preemption.job for each in involved if each.preemption is not None)
    seen = next(chain(left, (each.job for each in tests)), _UNKNOWN)
    subjects = (each.subject for each in involved)
    doing = "Slurm's record of it cannot be read just now." if report.snapshot.hides(job) else ""
    own = {"nodes": seen.num_nodes, "restarts": seen.restart_count, "doing": doing}
    return views.view(j.JobView, seen, *subjects, **_GONE | own | told)


_NO_RULE = SimpleNamespace(rule="")  # of a plan that serves no job


def operation_view(
    known: Involvement | Operation, part: Part | None, own: Own, explained: Explanation | None, context: PlanningContext
) -> j.JobOperationView:
    """One that serves the job or that it leaves for (``Involvement``), or an open one in which it stays where it is.

    ``part``: as the newest cycle has it, while it is open.
    """
    serves, verdict = known.kind is OperationKind.EVICTION, None if part is None else part.verdict
    leaves = known.preemption if isinstance(known, Involvement) else None
    role = JobRole.PREEMPTOR if leaves is None else JobRole.PREEMPTEE
    until = None if part is None else part.operation.runs_until
    at, why = (None, "") if leaves is None else runs_again(leaves, until, context.history, context.now)
    compared = leaves if isinstance(known, Involvement) else verdict
    return views.view(
        j.JobOperationView,
        known,
        *(() if isinstance(known, Involvement) else (known.plan, _NO_RULE)),
        role=role if part is None or isinstance(known, Involvement) else part.role,
        outcome=own.told(known.outcome),
        **_served(known),
        nodes=() if part is None else part.nodes,
        preemption=None if leaves is None else own.preemption(views.preemption_view(leaves)),
        verdict=verdict and own.redacted(views.view(VerdictView, verdict), "reason"),
        sparing=_sparing(compared.job_id, explained) if serves and compared is not None else None,
        runs_again_at=at,
        runs_again_why=why,
    )


def _served(known: Involvement | Operation) -> dict[str, str | None]:
    subject, serves = known.subject, known.kind is OperationKind.EVICTION
    ids = (subject.job_id, subject.display_id) if serves else (None, None)
    return {"for_job_id": ids[0], "for_display_id": ids[1], "for_user": subject.user}


def _sparing(job_id: str, explained: Explanation | None) -> j.SparingView:
    alternatives = () if explained is None else explained.alternatives
    found = next((each for each in alternatives if each.job_id == job_id and each.known), None)
    if found is None or explained is None:
        return j.SparingView(known=False, possible=False, more_lost_work_node_s=None, sentence="")
    spared = found.choice is Choice.SPARED
    if found.cost is None:
        why = "No plan in time has it leave." if spared else "Without it the nodes could not be freed in time."
        return j.SparingView(known=True, possible=False, more_lost_work_node_s=None, sentence=why)
    more_node_s = round(found.cost.lost_work_node_s - explained.cost.lost_work_node_s, 3)
    more = f"loses {node_hours(more_node_s)} more" if more_node_s > 0 else "loses no less, and costs more otherwise"
    sentence = f"The best plan {'with it' if spared else 'without it'} {more}."
    return j.SparingView(known=True, possible=True, more_lost_work_node_s=more_node_s, sentence=sentence)
