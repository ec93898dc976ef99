"""Which waiting jobs are preemptors, and by when they must run. Pure."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from clearway.config.configuration import PreemptorRule
from clearway.eligibility.urgent import matching_rule
from clearway.model.claims import read_claims
from clearway.model.cluster import ClusterSnapshot, Job, JobState, Topology
from clearway.model.obstacle import Obstacle, ObstacleCode
from clearway.model.plan import Preemptor
from clearway.model.quarantine import Attempt, unguarded

# Slurm's reasons for "it waits for nodes". With others (held, dependency, limits, begin time) no freed node helps.
_WAITS_FOR_NODES = ("none", "priority", "resources", "reqnodenotavail", "nodesrequired", "reservation")


def preemptors(
    snapshot: ClusterSnapshot,
    rules: Sequence[PreemptorRule],
    own_placements: frozenset[str] = frozenset(),
    attempt: Attempt = unguarded,
) -> tuple[Preemptor, ...]:
    """The pending jobs that some rule makes preemptors, most pressing first.

    ``own_placements`` are the names of reservations that Clearway itself attached jobs to.
    """
    pending = (job for job in snapshot.jobs if job.state is JobState.PENDING)
    looks = (
        attempt(f"{job.job_id} as an urgent job", partial(preemptor_of, job, rules, own_placements, snapshot.topology))
        for job in pending
    )
    found = [each for each in looks if each is not None]
    return tuple(sorted(found, key=lambda preemptor: (preemptor.deadline, preemptor.job.job_id)))


def preemptor_of(
    job: Job, rules: Sequence[PreemptorRule], own_placements: frozenset[str], topology: Topology
) -> Preemptor | None:
    """A pending job as a preemptor; None where no rule makes it one."""
    rule = matching_rule(job, rules)
    if rule is None:
        return None
    max_delay_s = max_delay_of(job, rule)
    return Preemptor(
        job=job,
        rule=rule.name or f"rule {rules.index(rule) + 1}",
        max_delay_s=max_delay_s,
        deadline=waits_since(job) + timedelta(seconds=max_delay_s),
        obstacle=obstacle(job, own_placements, topology),
    )


def max_delay_of(job: Job, rule: PreemptorRule) -> float:
    """Seconds that a job of this rule may wait: as it claims, else as the rule says."""
    claims, _ = read_claims(job)
    claimed = claims.max_delay_s if claims else None
    return rule.max_delay if claimed is None else claimed


def waits_since(job: Job) -> datetime:
    return max(job.submit_time, job.eligible_time or job.submit_time)


def obstacle(job: Job, own_placements: frozenset[str], topology: Topology) -> Obstacle | None:
    """Why Clearway leaves this job to Slurm; None where it does not. When in doubt, it does nothing and says why."""
    reason = job.reason.replace("_", "").replace(" ", "").lower() or "none"
    of = ObstacleCode
    found = (
        (of.HELD, job.priority == 0, "it is held"),
        (of.OTHER_REASON, not reason.startswith(_WAITS_FOR_NODES), f"it does not wait for nodes (reason {job.reason})"),
        (of.ARRAY, job.pending_tasks > 1, "it asks for an array of tasks; only single jobs are planned for"),
        (of.HETEROGENEOUS, job.het_job_id is not None, "it is part of a heterogeneous job"),
        (
            of.GRES,
            job.gpus is None or (bool(job.gres) and not job.gpus),
            f"what it asks of each node cannot be told from {job.gres}; GPUs per node can be planned for",
        ),
        (of.LICENSES, bool(job.licenses), f"it asks for licenses ({job.licenses})"),
        (
            of.REQUIRED_NODES,
            len(job.required_nodes) > job.num_nodes,
            f"it asks for {len(job.required_nodes)} certain nodes, but for fewer in all",
        ),
        (
            of.SWITCHES,
            job.switches > 1,
            f"it asks for nodes under at most {job.switches} leaf switches; only one can be planned for",
        ),
        (
            of.SWITCHES,
            job.switches == 1 and bool(topology.unknown),
            f"it asks for nodes under one leaf switch, and which those are is not known: {topology.unknown}",
        ),
        (
            of.CONSTRAINT,
            any(character in job.features for character in "|[]()*!,:"),
            f"its constraint {job.features!r} is more than names joined by &",
        ),
        (
            of.RESERVATION,
            bool(job.reservation) and job.reservation not in own_placements,
            f"it already asks for the reservation {job.reservation}",
        ),
    )
    return next((Obstacle(code, why) for code, applies, why in found if applies), None)


def imagined_job(nodes: int, partitions: tuple[str, ...], now: datetime, **asked: Any) -> Job:
    """A job that is not submitted; ``asked`` are fields of ``Job``. Without them it asks for any whole nodes."""
    defaults: dict[str, Any] = {"job_id": "what-if", "user": "", "state": JobState.PENDING, "raw_state": "PENDING"}
    defaults |= {"partitions": partitions, "num_nodes": nodes, "submit_time": now, "priority": 1}
    return Job(**(defaults | asked))


def imagined(
    nodes: int, max_delay_s: float, partitions: tuple[str, ...], now: datetime, job: Job | None = None
) -> Preemptor:
    """A preemptor that is not submitted, for questions of the form "what if"; ``job``: as ``imagined_job`` makes it."""
    job = job or imagined_job(nodes, partitions, now)
    deadline = now + timedelta(seconds=max_delay_s)
    return Preemptor(job, "what if", max_delay_s, deadline, obstacle(job, frozenset(), Topology()))


def usual_partition(snapshot: ClusterSnapshot, rules: Sequence[PreemptorRule]) -> str:
    """Where urgent jobs run unless told otherwise: the first partition of a rule, else the largest partition."""
    named = next((name for rule in rules for name in rule.partition), None)
    sizes = Counter(name for node in snapshot.nodes for name in node.partitions)
    return named or max(sizes, key=lambda name: (sizes[name], name), default="")
