"""Several urgent jobs of which some take parts of nodes or certain ones, planned at once, beside trying everything."""

import itertools
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil

import pytest

from clearway.model.problem import Action, Amounts, Candidate, EvictionProblem, Needs, NodeResources, Option
from clearway.planning.joint import several
from clearway.planning.joint.requests import Allocation, Request
from clearway.planning.joint.several import by_program, plan_together, unserved
from tests.oracle.many import seeds
from tests.oracle.problems import TIMES

BLOCKS, IN_A_TEST = TIMES, 50  # of each shape
SHAPES = ("gpus", "types", "memory", "ties", "ends", "suspends", "certain", "in a row", "one switch", "everything")
Cost = tuple[Fraction, int, int, int]
Picked = Mapping[str, tuple[Option, int] | None]  # of each job: how it leaves, and for the request of which number


def endless() -> float:
    return 60.0


def requests_of(seed: int, *, jobs: int | None = None) -> tuple[Request, ...]:
    """Two or three urgent jobs, most with needs, on up to six nodes that up to four jobs share."""
    rng = random.Random(seed)
    shape = SHAPES[seed % len(SHAPES)]
    every = shape == "everything"
    nodes = [_node(rng, shape, index) for index in range(rng.randint(2, 6))]
    candidates = []
    for job_id in rng.sample(range(1, 50), rng.randint(2, 4) if jobs is None else jobs):
        on = sorted(rng.sample(nodes, rng.randint(1, min(3, len(nodes)))), key=lambda node: node.name)
        holds = tuple(_part(rng, node.has) for node in on) if rng.random() < 0.85 else ()
        names = tuple(node.name for node in on)
        candidates.append(Candidate(str(job_id), len(on), _options(rng, shape), names, holds))
    if rng.random() < 0.2:  # somebody who stays
        index = rng.randrange(len(nodes))
        nodes[index] = replace(nodes[index], held=_part(rng, nodes[index].has))
    requests = []
    for index in range(rng.randint(2, 3)):
        whole = rng.random() < 0.2 or (shape == "suspends" and rng.random() < 0.3)
        suits = nodes if not every or rng.random() < 0.5 else [node for node in nodes if rng.random() < 0.7]
        needs = None if whole else _needs(rng, shape, suits)
        requests.append(
            _request(f"u{index}", rng.choice((1, 1, 1, 2, 2, 3)), rng.randint(0, 12), needs, suits, candidates)
        )
    return tuple(requests)


def _node(rng: random.Random, shape: str, index: int) -> NodeResources:
    gpus: tuple[tuple[str, int], ...] = (("", rng.choice((2, 4))),)
    if shape in ("types", "everything"):
        gpus = tuple((name, rng.choice((0, 2, 4))) for name in ("a100", "h100"))
    has = Amounts(rng.choice((4, 8)), rng.choice((100, 64_000)), gpus)
    fast = shape not in ("certain", "everything") or rng.random() < 0.7
    features, switch = ("fast",) if fast else (), rng.choice(("s1", "s2", "s2", ""))
    return NodeResources(f"n{index}", has, features=features, partitions=("main",), switch=switch)


