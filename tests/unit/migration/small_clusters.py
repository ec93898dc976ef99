"""Small clusters with jobs on them, and what moves mean for them, reckoned anew from the definitions."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hypothesis import strategies as st

from clearway.model.orders import JobMove
from clearway.relocation.moves import Host, Limits, MovePlan, Part, Resident

Cluster = tuple[tuple[Host, ...], tuple[Resident, ...]]


def cluster(seed: int, nodes: int, jobs: int) -> Cluster:
    """Nodes of 2 to 8 processors that hold no more than they have; most jobs can be moved."""
    rng = random.Random(seed)
    hosts = tuple(
        Host(f"n{number}", rng.randint(2, 8), rank=rng.randint(0, 2), scarce=rng.random() < 0.3)
        for number in range(rng.randint(1, nodes))
    )
    free = {host.name: host.processors for host in hosts}
    names = sorted(free)
    residents = []
    for number in range(rng.randint(0, jobs)):
        wanted = rng.sample(names, min(len(names), rng.choice([1, 1, 1, 2, 3])))
        parts = tuple(Part(name, rng.randint(1, min(4, free[name]))) for name in wanted if free[name])
        for part in parts:
            free[part.node] -= part.processors
        if parts:
            residents.append(
                Resident(
                    job_id=str(number),
                    parts=parts,
                    remaining_s=None if rng.random() < 0.05 else rng.randint(0, 5_000),
                    move_s=None if rng.random() < 0.05 else rng.randint(1, 300),
                    may_use=frozenset(rng.sample(names, rng.randint(0, len(names)))) if rng.random() < 0.15 else None,
                    needs_scarce=rng.random() < 0.3,
                )
            )
    return hosts, tuple(residents)


def clusters(*, nodes: int = 6, jobs: int = 10) -> st.SearchStrategy[Cluster]:
    return st.integers(0, 2**32).map(lambda seed: cluster(seed, nodes, jobs))


def crowd(seed: int) -> Cluster:
    """One node with several small jobs, and nodes half full that none leaves: where who goes matters most."""
    rng = random.Random(seed)
    count = rng.randint(3, 4)
    hosts = tuple(Host(f"n{number}", 8) for number in range(count + 1))
    small = [
        Resident(str(number), (Part("n0", rng.choice([1, 1, 2])),), rng.randint(100, 1_000), rng.randint(1, 3))
        for number in range(rng.randint(3, 4))
    ]
    stay = [
        Resident(f"1{number}", (Part(f"n{number}", rng.randint(4, 6)),), rng.randint(100, 1_000), None)
        for number in range(1, count + 1)
    ]
    return hosts, (*small, *stay)


def crowds() -> st.SearchStrategy[Cluster]:
    return st.integers(0, 2**32).map(crowd)


limits = st.builds(Limits, jobs=st.integers(0, 4) | st.just(100), worth=st.sampled_from([1.0, 1.0, 2.5]))


def moved(residents: Iterable[Resident], moves: Sequence[JobMove]) -> tuple[Resident, ...]:
    """Everybody where they are in the end; fails when a move is of a part that is not there."""
    by_id = {resident.job_id: resident for resident in residents}
    for move in moves:
        job = by_id[move.job_id]
        old, new = Part(move.source, move.processors), Part(move.target, move.processors)
        assert old in job.parts
        by_id[move.job_id] = replace(job, parts=tuple(new if part == old else part for part in job.parts))
    return tuple(by_id.values())


def used(hosts: Iterable[Host], residents: Iterable[Resident]) -> dict[str, int]:
    found = {host.name: 0 for host in hosts}
    for resident in residents:
        for part in resident.parts:
            found[part.node] += part.processors
    return found


def partly_used(hosts: Iterable[Host], residents: Iterable[Resident]) -> set[str]:
    held = used(hosts, residents)
    return {host.name for host in hosts if 0 < held[host.name] < host.processors}


def assert_nobody_is_lost(cluster: Cluster, plan: MovePlan, most: Limits) -> None:
    """Also while they are on their way, when jobs hold the old place and the new one."""
    hosts, residents = cluster
    after = moved(residents, plan.moves)
    for old, new in zip(residents, after, strict=True):
        assert sorted(part.processors for part in old.parts) == sorted(part.processors for part in new.parts)
        assert len(new.nodes) == len(new.parts)
        arrived = new.nodes - old.nodes
        if arrived:
            assert old.remaining_s is not None
            assert old.move_s is not None
            assert old.may_use is None or arrived <= old.may_use
    coming = used(hosts, residents)
    for move in plan.moves:
        coming[move.target] += move.processors
    assert all(coming[host.name] <= host.processors for host in hosts)
    assert len(plan.job_ids) <= most.jobs
    held = used(hosts, after)
    assert all(held[name] == 0 for name in plan.emptied)


def cost_node_s(cluster: Cluster, job_ids: Iterable[str]) -> float:
    hosts, residents = cluster
    processors = {host.name: host.processors for host in hosts}
    chosen = [resident for resident in residents if resident.job_id in set(job_ids)]
    return sum(part.processors / processors[part.node] * (job.move_s or 0) for job in chosen for part in job.parts)


def held_node_s(cluster: Cluster, moves: Sequence[JobMove] = ()) -> dict[str, float]:
    """For how long each node is held from now on, if no other job comes; infinite where that is not known."""
    hosts, residents = cluster
    going = list(dict.fromkeys(move.job_id for move in moves))
    by_id = {resident.job_id: resident for resident in residents}
    saved_s, passed_s = {}, 0.0
    for job_id in going:
        passed_s += by_id[job_id].move_s or 0
        saved_s[job_id] = passed_s
    found = {host.name: 0.0 for host in hosts}
    for resident in moved(residents, moves):
        left_s = math.inf if resident.remaining_s is None else resident.remaining_s
        if resident.job_id in saved_s:
            left_s += resident.move_s or 0
        for name in resident.nodes:
            found[name] = max(found[name], left_s)
    for move in moves:
        found[move.source] = max(found[move.source], saved_s[move.job_id])
    return found
