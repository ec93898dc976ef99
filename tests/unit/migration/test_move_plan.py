"""Plans of moves from snapshots: whatever the cluster, nobody is moved who must not be, and everybody fits."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from clearway.config.configuration import Config
from clearway.eligibility.context import PlanningContext
from clearway.model.cluster import ClusterSnapshot, Job, JobState
from clearway.model.orders import MoveKind
from clearway.model.plan import Choice, NoPlan, RelocationPlan
from clearway.relocation.plan import could_be_placed, parts_of, plan_moves
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
        jobs.append(job(number, on, cpus=size * len(on), memory_mib=mib, exclusive=False, **fields))
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


def plan(kind: MoveKind, snapshot: ClusterSnapshot, jobs: int = 5) -> RelocationPlan | NoPlan:
    return plan_moves(kind, PlanningContext(snapshot=snapshot, config=CONFIG, now=NOW), jobs=jobs, actor="x")


@pytest.mark.parametrize("kind", list(MoveKind))
@pytest.mark.parametrize("several", ["jobs", "nodes"])
def test_among_them_are_clusters_with_several_moves_and_with_jobs_of_several_nodes(
    kind: MoveKind, several: str
) -> None:
    def wanted(snapshot: ClusterSnapshot) -> bool:
        made = plan(kind, snapshot)
        if not isinstance(made, RelocationPlan):
            return False
        return len(made.leaving) >= 2 if several == "jobs" else any(len(each.nodes) > 1 for each in made.leaving)

    assert find(snapshots(), wanted, settings=settings(max_examples=5_000, deadline=None, phases=[Phase.generate]))


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
    order = made.order
    assert 0 < len(order.job_ids) <= limit
    assert order.gain_node_s > 2.0 * order.cost_node_s > 0
    assert {move.job_id for move in order.moves} == {v.job_id for v in made.verdicts if v.choice is Choice.CHOSEN}
    cpus = {name: each.alloc_cpus for name, each in nodes.items()}
    memory = {name: sum(j.memory_mib for j in snapshot.jobs_on.get(name, ())) for name in nodes}
    for move in order.moves:
        moved = jobs[move.job_id]
        assert move.source in moved.nodes
        assert move.processors * len(moved.nodes) == moved.cpus
        assert move.target not in moved.nodes
        assert all(nodes[name].available for name in moved.nodes)
        assert moved.state is JobState.RUNNING
        assert moved.user != "vip"
        assert moved.comment == SAVES
        assert moved.time_limit_s is not None
        assert move.target not in moved.excluded_nodes
        assert nodes[move.target].available
        assert nodes[move.source].available
        assert set(filter(None, [moved.features])) <= set(nodes[move.target].features)
        # What moved jobs leave is counted on by nobody: they may still be there.
        cpus[move.target] += move.processors
        memory[move.target] += moved.memory_mib
        assert cpus[move.target] <= CPUS
        assert memory[move.target] <= MEMORY_MIB
    leaving = {move.job_id for move in order.moves}
    for name in order.nodes:
        assert {each.job_id for each in snapshot.jobs_on[name]} <= leaving
        assert all(name not in order.nodes_after(jobs[job_id]) for job_id in leaving)
    assert all(len(order.nodes_after(jobs[job_id])) == len(jobs[job_id].nodes) for job_id in leaving)
    if kind is MoveKind.COMPACTION:
        assert set(order.nodes) == {move.source for move in order.moves}
        assert all(snapshot.jobs_on.get(move.target) for move in order.moves)
    else:
        assert order.nodes == ()


WIDE = job(1, ("n1", "n2"), cpus=4, memory_mib=100, exclusive=False, comment=SAVES, time_limit_s=40_000)


def two_nodes(*others: Job, alloc: tuple[int, int], wide: Job = WIDE, available: bool = True) -> ClusterSnapshot:
    """The job of two nodes, and a third node with room beside a job that stays."""
    stays = job(2, ("n3",), cpus=4, memory_mib=100, exclusive=False, time_limit_s=90_000)
    fields: dict[str, Any] = {"cpus": CPUS, "memory_mib": MEMORY_MIB}
    nodes = (
        node("n1", alloc_cpus=alloc[0], **fields),
        node("n2", alloc_cpus=alloc[1], available=available, **fields),
        node("n3", alloc_cpus=4, **fields),
    )
    return ClusterSnapshot(NOW, (wide, stays, *others), nodes)


def single(number: int, name: str, cpus: int) -> Job:
    return job(number, (name,), cpus=cpus, memory_mib=100, exclusive=False)


@pytest.mark.parametrize(
    ("snapshot", "parts"),
    [
        (two_nodes(alloc=(2, 2)), [("n1", 2), ("n2", 2)]),
        (two_nodes(single(3, "n2", 3), alloc=(2, 5)), [("n1", 2), ("n2", 2)]),
        (two_nodes(alloc=(3, 1)), [("n1", 3), ("n2", 1)]),  # not evenly
        (two_nodes(single(3, "n2", 3), alloc=(2, 4)), []),  # node and job records do not agree
        (two_nodes(replace(WIDE, job_id="3"), alloc=(4, 4)), []),  # both may be uneven, and hide it
        (two_nodes(wide=replace(WIDE, cpus=5), alloc=(3, 2)), [("n1", 3), ("n2", 2)]),
        (two_nodes(single(3, "n2", 4), alloc=(4, 4)), []),  # it would hold nothing on n2
        (two_nodes(replace(single(3, "n2", 1), state=JobState.SUSPENDED), alloc=(3, 2)), []),
        (two_nodes(wide=replace(WIDE, nodes=("n1", "gone")), alloc=(2, 0)), []),
    ],
)
def test_parts_of_a_job_of_several_nodes(snapshot: ClusterSnapshot, parts: list[tuple[str, int]]) -> None:
    assert [(part.node, part.processors) for part in parts_of(snapshot.jobs[0], snapshot)] == parts


def test_a_job_of_two_nodes_leaves_one_of_them() -> None:
    snapshot = two_nodes(single(3, "n2", 3), alloc=(2, 5))
    made = plan(MoveKind.COMPACTION, snapshot)
    assert isinstance(made, RelocationPlan)
    order = made.order
    assert [(m.job_id, m.source, m.target, m.processors) for m in order.moves] == [("1", "n1", "n3", 2)]
    assert order.nodes_after(WIDE) == ("n2", "n3")
    assert (order.nodes, made.placement_nodes) == (("n1",), ("n1", "n2", "n3"))
    # All of it stands still, two halves of a quarter of a node each, though one part alone moves.
    (action,) = made.chosen.actions
    assert order.cost_node_s == pytest.approx(0.5 * (action.checkpoint_s + CONFIG.execution.kill_allowance), rel=0.1)


@pytest.mark.parametrize(("memory_mib", "moves"), [(100, [("1", "n1", "n3", 3)]), (2_000, [])])
def test_the_larger_part_of_a_job_moves_where_its_memory_fits_too(memory_mib: int, moves: list[object]) -> None:
    """Of 2 x 2,000 MiB three quarters may be on one node, and the third node has not as much."""
    wide = replace(WIDE, memory_mib=memory_mib)
    snapshot = two_nodes(single(3, "n2", 3), alloc=(3, 4), wide=wide)
    third = replace(snapshot.nodes[2], memory_mib=3_000)
    made = plan(MoveKind.COMPACTION, replace(snapshot, nodes=(*snapshot.nodes[:2], third)))
    order = made.order if isinstance(made, RelocationPlan) else None
    assert [(m.job_id, m.source, m.target, m.processors) for m in (order.moves if order else ())] == moves


@pytest.mark.parametrize(
    ("snapshot", "why"),
    [
        (two_nodes(alloc=(3, 2)), "what it holds on each is not known"),
        (two_nodes(wide=replace(WIDE, contiguous=True), alloc=(2, 2)), "have to lie together"),
        (two_nodes(wide=replace(WIDE, switches=1), alloc=(2, 2)), "have to lie together"),
        (two_nodes(alloc=(2, 2), available=False), "could not start there again"),
    ],
)
@pytest.mark.parametrize("kind", list(MoveKind))
def test_a_job_of_several_nodes_stays_where_something_is_not_known(
    kind: MoveKind, snapshot: ClusterSnapshot, why: str
) -> None:
    made = plan(kind, snapshot)
    assert isinstance(made, NoPlan)
    (verdict,) = [each for each in made.verdicts if each.job_id == "1"]
    assert verdict.code == "several_nodes"
    assert why in verdict.reason


def test_who_wants_whole_nodes_joins_nobody() -> None:
    shares = job(1, ("n1",), cpus=2, memory_mib=100, comment=SAVES, time_limit_s=40_000, exclusive=False)
    stays = job(2, ("n2",), cpus=4, memory_mib=100, time_limit_s=90_000, exclusive=False)
    nodes = tuple(node(f"n{n}", cpus=CPUS, memory_mib=MEMORY_MIB, alloc_cpus=2 * n) for n in (1, 2))
    assert isinstance(plan(MoveKind.COMPACTION, ClusterSnapshot(NOW, (shares, stays), nodes)), RelocationPlan)
    alone = replace(shares, exclusive=True)
    assert isinstance(plan(MoveKind.COMPACTION, ClusterSnapshot(NOW, (alone, stays), nodes)), NoPlan)


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
