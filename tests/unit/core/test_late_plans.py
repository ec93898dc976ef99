"""Where no plan is in time: the soonest one, as late as the rule allows; and kills that lose little."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearway.config.configuration import Config, PreemptorRule
from clearway.eligibility.context import PlanningContext
from clearway.model.cluster import ClusterSnapshot, Job
from clearway.model.plan import NoPlan, Plan, Preemptor
from clearway.model.problem import Action
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.preemption.detection import preemptor_of
from clearway.preemption.plan import decide
from tests.builders import NOW, after, job, node, snapshot, urgent_job

LATE = "planned for the soonest moment possible, because no plan keeps the deadline"
NO_KILL = {"allow_kill": False, "min_runtime": 0}


def decided(
    seen: ClusterSnapshot,
    *,
    max_delay_s: float = 60,
    max_late_s: float = 0,
    max_kill_loss_s: float | None = None,
    of: Job | None = None,
    candidates: dict[str, Any] | None = None,
    components: tuple[str, ...] = (),
    steps: int = 60,
) -> Plan | NoPlan:
    config = Config.model_validate(
        {
            "preemptors": [{"qos": ["urgent"]}],
            "candidates": candidates or NO_KILL,
            "execution": {"kill_allowance": 10},
            "planning": {"steps": steps},
        }
    )
    preemptor = Preemptor(
        of or urgent_job(nodes=1),
        "instrument",
        max_delay_s,
        after(max_delay_s),
        components=components,
        max_late_s=max_late_s,
        max_kill_loss_s=max_kill_loss_s,
    )
    return decide(preemptor, PlanningContext(snapshot=seen, config=config, now=NOW), EvictionDP())


def saver(job_id: str, took_s: int, nodes: int = 1, **fields: Any) -> Job:
    return job(job_id, nodes, comment=f"clearway:checkpoint=signal,took={took_s}", **fields)


def leaving(plan: Plan | NoPlan) -> dict[str, Action]:
    assert isinstance(plan, Plan), plan
    return {each.job_id: each.action for each in plan.chosen.actions}


def test_without_a_limit_of_lateness_a_job_that_cannot_be_served_in_time_is_left_to_slurm() -> None:
    found = decided(snapshot([saver("1", 300), saver("2", 500)]))
    assert isinstance(found, NoPlan)
    assert "not enough within 50s" in found.why


def test_nodes_are_freed_as_soon_as_can_be() -> None:
    plan = decided(snapshot([saver("1", 300), saver("2", 500)]), max_late_s=3_600)
    assert leaving(plan) == {"1": Action.APP_CHECKPOINT}
    assert isinstance(plan, Plan)
    assert plan.note == LATE
    saved_s = 302  # and two seconds for the signal
    step_s = plan.problem.step_s
    assert saved_s <= plan.chosen.max_delay_s < saved_s + step_s
    assert plan.problem.max_delay_s == plan.chosen.max_delay_s == plan.curve.points[-1].max_delay_s
    assert plan.deadline == after(60), "it counts as missed"
    assert plan.due == after(plan.chosen.max_delay_s)


def test_a_plan_in_time_is_the_same_whatever_the_lateness() -> None:
    seen = snapshot([saver("1", 30), saver("2", 500)])
    made, late = decided(seen), decided(seen, max_late_s=3_600)
    assert isinstance(made, Plan)
    assert isinstance(late, Plan)
    assert replace(late, ask=made.ask) == made
    assert leaving(decided(seen)) == {"1": Action.APP_CHECKPOINT}


def test_later_than_allowed_is_no_plan() -> None:
    seen = snapshot([saver("1", 300), saver("2", 500)])
    found = decided(seen, max_late_s=200)
    assert isinstance(found, NoPlan)
    assert "within 4m10s" in found.why  # the 260 s less what Slurm needs
    assert isinstance(decided(seen, max_late_s=260), Plan)


def test_a_deadline_that_has_passed_counts_from_now() -> None:
    found = decided(snapshot([saver("1", 300)]), max_delay_s=-50, max_late_s=400)
    assert isinstance(found, Plan)
    assert after(300) < found.due <= after(390)


def test_components_that_start_together_are_never_late() -> None:
    assert isinstance(decided(snapshot([saver("1", 300)]), max_late_s=3_600, components=("900", "901")), NoPlan)


def test_of_several_partitions_the_one_that_is_free_soonest() -> None:
    slow, quick = saver("1", 300, partitions=("a",)), saver("2", 100, partitions=("b",))
    nodes = [
        node(each.nodes[0], partitions=each.partitions, raw_state="ALLOCATED", alloc_cpus=node().cpus)
        for each in (slow, quick)
    ]
    urgent = urgent_job(nodes=1, partitions=("a", "b"))
    assert leaving(decided(snapshot([slow, quick], nodes), of=urgent, max_late_s=3_600)) == {"2": Action.APP_CHECKPOINT}


def test_the_rule_says_how_late_and_what_a_kill_may_lose() -> None:
    rules = [PreemptorRule(qos=("urgent",), max_delay=60, max_late=900, max_kill_loss=30)]
    found = preemptor_of(urgent_job(), rules, frozenset(), snapshot())
    assert found is not None
    assert (found.max_late_s, found.max_kill_loss_s, found.late_until) == (900, 30, None)


@settings(max_examples=60, deadline=None)
@given(
    took_s=st.lists(st.integers(61, 400), min_size=1, max_size=5),
    nodes=st.lists(st.integers(1, 3), min_size=5, max_size=5),
    asked=st.integers(1, 4),
)
def test_no_shorter_delay_would_have_had_a_plan(took_s: list[int], nodes: list[int], asked: int) -> None:
    seen = snapshot([saver(str(n + 1), s, nodes[n]) for n, s in enumerate(took_s)])
    urgent = urgent_job(nodes=asked)
    late = decided(seen, of=urgent, max_late_s=2_350, steps=2_400)  # one second a step

    def in_time(max_delay_s: int) -> bool:
        return isinstance(decided(seen, of=urgent, max_delay_s=max_delay_s, steps=2_400), Plan)

    if isinstance(late, NoPlan):
        assert not in_time(2_410)
        return
    soonest_s = late.chosen.max_delay_s + 10  # what Slurm needs
    assert in_time(soonest_s)
    assert not in_time(soonest_s - 1)


@pytest.mark.parametrize(("limit_s", "action"), [(None, Action.KILL), (600, Action.KILL), (599, None), (0, None)])
def test_a_job_is_requeued_without_a_checkpoint_only_where_that_loses_little(
    limit_s: float | None, action: Action | None
) -> None:
    seen = snapshot([job("1", 3, start_time=after(-600)), job("2", 3, start_time=after(-9_000))])
    found = decided(seen, candidates={"min_runtime": 0}, max_kill_loss_s=limit_s)
    if action is None:
        assert isinstance(found, NoPlan)
    else:
        assert leaving(found) == {"1": action}


def test_the_verdict_names_the_limit_on_what_a_kill_may_lose() -> None:
    seen = snapshot([job("1", 1, start_time=after(-600)), saver("2", 20)])
    found = decided(seen, candidates={"min_runtime": 0}, max_kill_loss_s=60)
    assert leaving(found) == {"2": Action.APP_CHECKPOINT}
    assert isinstance(found, Plan)
    (reason,) = (each.reason for each in found.verdicts if each.job_id == "1")
    assert reason.endswith("and killing it would lose more than max_kill_loss of rule instrument allows")
