"""Licenses that jobs hold and ask for, as pools of the eviction problem. Pure.

A license is held by a job, not by nodes. What an urgent job asks for is a pool beside its nodes
(``NodeResources.pool``) that must be freed as a required node must: jobs that hold the license give it back when they
leave, wherever they run.
What no known job holds (used outside of Slurm, reserved, or promised to another urgent job) is never given back.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from clearway.eligibility.under_way import UnderWay
from clearway.model.cluster import ClusterSnapshot, Job, JobState
from clearway.model.problem import Amounts, NodeResources

PREFIX = "license "
_ITEM = re.compile(r"([A-Za-z0-9_.+-]+(?:@[A-Za-z0-9_.+-]+)?)(?:[:=*](\d{1,9}))?", re.ASCII)


def licenses_of(text: str) -> Mapping[str, int] | None:
    """``matlab:2,abaqus`` as numbers by name; None for anything else, as one of several licenses."""
    found: Counter[str] = Counter()
    for item in filter(None, text.split(",")):
        read = _ITEM.fullmatch(item.strip())
        if read is None:
            return None
        found[read[1]] += int(read[2] or 1)
    return {name: count for name, count in found.items() if count}


def held_by(job: Job) -> Mapping[str, int]:
    """What a job holds; nothing where that cannot be told. Suspended jobs keep theirs."""
    return (licenses_of(job.licenses) or {}) if job.licenses and job.state.holds_nodes else {}


def pools(
    job: Job, snapshot: ClusterSnapshot, under_way: UnderWay, gone: Collection[str], may_leave: Collection[str]
) -> tuple[list[NodeResources], dict[str, dict[str, Amounts]]]:
    """The pools of a waiting job's licenses, and what each job that may leave holds of them; ``gone`` leave anyway."""
    found: list[NodeResources] = []
    holds: dict[str, dict[str, Amounts]] = {}
    asked = licenses_of(job.licenses) or {}
    promised = _promised(snapshot, under_way)
    for name, count in sorted(asked.items()):
        license_ = snapshot.licenses.get(name)
        pool = f"{PREFIX}{name}"
        if license_ is None:
            found.append(NodeResources(pool, Amounts(), pool=Amounts(count)))
            continue
        ours = count if job.reservation else 0  # its own placement holds them for it
        fixed = license_.used + max(0, license_.reserved - ours) + promised[name]
        for each in snapshot.jobs:
            held = held_by(each).get(name, 0)
            if held and each.job_id in gone:
                fixed -= held
            elif held and each.job_id in may_leave:
                fixed -= held
                holds.setdefault(each.job_id, {})[pool] = Amounts(held)
        found.append(NodeResources(pool, Amounts(license_.total), held=Amounts(max(0, fixed)), pool=Amounts(count)))
    return found, holds


def _promised(snapshot: ClusterSnapshot, under_way: UnderWay) -> Counter[str]:
    """What urgent jobs of other evictions wait for whose placements do not hold it yet."""
    found: Counter[str] = Counter()
    for each in under_way.evictions:
        preemptor = getattr(each.plan, "preemptor", None)
        now = snapshot.job_by_id.get(preemptor.job_id) if preemptor is not None else None
        if now is not None and now.state is JobState.PENDING and not now.reservation:
            found.update(licenses_of(now.licenses) or {})
    return found


def asks_for_any(jobs: Iterable[Job]) -> bool:
    """Whether a waiting job asks for licenses: only then they are read."""
    return any(job.licenses and job.state is JobState.PENDING for job in jobs)
