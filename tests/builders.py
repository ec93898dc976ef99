"""Small builders of the product's records with sensible defaults, for every test.

Each takes what the test is about and fills in the rest; any field can be given by name. Times count from ``NOW``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from clearway.model.cluster import ClusterSnapshot, Job, JobState, Node
from clearway.model.operations import Eviction, EvictionState, Preemption
from clearway.model.plan import Choice, Curve, CurvePoint, Plan, PlannedAction, Verdict
from clearway.model.problem import Action, Candidate, EvictionProblem, Option

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
NODE_CPUS = 64
NODE_MEMORY_MIB = 256 * 1024


def after(seconds: float) -> datetime:
    """So many seconds after ``NOW`` (before it when negative)."""
    return NOW + timedelta(seconds=seconds)


class ManualClock:
    """Stands still until it is moved."""

    def __init__(self, start: datetime) -> None:
        self._now = start

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._now.timestamp()

    def steady(self) -> float:
        return self.monotonic()

    def set(self, now: datetime) -> None:
        self._now = now

    def advance(self, seconds: float) -> None:
        self.set(self.now() + timedelta(seconds=seconds))


def job(
    job_id: str | int = "101", nodes: Sequence[str] | int = 1, state: JobState = JobState.RUNNING, **fields: Any
) -> Job:
    """A job; ``nodes`` are names, or how many: a job that holds nodes then gets names made of its id.

    It was submitted two hours before ``NOW`` and, unless it waits, has been running for one.
    """
    job_id = str(job_id)
    count = nodes if isinstance(nodes, int) else len(nodes)
    names = tuple(f"n{job_id}-{index}" for index in range(count)) if isinstance(nodes, int) else tuple(nodes)
    defaults: dict[str, Any] = {
        "user": "alice",
        "account": "physics",
        "qos": "normal",
        "name": f"job-{job_id}",
        "raw_state": str(state).upper(),
        "partitions": ("batch",),
        "num_nodes": count,
        "submit_time": after(-7200),
        "eligible_time": after(-7200),
        "start_time": after(-3600) if state.holds_nodes else None,
        "time_limit_s": 86400,
        "nodes": names if state.holds_nodes else (),
        "cpus": NODE_CPUS * count,
        "memory_mib": NODE_MEMORY_MIB // 2,
        "priority": 1000,
        "reason": "None" if state.holds_nodes else "Resources",
    }
    return Job(job_id=job_id, state=state, **(defaults | fields))


def urgent_job(job_id: str | int = "900", nodes: int = 2, **fields: Any) -> Job:
    """A preemptor: it waits for ``nodes`` nodes since a minute before ``NOW``."""
    defaults: dict[str, Any] = {"qos": "urgent", "user": "bob", "submit_time": after(-60), "eligible_time": after(-60)}
    return job(job_id, nodes, JobState.PENDING, **(defaults | fields))


def node(name: str = "n1", **fields: Any) -> Node:
    """An idle node that takes jobs."""
    defaults: dict[str, Any] = {
        "available": True,
        "raw_state": "IDLE",
        "cpus": NODE_CPUS,
        "memory_mib": NODE_MEMORY_MIB,
        "partitions": ("batch",),
    }
    return Node(name=name, **(defaults | fields))


def snapshot(
    jobs: Sequence[Job] = (), nodes: Sequence[Node] | None = None, *, idle: int = 0, **fields: Any
) -> ClusterSnapshot:
    """What a cycle sees. Without ``nodes``: those that the jobs hold (allocated whole), and ``idle`` free ones."""
    if nodes is None:
        held = sorted({name for each in jobs if each.state.holds_nodes for name in each.nodes})
        nodes = [node(name, raw_state="ALLOCATED", alloc_cpus=NODE_CPUS) for name in held]
        nodes += [node(f"idle-{index}") for index in range(idle)]
    defaults: dict[str, Any] = {"taken_at": NOW, "slurm_version": "26.05.5"}
    return ClusterSnapshot(jobs=tuple(jobs), nodes=tuple(nodes), **(defaults | fields))


def plan(
    preemptor: Job | None = None, preemptees: Sequence[Job] | None = None, action: Action = Action.KILL, **fields: Any
) -> Plan:
    """A plan in which every preemptee leaves by ``action`` and frees its nodes; lost work as for a kill."""
    preemptor = preemptor if preemptor is not None else urgent_job()
    if preemptees is None:
        preemptees = [job(101 + index) for index in range(preemptor.num_nodes)]
    lost = {
        each.job_id: each.num_nodes * ((NOW - each.start_time).total_seconds() if each.start_time else 0.0)
        for each in preemptees
    }
    keeps = action is not Action.KILL
    actions = tuple(
        PlannedAction(each.job_id, action, 0.0 if keeps else lost[each.job_id], 10 if keeps else 0)
        for each in preemptees
    )
    chosen = CurvePoint(
        max_delay_s=0,
        feasible=True,
        lost_work_node_s=sum(planned.lost_work_node_s for planned in actions),
        checkpoint_s=sum(planned.checkpoint_s for planned in actions),
        nodes_freed=sum(each.num_nodes for each in preemptees),
        actions=actions,
    )
    problem = EvictionProblem(
        nodes_needed=preemptor.num_nodes,
        max_delay_s=600,
        step_s=60,
        candidates=tuple(
            Candidate(each.job_id, each.num_nodes, (Option(Action.KILL, lost[each.job_id]),), each.nodes)
            for each in preemptees
        ),
    )
    defaults: dict[str, Any] = {
        "made_at": NOW,
        "deadline": after(600),
        "nodes_needed": preemptor.num_nodes,
        "problem": problem,
        "curve": Curve("eviction-dp", (chosen,)),
        "chosen": chosen,
        "placement_nodes": tuple(name for each in preemptees for name in each.nodes)[: preemptor.num_nodes],
        "free_nodes": (),
        "verdicts": tuple(Verdict(each.job_id, Choice.CHOSEN, "cheapest", "loses least work") for each in preemptees),
    }
    return Plan(preemptor=preemptor, leaving=tuple(preemptees), **(defaults | fields))


def preemption(preemptee: Job | None = None, action: Action = Action.KILL, **fields: Any) -> Preemption:
    """One preemptee's record, planned and not yet begun."""
    defaults: dict[str, Any] = {
        "reason": "loses least work",
        "predicted_lost_node_s": 3600.0 if action is Action.KILL else 0.0,
        "predicted_checkpoint_s": 0.0 if action is Action.KILL else 10.0,
        "state_since": NOW,
    }
    return Preemption(job=preemptee if preemptee is not None else job(), action=action, **(defaults | fields))


def eviction(of: Plan | None = None, state: EvictionState = EvictionState.PLACING, **fields: Any) -> Eviction:
    """An eviction as it is first stored: its plan's preemptions, all of them planned."""
    of = of if of is not None else plan()
    preemptions = tuple(
        preemption(
            preemptee,
            planned.action,
            order=order,
            predicted_lost_node_s=planned.lost_work_node_s,
            predicted_checkpoint_s=float(planned.checkpoint_s),
        )
        for order, (preemptee, planned) in enumerate(zip(of.preemptees, of.chosen.actions, strict=True))
    )
    defaults: dict[str, Any] = {
        "eviction_id": 0,
        "mode": "automatic",
        "preemptions": preemptions,
        "state_since": NOW,
        "created_at": NOW,
    }
    return Eviction(plan=of, state=state, **(defaults | fields))
