"""What the urgent jobs of one cycle share is what each would have by itself, whatever they differ in.

A part of the survey that does not name all that it depends on gives one urgent job the nodes or the jobs of another, so
that jobs would leave in vain. So jobs that differ in one field after another are examined beside each other.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import UnderWay
from clearway.model.cluster import Spread
from clearway.model.plan import Preemptor
from clearway.preemption.candidates import Survey
from clearway.preemption.problem import PreparedProblem, prepare_problem
from tests.builders import NOW, after
from tests.oracle.test_live_needs import CONFIG, urgent_with_needs, world

WORLDS = 400

Draw = Callable[[random.Random, Sequence[str]], Any]  # of the nodes' names

OF_JOB: dict[str, Draw] = {
    "num_nodes": lambda rng, _: rng.randint(1, 3),
    "cpus": lambda rng, _: rng.randint(1, 9),
    "even_cpus": lambda rng, _: rng.randint(0, 4),
    "cpus_per_node": lambda rng, _: rng.randint(0, 5),
    "memory_mib": lambda rng, _: rng.choice((0, 100, 500, 900)),
    "gpus": lambda rng, _: rng.choice((None, (), (("a100", 1),), (("", 2),), (("v100", 3),))),
    "gres": lambda rng, _: rng.choice(("", "gres:gpu")),
    "exclusive": lambda rng, _: rng.random() < 0.5,
    "required_nodes": lambda rng, names: tuple(rng.sample(names, 1)),
    "excluded_nodes": lambda rng, names: tuple(rng.sample(names, 1)),
    "contiguous": lambda rng, _: rng.random() < 0.5,
    "switches": lambda rng, _: rng.randint(0, 2),
    "features": lambda rng, _: rng.choice(("", "big", "[big|small]")),
    "licenses": lambda rng, _: rng.choice(("", "matlab:1")),
    "partitions": lambda rng, _: rng.choice((("batch",), ("batch", "other"))),
    "spread": lambda rng, _: rng.choice((None, Spread(tasks=4, cpus_per_task=1))),
    "time_limit_s": lambda rng, _: rng.choice((60, 86_400, None)),
    "user": lambda rng, _: rng.choice(("alice", "vip")),
}
OF_PREEMPTOR: dict[str, Draw] = {
    "tasks": lambda rng, _: rng.randint(1, 5),
    "rule": lambda rng, _: rng.choice(("rule 1", "rule 2")),
    "only_opportunistic": lambda rng, _: rng.random() < 0.5,
    "ordinary": lambda rng, _: rng.random() < 0.5,
    "max_kill_loss_s": lambda rng, _: rng.choice((None, 0.0, 1_000.0)),
}


def varied(rng: random.Random, names: Sequence[str], one: Preemptor) -> Preemptor:
    """As this one, but for some of its fields."""
    for name in rng.sample(sorted(OF_PREEMPTOR), rng.randint(0, 1)):
        one = replace(one, **{name: OF_PREEMPTOR[name](rng, names)})
    job = one.job
    for name in rng.sample(sorted(OF_JOB), rng.randint(0, 2)):
        job = replace(job, **{name: OF_JOB[name](rng, names)})
    return replace(one, job=job)


def told(prepared: PreparedProblem) -> tuple[object, ...]:
    """All that a plan is made from."""
    ground = prepared.ground
    jobs = ground.jobs
    return (
        prepared.problem,
        ground.free_nodes,
        ground.verdicts,
        jobs.looks,
        ground.leaving,
        ground.eternal,
        jobs.only_end,
    )


@pytest.mark.parametrize("plain", [False, True], ids=["with GPUs", "processors and memory alone"])
def test_each_urgent_job_has_the_problem_that_it_would_have_alone(plain: bool) -> None:
    shared = different = 0
    for seed in range(WORLDS):
        rng = random.Random(seed)
        made = world(rng, odd=True, plain=plain)
        urgent = urgent_with_needs(rng, made, plain=plain)
        seen = made.snapshot(urgent)
        context = PlanningContext(snapshot=seen, config=CONFIG, now=NOW, preempted={}, under_way=UnderWay())
        first = Preemptor(urgent, "rule 1", 600, after(600))
        some = [first, *(varied(rng, sorted(made.nodes), first) for _ in range(8))]
        survey, looked_for = Survey(), 0
        for each in some:
            whole = rng.random() < 0.3
            alone = prepare_problem(each, "batch", context, whole=whole)
            beside = prepare_problem(each, "batch", context, whole=whole, survey=survey)
            assert told(beside) == told(alone), (seed, each)
            shared += len(survey.parts) == looked_for
            different += len(survey.parts) > looked_for
            looked_for = len(survey.parts)
    assert shared > WORLDS
    assert different > WORLDS