def _part(rng: random.Random, has: Amounts) -> Amounts:
    return Amounts(
        rng.randint(0, has.cores),
        rng.choice((0, has.memory_mib // 3, has.memory_mib)),
        tuple((name, rng.randint(0, count)) for name, count in has.gpus),
    )


def _needs(rng: random.Random, shape: str, nodes: Sequence[NodeResources]) -> Needs:
    names, every = [node.name for node in nodes], shape == "everything"
    gpus: tuple[tuple[str, int], ...] = (("", rng.choice((1, 2))),)
    if shape in ("types", "everything"):
        gpus = ((rng.choice(("", "a100", "h100")), rng.choice((1, 2))),)
    part = Amounts(rng.choice((0, 2, 4)), rng.choice((0, 100)) if shape in ("memory", "everything") else 0, gpus)
    if shape == "memory" and rng.random() < 0.5:
        part = replace(part, memory_mib=rng.choice((30, 60, 20_000)), gpus=())
    needs = Needs(part if rng.random() < 0.9 else Amounts())
    if shape in ("certain", "everything"):
        needs = replace(
            needs,
            features=("fast",) if rng.random() < 0.4 else (),
            required_nodes=tuple(rng.sample(names, min(len(names), rng.choice((0, 1))))),
            excluded_nodes=tuple(rng.sample(names, min(len(names), rng.choice((0, 0, 1))))),
        )
    row = shape == "in a row" or (every and rng.random() < 0.3)
    return replace(needs, contiguous=row, one_switch=shape == "one switch" or (every and rng.random() < 0.3))


def _request(
    job_id: str,
    count: int,
    max_delay_s: int,
    needs: Needs | None,
    suits: Sequence[NodeResources],
    jobs: Sequence[Candidate],
) -> Request:
    suits = [node for node in suits if needs is not None or node.held == Amounts()]
    candidates = []
    for job in jobs:
        kept = [at for at, name in enumerate(job.node_names) if any(name == node.name for node in suits)]
        if kept:
            names = tuple(job.node_names[at] for at in kept)
            holds = tuple(job.holds[at] for at in kept) if job.holds and needs is not None else ()
            candidates.append(replace(job, nodes=len(names), node_names=names, holds=holds))
    taken = {name for job in jobs for name in job.node_names}
    free = tuple(node.name for node in suits if node.name not in taken) if needs is None else ()
    problem = EvictionProblem(max(0, count - len(free)), max_delay_s, 1, tuple(candidates), count)
    if needs is not None:
        problem = replace(problem, nodes_needed=count, needs=needs, nodes=tuple(suits))
    return Request(job_id, count, problem, free)


def _options(rng: random.Random, shape: str) -> tuple[Option, ...]:
    every = shape == "everything"
    loss = rng.choice((1, 1, 2)) if shape == "ties" else rng.choice((0, 0.5, rng.randint(0, 30)))
    options = [Option(Action.KILL, loss)] if rng.random() < 0.8 else []
    if rng.random() < 0.6:
        options.append(Option(Action.APP_CHECKPOINT, 0, rng.choice((0, 1, 3, 4.5, 6))))
    if (shape == "suspends" or every) and rng.random() < 0.5:
        options.append(Option(Action.SUSPEND))
    if (shape == "ends" or every) and rng.random() < 0.5:
        options.append(Option(Action.END, 0, 0, rng.choice((0, 2.5, rng.randint(0, 12)))))
    options = options or [Option(Action.KILL, loss)]
    if every:
        options = [replace(option, return_node_s=rng.choice((0, 1, 5, 40))) for option in options]
    return tuple(options)


# -- trying everything ---------------------------------------------------------------------------------------------


def everything(requests: Sequence[Request]) -> Cost | None:
    """The least cost of serving them all; every way, every request in time and every choice of nodes is tried."""
    order = sorted(requests, key=lambda request: (request.problem.max_delay_s, request.job_id))
    jobs = sorted({job.job_id for request in order for job in request.problem.candidates})
    choices = [[None, *_choices(order, job_id)] for job_id in jobs]
    found: dict[object, bool] = {}
    tried = [dict(zip(jobs, picked, strict=True)) for picked in itertools.product(*choices)]
    for picked in sorted((each for each in tried if _in_time(order, each)), key=_cost):
        gone = tuple(_gone(order, picked, phase) for phase in range(len(order)))
        if gone not in found:
            found[gone] = _placed(order, gone)
        if found[gone]:
            return _cost(picked)
    return None


def _choices(order: Sequence[Request], job_id: str) -> Iterator[tuple[Option, int]]:
    for phase, request in enumerate(order):
        for job in request.problem.candidates:
            if job.job_id == job_id:
                yield from ((option, phase) for option in job.options if option.action is not Action.END)


def _in_time(order: Sequence[Request], picked: Picked) -> bool:
    used = [choice for choice in picked.values() if choice is not None]
    return all(
        sum(ceil(option.checkpoint_s) for option, before in used if before <= phase) <= request.problem.max_delay_s
        for phase, request in enumerate(order)
    )


def _cost(picked: Picked) -> Cost:
    used = [choice[0] for choice in picked.values() if choice is not None]
    return (
        sum((Fraction(str(option.lost_work_node_s)) for option in used), Fraction(0)),
        sum(option.return_node_s for option in used),
        sum(ceil(option.checkpoint_s) for option in used),
        len(used),
    )


def _gone(order: Sequence[Request], picked: Picked, phase: int) -> tuple[frozenset[str], frozenset[str]]:
    """Who has left by a request's delay, and who stands suspended for somebody else."""
    left, kept = set(), set()
    for job_id, choice in picked.items():
        if choice is None:
            continue
        if choice[0].action is Action.SUSPEND and choice[1] != phase:
            kept.add(job_id)
        elif choice[1] <= phase:
            left.add(job_id)
    for job in (job for request in order for job in request.problem.candidates):
        for option in job.options:
            if option.action is Action.END and option.ready_s <= order[phase].problem.max_delay_s:
                left.add(job.job_id)
    return frozenset(left - kept), frozenset(kept)


def _placed(order: Sequence[Request], gone: Sequence[tuple[frozenset[str], frozenset[str]]]) -> bool:
    """Whether all can have nodes of their own."""
    ways = []
    for request, (left, kept) in zip(order, gone, strict=True):
        names = [node for node in names_of(request) if serves(order, request, node, left, kept)]
        ways.append([set(each) for each in itertools.combinations(names, request.nodes) if lie_as_asked(request, each)])

    def place(phase: int, taken: set[str]) -> bool:
        if phase == len(order):
            return True
        return any(not way & taken and place(phase + 1, taken | way) for way in ways[phase])

    return place(0, set())


def names_of(request: Request) -> list[str]:
    if request.problem.needs is not None:
        return [node.name for node in request.problem.nodes]
    return sorted({*request.free_nodes, *(name for job in request.problem.candidates for name in job.node_names)})


def serves(
    requests: Sequence[Request], request: Request, name: str, left: Collection[str], kept: Collection[str] = ()
) -> bool:
    holders = {job.job_id for each in requests for job in each.problem.candidates if name in job.node_names}
    if holders & set(kept):
        return False
    needs = request.problem.needs
    if needs is None:
        return holders <= set(left)
    (node,) = [node for node in request.problem.nodes if node.name == name]
    if name in needs.excluded_nodes or not set(needs.features) <= set(node.features):
        return False
    staying = [
        job.holds[job.node_names.index(name)] if job.holds else node.has
        for job in request.problem.candidates
        if name in job.node_names and job.job_id not in left
    ]
    if needs.per_node == Amounts():
        return not holders - set(left) and node.held == Amounts()
    taken = [node.held, *staying]
    gpus = all(
        _gpus(node.has, kind) - sum(_gpus(each, kind) for each in taken) >= count
        for kind, count in needs.per_node.gpus
        if count
    )
    cores, memory = needs.per_node.cores, needs.per_node.memory_mib
    return (
        gpus
        and (not cores or node.has.cores - sum(each.cores for each in taken) >= cores)
        and (not memory or node.has.memory_mib - sum(each.memory_mib for each in taken) >= memory)
    )


def _gpus(amounts: Amounts, kind: str) -> int:
    return sum(count for name, count in amounts.gpus if kind in ("", name))


def lie_as_asked(request: Request, chosen: Sequence[str]) -> bool:
    needs = request.problem.needs
    if needs is None:
        return True
    at = [index for index, node in enumerate(request.problem.nodes) if node.name in chosen]
    switches = {request.problem.nodes[index].switch for index in at}
    return (
        set(needs.required_nodes) <= set(chosen)
        and (not needs.contiguous or at[-1] - at[0] + 1 == len(at))
        and (not needs.one_switch or (len(switches) == 1 and "" not in switches))
    )


def check(requests: Sequence[Request], allocations: Sequence[Allocation]) -> None:
    """Every allocation keeps what it promises."""
    by_id = {request.job_id: request for request in requests}
    suspended = {
        job_id: allocation
        for allocation in allocations
        for job_id, way in allocation.leaving
        if way.action is Action.SUSPEND
    }
    left: set[str] = set()
    given: set[str] = set()
    for allocation in allocations:
        request = by_id[allocation.job_id]
        assert len(allocation.nodes) == len(set(allocation.nodes)) == request.nodes
        assert not given & set(allocation.nodes), "no node for two"
        given |= set(allocation.nodes)
        own = {job_id for job_id, _ in allocation.leaving}
        assert not left & own, "no job for two"
        assert set(allocation.depends_on) <= left, "who leaves for others does so before"
        left |= own
        gone = own | set(allocation.depends_on) | {job_id for job_id, _ in allocation.ending}
        kept = {job_id for job_id, of in suspended.items() if of is not allocation}
        assert all(serves(requests, request, name, gone, kept) for name in allocation.nodes)
        assert lie_as_asked(request, allocation.nodes)
        assert allocation.done_s <= request.problem.max_delay_s


def cost_of(allocations: Sequence[Allocation]) -> Cost:
    return _cost({job_id: (option, 0) for allocation in allocations for job_id, option in allocation.leaving})


@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_what_trying_everything_finds(shape: str, block: int) -> None:
    served = refused = 0
    for seed in seeds(SHAPES, shape, block, IN_A_TEST):
        requests = requests_of(seed)
        before = repr(requests)
        found = by_program(requests, endless)
        assert found is not None
        assert found.proven
        check(requests, found.allocations)
        best = everything(requests)
        if best is not None:
            served += 1
            assert len(found.allocations) == len(requests), (seed, best)
        else:
            refused += 1
            admitted: list[Request] = []
            for request in requests:
                if everything((*admitted, request)) is not None:
                    admitted.append(request)
            assert {allocation.job_id for allocation in found.allocations} == {
                request.job_id for request in admitted
            }, seed
            best = everything(admitted)
        assert cost_of(found.allocations) == best, seed
        assert found.least_node_s <= cost_of(found.allocations)[0], "what is proven is true"
        assert repr(requests) == before
    assert served >= IN_A_TEST / 10
    assert refused >= IN_A_TEST / 10


@pytest.mark.parametrize("shape", SHAPES)
def test_of_one_job_too(shape: str) -> None:
    for seed in seeds(SHAPES, shape, 1, 10):
        requests = requests_of(seed, jobs=1)
        found = by_program(requests, endless)
        assert found is not None
        check(requests, found.allocations)
        if (best := everything(requests)) is not None:
            assert cost_of(found.allocations) == best, seed


def test_all_jobs_leave_where_all_are_needed() -> None:
    has = Amounts(4, 100, (("", 4),))
    nodes = tuple(NodeResources(f"n{index}", has) for index in range(4))
    kill = (Option(Action.KILL, 5),)
    jobs = tuple(
        Candidate(str(index), 2, kill, (f"n{index}", f"n{(index + 1) % 4}"), (Amounts(2, 50, (("", 2),)),) * 2)
        for index in range(4)
    )
    whole = Needs(Amounts(4, 0, (("", 3),)))
    requests = [_request(f"u{index}", 2, 10, whole, nodes, jobs) for index in range(2)]
    found = by_program(requests, endless)
    assert found is not None
    assert found.proven
    check(requests, found.allocations)
    assert cost_of(found.allocations) == (20, 0, 0, 4)
    assert found.least_node_s == 20


@pytest.mark.parametrize("shape", SHAPES)
def test_the_answer_does_not_depend_on_the_order_of_candidates_and_ways(shape: str) -> None:
    for seed in seeds(SHAPES, shape, 2, 10):
        requests = requests_of(seed)
        turned = []
        for request in requests:
            jobs = [replace(each, options=tuple(reversed(each.options))) for each in request.problem.candidates]
            turned.append(replace(request, problem=replace(request.problem, candidates=tuple(reversed(jobs)))))
        assert by_program(requests, endless) == by_program(turned, endless), seed


@pytest.mark.parametrize("shape", SHAPES)
def test_with_many_nodes_the_plan_is_as_good_on_small_ones(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way for large clusters, taken for small ones: valid, as many are served, and what is proven is true."""
    for name in ("FEW_NODES", "FEW_CANDIDATES"):
        monkeypatch.setattr(several, name, 0)
    served = worse = 0
    for seed in seeds(SHAPES, shape, 3, 20):
        requests = requests_of(seed)
        found, every = plan_together(requests, endless), by_program(requests, endless)
        assert found is not None
        assert every is not None
        check(requests, found.allocations)
        assert not found.later
        order = [request.job_id for request in requests]
        assert unserved(found.served, order) == unserved(every.served, order), seed
        mine, best = cost_of(found.allocations), cost_of(every.allocations)
        assert mine >= best, seed
        assert mine[0] == best[0] or not found.proven, seed
        assert len(every.allocations) < len(requests) or found.least_node_s <= best[0], seed
        served += len(every.allocations) > 0
        worse += mine > best
    assert served >= 10
    assert worse * 4 <= served


def test_without_time_there_is_no_answer() -> None:
    assert all(by_program(requests_of(seed), lambda: 0.0) is None for seed in range(40))
