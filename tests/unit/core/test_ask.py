"""The Ask: whatever changes a plan changes it, and what does not change it costs no plan."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearway.config.configuration import Config, PreemptorRule
from clearway.eligibility.context import PlanningContext
from clearway.model.cluster import Job, JobState, Spread
from clearway.model.limits import Limits, Partition
from clearway.model.plan import Ask, NoPlan, Preemptor
from clearway.model.site import License, Topology
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.preemption.detection import preemptors
from clearway.preemption.plan import decide
from clearway.preemption.validation import WITHOUT_INFLUENCE, ask_misfit, ask_of
from clearway.store.rows import dump, load
from tests.builders import NOW, after, job, node, plan, snapshot, urgent_job

# Why no plan follows from these fields of the urgent job, but by others of its Ask.
REASONS = {
    "name": "a rule may ask for it, and the rule is there",
    "state": "only a job that waits is planned for",
    "raw_state": "Slurm's word for the state",
    "reason": "it is an obstacle or a limit, which are looked at each time, or it leaves one task of an array at once",
    "submit_time": "the delay counts from `since`",
    "eligible_time": "the delay counts from `since`",
    "start_time": "a job that waits has none",
    "end_time": "a job that waits has none",
    "over_time_s": "how long it may run beyond its limit matters once it runs",
    "deadline": "when it cannot be met any more Slurm removes the job, which is then gone",
    "nodes": "a job that waits has none",
    "comment": "its delay is there; what it says of checkpoints is for when it runs",
    "batch": "whether it could be requeued matters once it runs",
    "requeueable": "whether it could be requeued matters once it runs",
    "nice": "it is part of the priority",
    "priority": "0 is an obstacle, and a least priority a limit: both are looked at each time",
    "dependency": "it is an obstacle, which is looked at each time",
    "reservation": "one that is not Clearway's own is an obstacle, which is looked at each time",
    "array_job_id": "how many tasks may start is there",
    "array_task_id": "how many tasks may start is there",
    "pending_tasks": "how many tasks may start is there",
    "array_limit": "how many tasks may start is there",
    "het_job_id": "its components are there",
    "het_job_offset": "its components are there",
}

# Other values of each field of the urgent job. A new field has to be given some.
OF_JOB: Mapping[str, Sequence[Any]] = {
    "job_id": ("901",),
    "user": ("vip", "alice"),
    "state": (JobState.PENDING,),
    "raw_state": ("PENDING",),
    "partitions": (("batch", "urgent"), ("urgent",), ("batch",)),
    "num_nodes": (1, 2, 3, 9),
    "submit_time": (after(-600), after(-60)),
    "name": ("rescue-1", "other"),
    "account": ("physics", "other"),
    "qos": ("urgent", "rescue"),
    "reason": ("None", "Priority", "Resources"),
    "eligible_time": (after(-30), None),
    "start_time": (None,),
    "time_limit_s": (60, 7_200, None),
    "end_time": (None,),
    "over_time_s": (0, 600, None),
    "deadline": (None, after(9_000)),
    "nodes": ((),),
    "cpus": (1, 8, 64),
    "memory_mib": (0, 100, 100_000),
    "comment": ("", "clearway:max_delay=20", "clearway:max_delay=9000", "a word", "clearway:checkpoint=signal"),
    "batch": (False,),
    "requeueable": (False,),
    "restart_count": (1,),
    "priority": (1, 7),
    "nice": (7,),
    "reservation": (None,),
    "dependency": ("",),
    "features": ("", "big", "small", "[big|small]"),
    "licenses": ("", "matlab:1", "matlab:9"),
    "gres": ("", "gres:gpu:1"),
    "gpus": ((), (("", 1),), (("", 2),)),
    "exclusive": (True, False),
    "required_nodes": ((), ("n1",), ("n4",)),
    "excluded_nodes": ((), ("n1",), ("n2", "n3")),
    "spread": (None, Spread(tasks=4, cpus_per_task=1)),
    "contiguous": (True, False),
    "switches": (0, 1),
    "cpus_per_node": (0, 1, 4),
    "even_cpus": (0, 1, 4),
    "array_job_id": ("900",),
    "array_task_id": (3,),
    "pending_tasks": (2, 5),
    "array_limit": (0, 1),
    "het_job_id": (None,),
    "het_job_offset": (None,),
}
OF_RULE: Mapping[str, Sequence[Any]] = {
    "name": ("first", "other"),
    "partition": ((), ("urgent",), ("batch",)),
    "qos": (("urgent",), ("urgent", "rescue")),
    "account": ((), ("physics",), ("other",)),
    "user": ((), ("bob",), ("alice",)),
    "job_name": ((), ("rescue*",)),
    "comment": (False, True),
    "anybody": (False, True),
    "max_delay": (5.0, 45.0, 600.0, 9_000.0),
    "max_late": (0.0, 3_000.0),
    "max_kill_loss": (None, 0.0, 1_800.0),
}
OF_PARTITION: Mapping[str, Sequence[Any]] = {
    "name": ("urgent",),
    "state": ("UP", "DOWN"),
    "qos": ("", "partqos"),
    "max_nodes": (None, 1, 5),
    "min_nodes": (0, 4),
    "max_time_s": (None, 60),
    "max_cpus_per_node": (None, 1),
    "max_memory_mib": (None, 10),
    "allow_accounts": (None, frozenset({"other"})),
    "deny_accounts": (frozenset(), frozenset({"physics"})),
    "allow_qos": (None, frozenset({"rescue"})),
    "deny_qos": (frozenset(), frozenset({"urgent"})),
    "allow_groups": (None, frozenset({"staff"})),
    "allow_alloc_nodes": ("", "login[1-2]"),
    "root_only": (False, True),
    "reservations_only": (False, True),
    "weighted": (False, True),
}
RULE = PreemptorRule(qos=("urgent",), max_delay=600.0)
OTHER_RULE = PreemptorRule(name="rescue", qos=("rescue",), max_delay=45.0)
URGENT = urgent_job("900", 2, partitions=("batch", "urgent"), account="physics", qos="urgent", user="bob")
OPEN = Partition(name="urgent")


def context(urgent: Job, rule: PreemptorRule, partition: Partition) -> PlanningContext:
    """Eight nodes; jobs that save themselves, that cannot, that end soon, and that share a node."""
    saves = "clearway:checkpoint=signal,took=40"
    jobs = [
        job("101", nodes=("n1", "n2"), comment=saves),
        job("102", nodes=("n3",), time_limit_s=3_900, licenses="matlab:2"),
        job("103", nodes=("n4",), start_time=after(-100)),
        job("104", nodes=("n5",), exclusive=False, cpus=2, memory_mib=50),
        job("105", nodes=("n5",), exclusive=False, cpus=1, memory_mib=50, comment=saves),
        job("106", nodes=("n6", "n7"), comment="clearway:checkpoint=signal,took=300"),
    ]
    nodes = [
        node(
            f"n{number}",
            partitions=("batch", "urgent") if number % 3 else ("batch",),
            features=("big",) if number % 2 else ("small",),
        )
        for number in range(1, 9)
    ]
    seen = replace(
        snapshot([*jobs, urgent], nodes),
        licenses={"matlab": License(total=4, used=2)},
        topology=Topology({f"n{number}": f"s{number // 4}" for number in range(1, 9)}, unknown=""),
    )
    config = Config.model_construct(
        **(dict(Config()) | {"preemptors": (rule, OTHER_RULE)})  # a rule is tried that no file may have
    )
    limits = Limits(partitions={"batch": Partition(name="batch"), partition.name: partition})
    return PlanningContext(snapshot=seen, config=config, now=NOW, limits=limits)


def asked(made: PlanningContext) -> Preemptor | None:
    found = preemptors(made.snapshot, made.config.preemptors)
    return found[0] if found else None


def decision(made: PlanningContext, preemptor: Preemptor) -> object:
    """What is decided for it, without what only repeats the job."""
    found = decide(preemptor, made, EvictionDP())
    if isinstance(found, NoPlan):
        return "no plan"
    return found.chosen, found.placement_nodes, found.deadline, found.tasks, found.partition, found.note


def test_every_field_is_looked_at() -> None:
    assert REASONS.keys() == WITHOUT_INFLUENCE.keys()
    assert OF_JOB.keys() == {each.name for each in fields(Job)}
    assert OF_RULE.keys() == set(PreemptorRule.model_fields)
    assert OF_PARTITION.keys() == {each.name for each in fields(Partition)}


@settings(deadline=None, max_examples=400)
@given(st.randoms(use_true_random=False))
def test_another_decision_is_for_another_ask(rng: random.Random) -> None:
    urgent, rule, partition = URGENT, RULE, OPEN
    for _ in range(rng.randint(0, 3)):  # where it begins
        name = rng.choice(sorted(OF_JOB.keys() - {"job_id", "restart_count"}))
        urgent = replace(urgent, **{name: rng.choice(OF_JOB[name])})
    before = context(urgent, rule, partition)
    kind, name = rng.choice(
        [
            *(("job", each) for each in OF_JOB),
            *(("rule", each) for each in OF_RULE),
            *(("partition", each) for each in OF_PARTITION),
        ]
    )
    if kind == "job":
        urgent = replace(urgent, **{name: rng.choice(OF_JOB[name])})
    elif kind == "rule":
        rule = rule.model_copy(update={name: rng.choice(OF_RULE[name])})
    else:
        partition = replace(partition, **{name: rng.choice(OF_PARTITION[name])})
    now = context(urgent, rule, partition)
    first, second = asked(before), asked(now)
    if first is None or second is None or first.obstacle or second.obstacle:
        return  # that is found out in each cycle, whatever is remembered
    if ask_of(first, before.limits) == ask_of(second, now.limits):
        assert decision(before, first) == decision(now, second), (kind, name)


@pytest.mark.parametrize("name", sorted(WITHOUT_INFLUENCE))
def test_what_has_no_influence_leaves_the_ask(name: str) -> None:
    """But for what the fields mean to others: a claim of the Comment, from when on it waits, and tasks of an array."""
    means_more = {"submit_time", "eligible_time", "pending_tasks", "array_limit", "array_job_id"}
    made = context(URGENT, RULE, OPEN)
    first = asked(made)
    assert first is not None
    for value in OF_JOB[name]:
        second = asked(context(replace(URGENT, **{name: value}), RULE, OPEN))
        assert second is not None
        same = ask_of(first) == ask_of(second)
        assert same or name in means_more or "max_delay" in str(value), (name, value)


def test_an_ask_is_stored_with_its_plan() -> None:
    made = context(URGENT, RULE, replace(OPEN, allow_qos=frozenset({"urgent"}), deny_accounts=frozenset({"b", "a"})))
    preemptor = asked(made)
    assert preemptor is not None
    asks = ask_of(preemptor, made.limits)
    assert load(Ask, dump(asks)) == asks
    assert asks.partitions


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"time_limit_s": 5}, "was changed (time limit s)"),
        ({"qos": "rescue"}, "was changed (rule, max delay s, qos)"),
        ({"qos": "normal"}, "is not urgent any more"),
        ({"comment": "clearway:max_delay=1"}, "was changed (max delay s)"),
        ({"eligible_time": NOW - timedelta(seconds=3)}, "was changed (since)"),
        ({"name": "other", "comment": "a word", "priority": 3}, ""),
    ],
    ids=str,
)
def test_what_is_said_of_a_changed_job(fields: dict[str, Any], why: str) -> None:
    made = plan(URGENT, [job("1")])
    seen = context(replace(URGENT, **fields), RULE, OPEN)
    assert ask_misfit(made, seen.snapshot, seen.config) == why
