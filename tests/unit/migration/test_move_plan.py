"""Plans of moves from snapshots: whatever the cluster, nobody is moved who must not be, and everybody fits."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from clearway.config import Config
from clearway.decision import NoPlan
from clearway.migration.move_plan import could_be_placed, plan_moves
from clearway.model import Choice, ClusterSnapshot, JobState, MoveKind, Plan
from clearway.policy import UnderWay
from tests.builders import NOW, after, job, node

SAVES = "clearway:checkpoint=signal,took=5"
CPUS, MEMORY_MIB = 8, 8_000
CONFIG = Config.model_validate(
    {
        "candidates": {"protected_users": ["vip"]},
        "compaction": {"min_gain": 0},
        "promotion": {"min_gain": 0, "scarce": ["feature=gpu"]},
    }
)


def mostly(usual: object, other: object) -> st.SearchStrategy[Any]:
    return st.sampled_from([usual] * 7 + [other])


@st.composite
def snapshots(draw: st.DrawFn) -> ClusterSnapshot:
    """Up to five nodes and ten jobs of one node or two, none of which holds more than there is."""
    count = draw(st.integers(2, 5))
    names = [f"n{number}" for number in range(1, count + 1)]
    cpus, memory = Counter(dict.fromkeys(names, CPUS)), Counter(dict.fromkeys(names, MEMORY_MIB))
    jobs = []
    for number in range(draw(st.integers(2, 10))):
        on = draw(st.permutations(names))[: draw(st.sampled_from([1, 1, 1, 2]))]
        size, mib = draw(st.integers(1, 4)), draw(st.integers(100, 4_000))
        if any(cpus[name] < size or memory[name] < mib for name in on):
            continue
        for name in on:
            cpus[name] -= size
            memory[name] -= mib
        fields: dict[str, Any] = draw(
            st.fixed_dictionaries(
                {
                    "comment": mostly(SAVES, ""),
                    "user": mostly("alice", "vip"),
                    "time_limit_s": st.sampled_from([4_000, 20_000, 40_000, 90_000, 90_000, None]),
                    "excluded_nodes": mostly((), (names[0],)),
                    "features": mostly("", "gpu"),
                    "state": mostly(JobState.RUNNING, JobState.COMPLETING),
                }
            )
        )
        jobs.append(job(number, on, cpus=size * len(on), memory_mib=mib, **fields))
    nodes = [
        node(
            name,
            cpus=CPUS,
            memory_mib=MEMORY_MIB,
            alloc_cpus=CPUS - cpus[name],
            weight=draw(st.sampled_from([1, 50])),
            features=draw(mostly((), ("gpu",))),
            available=draw(mostly(True, False)),
        )
        for name in names
    ]
    return ClusterSnapshot(NOW, tuple(jobs), tuple(nodes))


def plan(kind: MoveKind, snapshot: ClusterSnapshot, jobs: int = 5) -> Plan | NoPlan:
    return plan_moves(kind, snapshot, CONFIG, NOW, jobs=jobs, actor="x", preempted={}, under_way=UnderWay())


@pytest.mark.parametrize("kind", list(MoveKind))
def test_among_them_are_clusters_with_several_moves(kind: MoveKind) -> None:
    def moves_two(snapshot: ClusterSnapshot) -> bool:
        made = plan(kind, snapshot)
        return isinstance(made, Plan) and len(made.leaving) >= 2

    assert find(snapshots(), moves_two, settings=settings(max_examples=2_000, deadline=None, phases=[Phase.generate]))


@pytest.mark.parametrize("kind", list(MoveKind))
@settings(max_examples=100, deadline=None)
@given(snapshot=snapshots(), limit=st.integers(0, 5))
def test_only_who_may_is_moved_and_everybody_fits(kind: MoveKind, snapshot: ClusterSnapshot, limit: int) -> None:
    made = plan(kind, snapshot, limit)
    jobs, nodes = snapshot.job_by_id, snapshot.node_by_name
    told = Counter(verdict.job_id for verdict in made.verdicts)
    assert all(count == 1 for count in told.values())
    if isinstance(made, NoPlan):
        assert all(verdict.choice is not Choice.CHOSEN for verdict in made.verdicts)
        return
    assert made.drain is not None
    order = made.drain.move
    assert order is not None
    assert 0 < len(order.moves) <= limit
    assert order.gain_node_s > 2.0 * order.cost_node_s > 0
    assert {move.job_id for move in order.moves} == {v.job_id for v in made.verdicts if v.choice is Choice.CHOSEN}
    cpus = {name: each.alloc_cpus for name, each in nodes.items()}
    memory = {name: sum(j.memory_mib for j in snapshot.jobs_on.get(name, ())) for name in nodes}
    for move in order.moves:
        moved = jobs[move.job_id]
        assert moved.nodes == (move.source,)
        assert moved.state is JobState.RUNNING
        assert moved.user != "vip"
        assert moved.comment == SAVES
        assert moved.time_limit_s is not None
        assert move.target not in moved.excluded_nodes
        assert nodes[move.target].available
        assert nodes[move.source].available
        assert set(filter(None, [moved.features])) <= set(nodes[move.target].features)
        # What moved jobs leave is counted on by nobody: they may still be there.
        cpus[move.target] += moved.cpus
        memory[move.target] += moved.memory_mib
        assert cpus[move.target] <= CPUS
        assert memory[move.target] <= MEMORY_MIB
    leaving = {move.job_id for move in order.moves}
    for name in made.drain.nodes:
        assert {each.job_id for each in snapshot.jobs_on[name]} <= leaving
        assert name not in order.target_of.values()
    if kind is MoveKind.COMPACTION:
        assert set(made.drain.nodes) == {move.source for move in order.moves}
        assert all(snapshot.jobs_on.get(move.target) for move in order.moves)
    else:
        assert made.drain.nodes == ()


def test_a_waiting_job_counts_when_there_is_room_for_it_now() -> None:
    nodes = (node("n1", cpus=CPUS, alloc_cpus=6), node("n2", cpus=CPUS, alloc_cpus=4))

    def waits(**fields: Any) -> bool:
        job_fields = {"cpus": 2, "memory_mib": 100, "reason": "Priority"} | fields
        waiting = job("9", 1, JobState.PENDING, **job_fields)
        return could_be_placed(ClusterSnapshot(NOW, (waiting,), nodes), NOW) is not None

    assert waits()
    assert waits(cpus=4)
    assert not waits(cpus=5)
    assert waits(num_nodes=2, cpus=4)
    assert not waits(num_nodes=2, cpus=6)
    assert not waits(cpus=1, cpus_per_node=5)
    assert not waits(partitions=("other",))
    assert not waits(priority=0)
    assert not waits(eligible_time=after(60))
    assert not waits(reason="Dependency")
