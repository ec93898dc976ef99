"""What the operations that are open make of jobs, by job, and the sentence that says it. Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from clearway.api.job_schemas import JobRole
from clearway.model.cluster import Job
from clearway.model.operations import (
    Drain,
    Eviction,
    EvictionState,
    Operation,
    Preemption,
    PreemptionState,
    Promise,
    Relocation,
)
from clearway.model.plan import Choice, Verdict
from clearway.model.problem import Action
from clearway.model.report import CycleReport
from clearway.slurm.parse.hostlist import short


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One job's part in one open operation."""

    operation: Operation
    role: JobRole
    preemption: Preemption | None = None
    verdict: Verdict | None = None
    nodes: tuple[str, ...] = ()  # of the job's own, that the operation empties


def parts_of(jobs: Collection[Job], report: CycleReport) -> Mapping[str, tuple[Part, ...]]:
    """By job_id, newest operation first; jobs that no open operation is about are absent."""
    wanted = {job.job_id: job for job in jobs}
    found: defaultdict[str, list[Part]] = defaultdict(list)
    for operation in sorted(report.open_evictions, key=lambda each: each.eviction_id, reverse=True):
        for job_id, part in _parts_in(operation, wanted):
            found[job_id].append(part)
    return {job_id: tuple(parts) for job_id, parts in found.items()}


def _parts_in(operation: Operation, wanted: Mapping[str, Job]) -> Iterator[tuple[str, Part]]:
    verdicts = {each.job_id: each for each in operation.plan.verdicts if each.job_id in wanted}
    preempted = {each.job_id: each for each in operation.preemptions if each.job_id in wanted}
    drained = frozenset(operation.drained_nodes)
    if operation.subject.job_id in wanted:
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
        subject = operation.subject
        return f"{operation.plan.called} {subject.display_id} of {subject.user}"
    if isinstance(operation, Relocation):
        return f"{operation.order.kind.value} {operation.eviction_id}"
    if isinstance(operation, Promise):
        return f"promise {operation.eviction_id}"
    assert isinstance(operation, Drain), operation.kind  # noqa: S101 - there are four kinds
    return f"drain {operation.eviction_id}"


def doing(part: Part) -> str:
    """What is being done with the job, as a sentence."""
    operation = part.operation
    match part.role:
        case JobRole.PREEMPTOR:
            return _for_preemptor(operation)
        case JobRole.RESIDENT:
            why = "it stays until it ends" if part.verdict is None else part.verdict.reason
            return f"{short(part.nodes)} is being emptied ({goal(operation)}); the job is left alone: {why}."
        case JobRole.CANDIDATE:
            why = "" if part.verdict is None else f": {part.verdict.reason}"
            return f"It could leave for {goal(operation)}, and stays{why}."
        case JobRole.PREEMPTEE:
            assert part.preemption is not None  # noqa: S101 - by its role
            return _for_preemptee(part.preemption, operation)


def _for_preemptor(operation: Operation) -> str:
    number = operation.eviction_id
    match operation.state:
        case EvictionState.PROPOSED:
            return f"Room would be made for it (eviction {number}); in mode observe nothing is done."
        case EvictionState.AWAITING_APPROVAL:
            return f"Room is made for it once an operator approves eviction {number}."
        case EvictionState.STARTED | EvictionState.RETURNING:
            return f"Eviction {number} has made room for it."
        case EvictionState.CANCELLING:
            return f"Eviction {number}, which was to make room for it, is being called off."
        case _:
            return f"Eviction {number} makes room for it."


def _for_preemptee(p: Preemption, operation: Operation) -> str:
    states, leave_for = PreemptionState, goal(operation)
    match p.state:
        case states.PLANNED:
            return _planned(p, operation, leave_for)
        case states.CHECKPOINTING:
            return f"It is saving itself, to leave for {leave_for}."
        case states.VACATING:
            return f"It is leaving its nodes for {leave_for}."
        case states.SUSPENDED:
            return f"It is suspended in memory for {leave_for}, and goes on afterwards."
        case states.VACATED | states.QUEUED:
            return f"It has left for {leave_for}, and waits to run again."
        case states.RETURNED:
            return f"It was started again, after it had left for {leave_for}."
        case states.ENDED:
            return f"It is over; its nodes were for {leave_for}."
        case states.SPARED:
            return f"It stays: it need not leave for {leave_for} any more."
        case states.FAILED:
            return f"It did not leave for {leave_for} as planned{f': {p.note}' if p.note else ''}."


def _planned(p: Preemption, operation: Operation, leave_for: str) -> str:
    if operation.state.undoing:
        return f"It stays: it need not leave for {leave_for} any more."
    if p.action is Action.END:
        return f"It is expected to end by itself, in time for {leave_for}."
    match operation.state:
        case EvictionState.PROPOSED:
            return f"It would leave for {leave_for}; in mode observe nothing is done."
        case EvictionState.AWAITING_APPROVAL:
            return f"It leaves for {leave_for} once an operator approves eviction {operation.eviction_id}."
        case EvictionState.SCHEDULED:
            return f"It leaves for {leave_for} when that begins."
        case _:
            return f"It is to leave for {leave_for}."
