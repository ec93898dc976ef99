"""Several urgent jobs planned together, beside trying everything: served wherever that can be, at the least cost."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from math import ceil

import pytest

from clearway.model.problem import Action, Candidate, EvictionProblem, Option
from clearway.planning.joint import several
from clearway.planning.joint.requests import Allocation, Request
from clearway.planning.joint.several import gap_of, plan_together
from tests.oracle.many import seeds
from tests.oracle.problems import TIMES

BLOCKS, IN_A_TEST = 5 * TIMES, 50  # of each shape
PROBLEMS_PER_SHAPE = 40  # likewise, of what follows from it
SHAPES = ("plain", "ties", "ends", "suspends", "shared", "apart", "returns", "everything")
Cost = tuple[Fraction, int, int, int]


def endless() -> float:
    return 60.0


def requests_of(seed: int) -> tuple[Request, ...]:
    """Two or three urgent jobs on up to nine nodes with up to four jobs."""
    rng = random.Random(seed)
    shape = SHAPES[seed % len(SHAPES)]
    every = shape == "everything"
    names = [f"n{index}" for index in range(rng.randint(4, 9))]
    left = rng.sample(names, len(names))
    jobs = []
    for job_id in rng.sample(range(1, 50), rng.randint(2, 4)):
        size = min(rng.choice((1, 1, 2, 3, 4)), len(left))
        mine = [left.pop() for _ in range(size)]
        if shape == "shared" or (every and rng.random() < 0.5):
            mine = sorted({*mine, rng.choice(names)} - set(left))
        if mine:
            jobs.append(Candidate(str(job_id), len(mine), _options(rng, shape), tuple(mine)))
    taken = {name for job in jobs for name in job.node_names}
    free = [name for name in names if name not in taken]
    requests = []
    for index in range(rng.randint(2, 3)):
        suits = set(names)
        if shape == "apart" or (every and rng.random() < 0.5):
            suits = set(rng.sample(names, rng.randint(2, len(names))))
        max_delay_s = rng.randint(0, 12)
        mine = tuple(
            replace(job, nodes=len(on), node_names=on)
            for job in jobs
            if (on := tuple(name for name in job.node_names if name in suits))
        )
        own_free = tuple(name for name in free if name in suits)
        nodes = rng.randint(1, 4)
        problem = EvictionProblem(max(0, nodes - len(own_free)), max_delay_s, 1, mine, nodes)
        requests.append(Request(f"u{index}", nodes, problem, own_free))
    return tuple(requests)


def _options(rng: random.Random, shape: str) -> tuple[Option, ...]:
    every = shape == "everything"
    loss = rng.choice((1, 1, 2)) if shape == "ties" else rng.choice((0, 0.5, rng.randint(0, 30)))
    options = [Option(Action.KILL, loss)] if rng.random() < 0.8 else []
    if rng.random() < 0.7:
        options.append(Option(Action.APP_CHECKPOINT, 0, rng.choice((0, 1, 3, 4.5, 6))))
    if rng.random() < 0.3:
        options.append(Option(Action.SYS_CHECKPOINT, rng.choice((0, 1)), rng.randint(0, 8)))
    if (shape == "suspends" or every) and rng.random() < 0.5:
        options.append(Option(Action.SUSPEND))
    if (shape == "ends" or every) and rng.random() < 0.5:
        options.append(Option(Action.END, 0, 0, rng.choice((0, 2.5, rng.randint(0, 12)))))
    options = options or [Option(Action.KILL, loss)]
    if shape == "returns" or every:
        options = [replace(option, return_node_s=rng.choice((0, 1, 5, 40))) for option in options]
    return tuple(options)


@cache
def everything(requests: tuple[Request, ...]) -> Cost | None:
    """The least cost of serving them all, by trying every way and request for which a job may leave in time."""
    order = sorted(requests, key=lambda request: (request.problem.max_delay_s, request.job_id))
    jobs = sorted({job.job_id for request in order for job in request.problem.candidates})
    choices = [[None, *_choices(order, job_id)] for job_id in jobs]
    least: Cost | None = None
    for picked in itertools.product(*choices):
        cost = _cost(choice[0] for choice in picked if choice is not None)
        if (least is None or cost < least) and _serves_all(order, dict(zip(jobs, picked, strict=True))):
            least = cost
    return least


def _choices(order: Sequence[Request], job_id: str) -> Iterator[tuple[Option, int]]:
    for phase, request in enumerate(order):
        for job in request.problem.candidates:
            if job.job_id == job_id:
                yield from ((option, phase) for option in job.options if option.action is not Action.END)


def _cost(leaving: Iterable[Option]) -> Cost:
    used = tuple(leaving)
    return (
        sum((_lost(option) for option in used), Fraction(0)),
        sum(option.return_node_s for option in used),
        sum(ceil(option.checkpoint_s) for option in used),
        len(used),
    )


@cache
def _lost(option: Option) -> Fraction:
    return Fraction(str(option.lost_work_node_s))


def _serves_all(order: Sequence[Request], picked: dict[str, tuple[Option, int] | None]) -> bool:
    used = [choice for choice in picked.values() if choice is not None]
    for phase, request in enumerate(order):
        written = sum(ceil(option.checkpoint_s) for option, before in used if before <= phase)
        if written > request.problem.max_delay_s:
            return False
    gone_for = [_gone_for(order, picked, phase) for phase in range(len(order))]
    holders: dict[str, set[str]] = {}
    for request in order:
        for job in request.problem.candidates:
            for name in job.node_names:
                holders.setdefault(name, set()).add(job.job_id)
    slots = [
        [
            name
            for name in sorted(
                {*request.free_nodes, *(n for job in request.problem.candidates for n in job.node_names)}
            )
            if holders.get(name, set()) <= gone_for[phase]
        ]
        for phase, request in enumerate(order)
        for _ in range(request.nodes)
    ]
    return _matched(slots)


def _gone_for(order: Sequence[Request], picked: dict[str, tuple[Option, int] | None], phase: int) -> set[str]:
    gone = {
        job_id
        for job_id, choice in picked.items()
        if choice is not None and (choice[1] == phase if choice[0].action is Action.SUSPEND else choice[1] <= phase)
    }
    ends = {
        job.job_id
        for request in order
        for job in request.problem.candidates
        for option in job.options
        if option.action is Action.END and option.ready_s <= order[phase].problem.max_delay_s
    }
    stands = {job_id for job_id, choice in picked.items() if choice is not None and choice[0].action is Action.SUSPEND}
    return gone | (ends - stands)  # a suspended job's time does not pass


def _matched(slots: Sequence[Sequence[str]]) -> bool:
    """Whether each slot can have a node of its own (augmenting paths)."""
    owner: dict[str, int] = {}

    def place(slot: int, seen: set[str]) -> bool:
        for name in slots[slot]:
            if name not in seen:
                seen.add(name)
                if name not in owner or place(owner[name], seen):
                    owner[name] = slot
                    return True
        return False

    return all(place(slot, set()) for slot in range(len(slots)))


def cost_of(allocations: Sequence[Allocation]) -> Cost:
    return _cost(option for allocation in allocations for _, option in allocation.leaving)


def check(requests: Sequence[Request], allocations: Sequence[Allocation]) -> None:
    """Every allocation keeps what it promises."""
    by_id = {request.job_id: request for request in requests}
    left: dict[str, tuple[Allocation, Option]] = {}
    given: set[str] = set()
    for allocation in allocations:
        request = by_id[allocation.job_id]
        assert len(allocation.nodes) == request.nodes
        assert not given & set(allocation.nodes), "no node for two"
        given |= set(allocation.nodes)
        for job_id, option in allocation.leaving:
            assert job_id not in left, "no job for two"
            left[job_id] = (allocation, option)
        ending = {job_id for job_id, _ in allocation.ending}
        assert allocation.done_s <= request.problem.max_delay_s
        for name in allocation.nodes:
            on = {j.job_id for p in requests for j in p.problem.candidates if name in j.node_names}
            assert name in request.free_nodes or any(name in job.node_names for job in request.problem.candidates)
            assert on <= ending | left.keys(), "the jobs of a node leave for this request or an earlier one"
            for job_id in on - ending:
                owner, option = left[job_id]
                assert option.action is not Action.SUSPEND or owner is allocation


@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_what_trying_everything_finds(shape: str, block: int) -> None:
    served = refused = shared = 0
    for seed in seeds(SHAPES, shape, block, IN_A_TEST):
        requests = requests_of(seed)
        best = everything(requests)
        found = plan_together(requests, endless)
        assert found is not None
        assert found.proven
        check(requests, found.allocations)
        if best is not None:
            served += 1
            assert len(found.allocations) == len(requests), (seed, best)
            assert cost_of(found.allocations) == best, seed
            assert found.least_node_s == best[0], seed
            users = [set(allocation.nodes) for allocation in found.allocations]
            shared += any(
                sum(bool(set(job.node_names) & names) for names in users) > 1 for job in requests[0].problem.candidates
            )
        else:
            refused += 1
            # Admitted one after another, in the order in which they were given.
            admitted: list[Request] = []
            for request in requests:
                if everything((*admitted, request)) is not None:
                    admitted.append(request)
            assert {allocation.job_id for allocation in found.allocations} == {
                request.job_id for request in admitted
            }, seed
            if admitted:
                assert cost_of(found.allocations) == everything(tuple(admitted)), seed
    assert served >= 10
    assert refused >= 5
    assert shared >= 1, "a job makes room for two"


@pytest.mark.parametrize("seed", range(0, 140, 5))
def test_the_answer_does_not_depend_on_the_order_of_candidates(seed: int) -> None:
    requests = requests_of(seed)
    turned = tuple(
        replace(p, problem=replace(p.problem, candidates=tuple(reversed(p.problem.candidates)))) for p in requests
    )
    before = repr(requests)
    assert plan_together(requests, endless) == plan_together(turned, endless)
    assert repr(requests) == before


@pytest.mark.parametrize("shape", SHAPES)
def test_without_time_there_is_no_plan(shape: str) -> None:
    """Each is planned in its turn then."""
    first, refused = SHAPES.index(shape), 0
    for seed in range(first, first + PROBLEMS_PER_SHAPE * len(SHAPES), len(SHAPES)):
        requests = requests_of(seed)
        found = plan_together(requests, lambda: 0.0)
        refused += found is None
        assert found is None or (not found.allocations and everything(requests) is None)
    assert refused >= PROBLEMS_PER_SHAPE / 2


@pytest.mark.parametrize("shape", SHAPES)
def test_with_many_candidates_the_plan_is_as_good_on_small_ones(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way for many candidates, taken for few: valid, everybody is served, and the gap holds."""
    monkeypatch.setattr(several, "FEW_CANDIDATES", 0)
    first = SHAPES.index(shape)
    worse = served = 0
    for seed in range(first, first + PROBLEMS_PER_SHAPE * len(SHAPES), len(SHAPES)):
        requests = requests_of(seed)
        best = everything(requests)
        found = plan_together(requests, endless)
        assert found is not None
        check(requests, found.allocations)
        assert best is None or len(found.allocations) == len(requests), seed
        if best is not None:
            served += 1
            lost = cost_of(found.allocations)[0]
            worse += lost > best[0]
            assert lost >= best[0]
            assert float(lost - best[0]) <= gap_of(found.allocations, found.least_node_s) * float(lost) + 1e-9
    assert served >= 10
    assert worse * 4 <= served
