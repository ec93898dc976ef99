"""Whose turn it is: rules that hold whatever the nodes and turns are."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from clearway.drain.rolling import (
    is_away,
    left_out,
    mark_started,
    next_nodes,
    not_begun,
    progressed,
    standstill_s,
    update,
)
from clearway.model.cluster import ClusterSnapshot, Node
from clearway.model.orders import DrainOrder, RollingDrain, Turn, TurnState
from tests.builders import NOW, after

T = TurnState
FIRST_DRAIN, OTHER_DRAIN = 7, 8
REASONS = ("", "bad disk", f"clearway drain {FIRST_DRAIN}", f"clearway drain {OTHER_DRAIN}: new kernel")


def node(name: str, reason: str) -> Node:
    state = "IDLE+DRAIN" if reason else "IDLE"
    return Node(
        name=name, available=not reason, raw_state=state, cpus=4, memory_mib=8, partitions=("all",), reason=reason
    )


@st.composite
def situations(draw: st.DrawFn) -> tuple[RollingDrain, frozenset[str], ClusterSnapshot]:
    names = [f"n{number}" for number in range(draw(st.integers(1, 8)))]
    turns = []
    for name in names:
        state = draw(st.sampled_from(T))
        drain_id = 0 if state is T.WAITING and draw(st.booleans()) else FIRST_DRAIN
        turns.append(Turn(name, state, drain_id, draw(st.booleans())))
    nodes = [node(name, draw(st.sampled_from(REASONS))) for name in names if draw(st.integers(0, 9))]
    order = DrainOrder(nodes=tuple(names), actor="root")
    rolling = RollingDrain(
        rolling_id=1, order=order, at_once=draw(st.integers(1, 4)), turns=tuple(turns), created_at=NOW
    )
    busy = draw(st.frozensets(st.sampled_from(names)))
    return rolling, busy, ClusterSnapshot(taken_at=NOW, jobs=(), nodes=tuple(nodes))


@given(situations())
def test_what_is_begun_never_takes_more_away_than_asked_for(
    situation: tuple[RollingDrain, frozenset[str], ClusterSnapshot],
) -> None:
    rolling, busy, snapshot = situation
    away = {turn.node for turn in rolling.turns if is_away(turn, snapshot)}
    names = next_nodes(rolling, busy, snapshot)
    by_name = {turn.node: turn for turn in rolling.turns}
    waiting = [t.node for t in rolling.turns if t.state is T.WAITING and t.node not in busy and t.node not in away]
    assert not names or len(away) + len(names) <= rolling.at_once
    assert set(names) <= set(waiting)
    assert len(names) == 1 or not any(by_name[name].alone for name in names)
    assert bool(names) == bool(waiting and len(away) < rolling.at_once)
    after = mark_started(rolling, names, OTHER_DRAIN)
    assert set(after.nodes(T.EMPTYING)) == set(rolling.nodes(T.EMPTYING)) | set(names)


@given(situations())
def test_a_drain_that_is_refused_is_tried_once_more_for_each_node_alone(
    situation: tuple[RollingDrain, frozenset[str], ClusterSnapshot],
) -> None:
    rolling, busy, snapshot = situation
    waiting = len(rolling.nodes(T.WAITING))
    for _ in range(2 * waiting):
        names = next_nodes(rolling, busy, snapshot)
        rolling = not_begun(rolling, names, "no") if names else rolling
    assert not next_nodes(rolling, busy, snapshot)  # it comes to an end


@given(situations())
def test_a_turn_that_is_over_stays_so(situation: tuple[RollingDrain, frozenset[str], ClusterSnapshot]) -> None:
    rolling, _, snapshot = situation
    ended = set(rolling.nodes(T.OVER, T.SKIPPED))
    seen = update(rolling, {}, snapshot)
    assert ended <= set(seen.nodes(T.OVER, T.SKIPPED))
    assert not seen.nodes(T.EMPTYING)  # their drain is not known any more
    assert update(seen, {}, snapshot) is seen
    in_service = {each.name for each in snapshot.nodes if each.available}
    assert not set(seen.nodes(T.AWAY)) & in_service
    stopped = left_out(seen, seen.order.nodes, "stopped")
    assert set(stopped.nodes(T.AWAY)) == set(seen.nodes(T.AWAY))
    assert not stopped.nodes(T.WAITING, T.EMPTYING)
    assert replace(stopped, turns=seen.turns) == seen


def test_an_order_stands_still_from_when_it_could_begin_or_got_on() -> None:
    order = DrainOrder(nodes=("n1", "n2"), actor="root")
    rolling = RollingDrain(rolling_id=1, order=order, at_once=1, turns=(Turn("n1"), Turn("n2")), created_at=NOW)
    assert standstill_s(rolling, after(50)) == 50
    later = replace(rolling, order=replace(order, begin_at=after(100)))
    assert [standstill_s(later, after(seconds)) for seconds in (50, 100, 130)] == [0, 0, 30]
    noted = replace(rolling, turns=(Turn("n1", note="why"), Turn("n2")))
    assert progressed(rolling, noted, after(60)) == noted  # still waiting
    got_on = progressed(later, mark_started(later, ["n1"], FIRST_DRAIN), after(140))
    assert got_on.progressed_at == after(140)
    assert standstill_s(got_on, after(150)) == 10
