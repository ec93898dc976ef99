"""The ``Ask`` of an urgent job: made here, and nowhere else. Pure.

It is the key of what is remembered of a job, and what a plan is compared with before each step that takes something
from another job.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

from clearway.config.configuration import Config
from clearway.model.cluster import ClusterSnapshot, Job, JobState
from clearway.model.limits import Limits
from clearway.model.plan import Ask, Plan, Preemptor
from clearway.preemption.detection import preemptor_of, waits_since
from clearway.preemption.opportunistic import ordinary

# Fields of a waiting job that no plan follows from but by others of the Ask; each of them is the same in all Asks.
# tests/unit/core/test_ask.py says why of each.
WITHOUT_INFLUENCE: Mapping[str, Any] = {
    "name": "",
    "state": JobState.PENDING,
    "raw_state": "",
    "reason": "",
    "submit_time": datetime.fromtimestamp(0, UTC),
    "eligible_time": None,
    "start_time": None,
    "nodes": (),
    "comment": "",
    "batch": True,
    "requeueable": True,
    "priority": 1,
    "dependency": "",
    "reservation": None,
    "array_job_id": None,
    "array_task_id": None,
    "pending_tasks": 1,
    "array_limit": 0,
    "het_job_id": None,
    "het_job_offset": None,
}


def ask_of(preemptor: Preemptor, limits: Limits | None = None) -> Ask:
    job = preemptor.job
    seen = {} if limits is None else limits.partitions
    return Ask(
        job=replace(job, **WITHOUT_INFLUENCE),
        rule=preemptor.rule,
        max_delay_s=preemptor.max_delay_s,
        since=None if preemptor.ordinary else waits_since(job),
        max_late_s=preemptor.max_late_s,
        max_kill_loss_s=preemptor.max_kill_loss_s,
        only_in=preemptor.only_in,
        ordinary=preemptor.ordinary,
        components=preemptor.components,
        tasks=preemptor.tasks,
        takes_free=preemptor.takes_free,
        partitions=tuple(seen[name] for name in preemptor.partitions if name in seen),
    )


def ask_misfit(plan: Plan, snapshot: ClusterSnapshot, config: Config, own: frozenset[str] = frozenset()) -> str:
    """What is said of a job that waits and does not ask any more for what it was planned for; empty for any other.

    Fewer tasks, idle nodes that it may count on by now, and what its partitions allow are looked at by themselves.
    ``own``: see ``waiting_now``.
    """
    seen = snapshot.job_by_id.get(plan.preemptor.job_id)
    if seen is None or seen.state is not JobState.PENDING:
        return ""
    if (now := waiting_now(plan, snapshot, config, own)) is None:
        return "is not urgent any more"
    before = plan.ask
    if before is None:  # a plan from before it was kept: by the rules of today
        asked = _by_rules(plan.preemptor, plan, snapshot, config, own)
        before = ask_of(replace(now, job=plan.preemptor) if asked is None else asked)
    asks = replace(ask_of(now), tasks=before.tasks, takes_free=before.takes_free, partitions=before.partitions)
    if asks == before:
        return ""
    told = [each.name for each in fields(Ask) if each.name != "job"]
    told = [name for name in told if getattr(asks, name) != getattr(before, name)]
    told += [each.name for each in fields(Job) if getattr(asks.job, each.name) != getattr(before.job, each.name)]
    return f"was changed ({', '.join(told).replace('_', ' ')})"


def waiting_now(
    plan: Plan, snapshot: ClusterSnapshot, config: Config, own: frozenset[str] = frozenset()
) -> Preemptor | None:
    """The job that a plan is for, as it waits now; ``own``: the placements that it may be attached to.

    None where it does not wait any more, or no rule makes room for it. While it may start in one partition alone it
    still asks for all of its own.
    """
    seen = snapshot.job_by_id.get(plan.preemptor.job_id)
    if seen is None or seen.state is not JobState.PENDING:
        return None
    if seen.partitions == (plan.pin,):
        seen = replace(seen, partitions=plan.preemptor.partitions)
    return _by_rules(seen, plan, snapshot, config, own)


def _by_rules(job: Job, plan: Plan, snapshot: ClusterSnapshot, config: Config, own: frozenset[str]) -> Preemptor | None:
    found = preemptor_of(job, config.preemptors, own, snapshot)
    if found is None and config.eternal.partitions and plan.ordinary:
        return ordinary(job, config.eternal, snapshot.taken_at, own, snapshot.topology)
    return found
