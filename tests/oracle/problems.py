"""Random eviction problems that provoke ties, zeros, shared nodes and everything else that goes wrong."""

from __future__ import annotations

import os
import random
from dataclasses import replace

from clearway.model.problem import Action, Candidate, EvictionProblem, Option

TIMES = int(os.environ.get("CLEARWAY_ORACLE_TIMES", "1"))  # so many times the problems, for a night
SHAPES = ("plain", "ties", "zeros", "floats", "late", "ends", "shared", "tied groups", "twins", "everything")


def random_problem(seed: int, jobs: int | None = None) -> EvictionProblem:
    """A small problem; the seed decides everything, its shape among it."""
    rng = random.Random(seed)
    shape = SHAPES[seed % len(SHAPES)]
    step_s = rng.choice((1, 7, 60))
    candidates = [
        _candidate(rng, shape, job_id, step_s)
        for job_id in rng.sample(range(1, 130), jobs if jobs is not None else rng.randint(1, 6))
    ]
    if shape in ("shared", "tied groups", "twins", "everything"):
        candidates = _shared(rng, candidates, every=shape != "everything")
    total = sum(candidate.nodes for candidate in candidates)
    return EvictionProblem(
        nodes_needed=rng.choice((rng.randint(0, total + 1), rng.randint(1, max(1, total)), total // 2)),
        max_delay_s=rng.randint(0, 5) * step_s + rng.choice((0, 0, step_s - 1)),
        step_s=step_s,
        candidates=tuple(candidates),
    )


def with_returns(problem: EvictionProblem, seed: int, most: int = 9) -> EvictionProblem:
    """The same problem where coming back costs something, some options nothing; ends of jobs as well, idly."""
    rng = random.Random(seed)
    amounts = (0, 1, rng.randint(0, most), most)
    candidates = [
        replace(job, options=tuple([replace(each, return_node_s=rng.choice(amounts)) for each in job.options]))
        for job in problem.candidates
    ]
    return replace(problem, candidates=tuple(candidates))


def side_by_side(problem: EvictionProblem, seed: int) -> EvictionProblem:
    """The same problem where most checkpoints leave room for others."""
    rng = random.Random(seed)

    def shares(option: Option) -> Option:
        share = rng.choice((None, 0.0, 0.25, 0.5, rng.random(), 1.0))
        return option if share is None else replace(option, file_system_s=share * option.checkpoint_s)

    candidates = [replace(job, options=tuple([shares(each) for each in job.options])) for job in problem.candidates]
    return replace(problem, candidates=tuple(candidates))


def beside_others(problem: EvictionProblem, seed: int) -> EvictionProblem:
    """The same problem where checkpoints of others come first, which sometimes takes all the time there is."""
    rng = random.Random(seed)
    most_s = problem.max_delay_s + problem.step_s
    return replace(problem, busy_s=rng.choice((0, 1, problem.step_s, rng.randint(0, most_s), most_s)))


def with_histories(problem: EvictionProblem, seed: int) -> EvictionProblem:
    """The same problem where jobs have a past and a future as well, as rules look at; ties among them are frequent."""
    rng = random.Random(seed)
    return replace(
        problem,
        preemptor_nodes=rng.choice((0, problem.nodes_needed, problem.nodes_needed + 2, 40)),
        candidates=tuple(
            replace(
                candidate,
                ran_s=rng.choice((0, 60, 60, 5_000)),
                remaining_s=rng.choice((None, 0, 600, 600, 20_000)),
                waited_s=rng.choice((0, 0, 900, 30_000)),
                preempt_priority=rng.choice((0, 0, 1)),
                job_nodes=candidate.nodes + rng.choice((0, 0, 3)),
            )
            for candidate in problem.candidates
        ),
    )


def in_another_order(problem: EvictionProblem, seed: int) -> EvictionProblem:
    """The same problem with its jobs, their options and their nodes in another order."""
    rng = random.Random(seed)

    def turned(candidate: Candidate) -> Candidate:
        order = rng.sample(range(len(candidate.node_names)), len(candidate.node_names))
        return replace(
            candidate,
            options=tuple(rng.sample(candidate.options, len(candidate.options))),
            node_names=tuple(candidate.node_names[index] for index in order),
            holds=tuple(candidate.holds[index] for index in order) if candidate.holds else (),
        )

    candidates = rng.sample(problem.candidates, len(problem.candidates))
    return replace(problem, candidates=tuple(turned(candidate) for candidate in candidates))


def _candidate(rng: random.Random, shape: str, job_id: int, step_s: int) -> Candidate:
    def lost() -> float:
        match shape:
            case "ties" | "tied groups" | "twins":
                return rng.choice((1, 1, 2))
            case "zeros":
                return rng.choice((0, 0, 0, 1))
            case "floats":
                return rng.choice((0.1, 0.2, 0.3, 0.6, 1e-3, 1e6))
        return rng.choice((0, 5, rng.randint(0, 40), 0.5 * rng.randint(0, 9)))

    def duration() -> float:
        return rng.choice((0, step_s, rng.randint(0, 4) * step_s, rng.randint(0, 4 * step_s), 0.3 * step_s))

    def ready() -> float:
        late = shape in ("late", "everything") and rng.random() < 0.4
        return rng.randint(0, 5) * step_s * rng.choice((1, 0.9)) if late else 0

    options = []
    if rng.random() < 0.85:
        options.append(Option(Action.KILL, lost(), rng.choice((0, 0, 0, duration())), ready()))
    for action in (Action.APP_CHECKPOINT, Action.SYS_CHECKPOINT, Action.SUSPEND):
        if rng.random() < (0.8 if shape == "twins" else 0.5):
            loses = lost() if rng.random() < (0.7 if shape == "twins" else 0.2) else 0
            options.append(Option(action, loses, duration(), ready()))
    if shape in ("ends", "everything") and rng.random() < 0.4:
        options.append(Option(Action.END, 0, 0, rng.randint(0, 6 * step_s)))
    rng.shuffle(options)
    return Candidate(str(job_id), rng.choice((1, 1, 2, 3, 4, 8, 12)), tuple(options))


def _shared(rng: random.Random, candidates: list[Candidate], *, every: bool) -> list[Candidate]:
    """The same jobs on named nodes, with fewer nodes than the jobs ask for together."""
    names = [f"n{index:02d}" for index in range(rng.randint(2, 10))]
    placed = []
    for candidate in candidates:
        if every or rng.random() < 0.7:
            mine = tuple(rng.sample(names, rng.randint(1, min(4, len(names)))))
            placed.append(replace(candidate, nodes=len(mine), node_names=mine))
        else:
            placed.append(candidate)
    return placed
