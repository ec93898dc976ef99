"""Who is a preemptor, and by when it must run. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from functools import lru_cache

from clearway.claims import ClaimError, Claims, parse_claims
from clearway.config import PreemptorRule
from clearway.model import ClusterSnapshot, Job, JobState, Topology, called

# Slurm's reasons for "it waits for nodes"; any other (held, dependency, limits, begin time) is not ours to solve.
_WAITS_FOR_NODES = ("none", "priority", "resources", "reqnodenotavail", "nodesrequired", "reservation")


@dataclass(frozen=True, slots=True)
class Preemptor:
    """A waiting job that room is made for. ``obstacle`` says in one sentence why no plan can be made, if none can."""

    job: Job
    rule: str
    max_delay_s: float
    deadline: datetime
    obstacle: str = ""
    ordinary: bool = False  # an ordinary job, for which eternal jobs make room (see clearway.eternal)
    others_stay: str = ""  # why no job leaves for it but eternal ones; empty: any may
    takes_free: bool = True  # whether it may count on idle nodes; not while somebody before it waits for them

    @property
    def called(self) -> str:
        """What messages call it."""
        return called(ordinary=self.ordinary)


def read_claims(job: Job) -> tuple[Claims | None, str]:
    """A job's claims and, where its Comment cannot be read, the error; unreadable claims count as none."""
    return _read(job.comment)


@lru_cache(maxsize=16_384)
def _read(comment: str) -> tuple[Claims | None, str]:
    """Asked several times a cycle for every job, whose Comment seldom changes."""
    try:
        return parse_claims(comment), ""
    except ClaimError as error:
        return None, str(error)


def matching_rule(job: Job, rules: Sequence[PreemptorRule]) -> PreemptorRule | None:
    """The first rule that makes this job a preemptor."""
    claims, _ = read_claims(job)
    for rule in rules:
        if (
            (not rule.partition or set(job.partitions) & set(rule.partition))
            and (not rule.qos or job.qos in rule.qos)
            and (not rule.account or job.account in rule.account)
            and (not rule.user or job.user in rule.user)
            and (not rule.job_name or any(fnmatchcase(job.name, pattern) for pattern in rule.job_name))
            and (not rule.comment or (claims is not None and claims.max_delay_s is not None))
        ):
            return rule
    return None


def preemptors(
    snapshot: ClusterSnapshot, rules: Sequence[PreemptorRule], own_placements: frozenset[str] = frozenset()
) -> tuple[Preemptor, ...]:
    """The pending jobs that some rule makes preemptors, most pressing first.

    ``own_placements`` are the names of reservations that Clearway itself attached jobs to.
    """
    found = []
    for job in snapshot.jobs:
        rule = matching_rule(job, rules) if job.state is JobState.PENDING else None
        if rule is None:
            continue
        claims, _ = read_claims(job)
        claimed = claims.max_delay_s if claims else None
        max_delay_s = rule.max_delay if claimed is None else claimed
        waits_since = max(job.submit_time, job.eligible_time or job.submit_time)
        found.append(
            Preemptor(
                job=job,
                rule=rule.name or f"rule {rules.index(rule) + 1}",
                max_delay_s=max_delay_s,
                deadline=waits_since + timedelta(seconds=max_delay_s),
                obstacle=obstacle(job, own_placements, snapshot.topology),
            )
        )
    return tuple(sorted(found, key=lambda preemptor: (preemptor.deadline, preemptor.job.job_id)))


def obstacle(job: Job, own_placements: frozenset[str], topology: Topology) -> str:
    """Why Clearway must leave this job to Slurm: on doubt it does nothing, and says so."""
    reason = job.reason.replace("_", "").replace(" ", "").lower() or "none"
    if job.priority == 0:
        return "it is held"
    if not reason.startswith(_WAITS_FOR_NODES):
        return f"it does not wait for nodes (reason {job.reason})"
    unsupported = {
        "it asks for an array of tasks; only single jobs are planned for": job.pending_tasks > 1,
        "it is part of a heterogeneous job": job.het_job_id is not None,
        f"what it asks of each node cannot be told from {job.gres}; GPUs per node can be planned for": (
            job.gpus is None or (bool(job.gres) and not job.gpus)
        ),
        f"it asks for licenses ({job.licenses})": bool(job.licenses),
        f"it asks for {len(job.required_nodes)} certain nodes, but for fewer in all": len(job.required_nodes)
        > job.num_nodes,
        f"it asks for nodes under at most {job.switches} leaf switches; only one can be planned for": job.switches > 1,
        f"it asks for nodes under one leaf switch, and which those are is not known: {topology.unknown}": (
            job.switches == 1 and bool(topology.unknown)
        ),
        f"its constraint {job.features!r} is more than names joined by &": _complex(job.features),
        f"it already asks for the reservation {job.reservation}": bool(job.reservation)
        and job.reservation not in own_placements,
    }
    return next((why for why, applies in unsupported.items() if applies), "")


def _complex(features: str) -> bool:
    return any(character in features for character in "|[]()*!,:")


def wanted_features(job: Job) -> frozenset[str]:
    """The node features that a job without a complex constraint asks for."""
    return frozenset(part for part in job.features.split("&") if part)


def imagined(nodes: int, max_delay_s: float, partition: str, now: datetime) -> Preemptor:
    """A preemptor that nobody has submitted, for questions of the form "what if"."""
    job = Job(
        job_id="what-if",
        user="",
        state=JobState.PENDING,
        raw_state="PENDING",
        partitions=(partition,),
        num_nodes=nodes,
        submit_time=now,
    )
    return Preemptor(job, "what if", max_delay_s, now + timedelta(seconds=max_delay_s))


def usual_partition(snapshot: ClusterSnapshot, rules: Sequence[PreemptorRule]) -> str:
    """Where urgent jobs run when nobody says so: the first partition of a rule, else the largest one."""
    named = next((name for rule in rules for name in rule.partition), None)
    sizes = Counter(name for node in snapshot.nodes for name in node.partitions)
    return named or max(sizes, key=lambda name: (sizes[name], name), default="")
