"""Several urgent jobs of which some take parts of nodes or certain ones, planned at once, beside trying everything."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil

import pytest

from clearway.model.problem import Action, Amounts, Candidate, EvictionProblem, Needs, NodeResources, Option
from clearway.planning import cheapest_nodes
from clearway.planning.parties import Party, Share, Together
from clearway.planning.several import at_once, by_program, unserved
from tests.oracle.many import seeds
from tests.oracle.problems import TIMES

BLOCKS, IN_A_TEST = TIMES, 50  # of each shape
SHAPES = ("gpus", "types", "memory", "ties", "ends", "suspends", "certain", "in a row", "one switch", "everything")
Cost = tuple[Fraction, int, int, int]
Picked = Mapping[str, tuple[Option, int] | None]  # of each job: how it leaves, and for the party of which number


def endless() -> float:
    return 60.0


def parties_of(seed: int, *, jobs: int | None = None) -> tuple[Party, ...]:
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
    parties = []
    for index in range(rng.randint(2, 3)):
        whole = rng.random() < 0.2 or (shape == "suspends" and rng.random() < 0.3)
        suits = nodes if not every or rng.random() < 0.5 else [node for node in nodes if rng.random() < 0.7]
        needs = None if whole else _needs(rng, shape, suits)
        parties.append(
            _party(f"u{index}", rng.choice((1, 1, 1, 2, 2, 3)), rng.randint(0, 12), needs, suits, candidates)
        )
    return tuple(parties)


def _node(rng: random.Random, shape: str, index: int) -> NodeResources:
    gpus: tuple[tuple[str, int], ...] = (("", rng.choice((2, 4))),)
    if shape in ("types", "everything"):
        gpus = tuple((name, rng.choice((0, 2, 4))) for name in ("a100", "h100"))
    has = Amounts(rng.choice((4, 8)), rng.choice((100, 64_000)), gpus)
    fast = shape not in ("certain", "everything") or rng.random() < 0.7
    return NodeResources(
        f"n{index}",
        has,
        features=("fast",) if fast else (),
        partitions=("main",),
        switch=rng.choice(("s1", "s2", "s2", "")),
    )


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


def _party(
    job_id: str,
    count: int,
    max_delay_s: int,
    needs: Needs | None,
    suits: Sequence[NodeResources],
    jobs: Sequence[Candidate],
) -> Party:
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
    return Party(job_id, count, problem, free)


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


def everything(parties: Sequence[Party]) -> Cost | None:
    """The least cost of serving them all; every way, every party in time and every choice of nodes is tried."""
    order = sorted(parties, key=lambda party: (party.problem.max_delay_s, party.job_id))
    jobs = sorted({job.job_id for party in order for job in party.problem.candidates})
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


def _choices(order: Sequence[Party], job_id: str) -> Iterator[tuple[Option, int]]:
    for phase, party in enumerate(order):
        for job in party.problem.candidates:
            if job.job_id == job_id:
                yield from ((option, phase) for option in job.options if option.action is not Action.END)


def _in_time(order: Sequence[Party], picked: Picked) -> bool:
    used = [choice for choice in picked.values() if choice is not None]
    return all(
        sum(ceil(option.checkpoint_s) for option, before in used if before <= phase) <= party.problem.max_delay_s
        for phase, party in enumerate(order)
    )


def _cost(picked: Picked) -> Cost:
    used = [choice[0] for choice in picked.values() if choice is not None]
    return (
        sum((Fraction(str(option.lost_work_node_s)) for option in used), Fraction(0)),
        sum(option.return_node_s for option in used),
        sum(ceil(option.checkpoint_s) for option in used),
        len(used),
    )


def _gone(order: Sequence[Party], picked: Picked, phase: int) -> tuple[frozenset[str], frozenset[str]]:
    """Who has left by a party's delay, and who stands suspended for somebody else."""
    left, kept = set(), set()
    for job_id, choice in picked.items():
        if choice is None:
            continue
        if choice[0].action is Action.SUSPEND and choice[1] != phase:
            kept.add(job_id)
        elif choice[1] <= phase:
            left.add(job_id)
    for job in (job for party in order for job in party.problem.candidates):
        for option in job.options:
            if option.action is Action.END and option.ready_s <= order[phase].problem.max_delay_s:
                left.add(job.job_id)
    return frozenset(left - kept), frozenset(kept)


def _placed(order: Sequence[Party], gone: Sequence[tuple[frozenset[str], frozenset[str]]]) -> bool:
    """Whether all can have nodes of their own."""
    ways = []
    for party, (left, kept) in zip(order, gone, strict=True):
        names = [node for node in names_of(party) if serves(order, party, node, left, kept)]
        ways.append([set(each) for each in itertools.combinations(names, party.nodes) if lie_as_asked(party, each)])

    def place(phase: int, taken: set[str]) -> bool:
        if phase == len(order):
            return True
        return any(not way & taken and place(phase + 1, taken | way) for way in ways[phase])

    return place(0, set())


def names_of(party: Party) -> list[str]:
    if party.problem.needs is not None:
        return [node.name for node in party.problem.nodes]
    return sorted({*party.free_nodes, *(name for job in party.problem.candidates for name in job.node_names)})


def serves(
    parties: Sequence[Party], party: Party, name: str, left: Collection[str], kept: Collection[str] = ()
) -> bool:
    holders = {job.job_id for each in parties for job in each.problem.candidates if name in job.node_names}
    if holders & set(kept):
        return False
    needs = party.problem.needs
    if needs is None:
        return holders <= set(left)
    (node,) = [node for node in party.problem.nodes if node.name == name]
    if name in needs.excluded_nodes or not set(needs.features) <= set(node.features):
        return False
    staying = [
        job.holds[job.node_names.index(name)] if job.holds else node.has
        for job in party.problem.candidates
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


def lie_as_asked(party: Party, chosen: Sequence[str]) -> bool:
    needs = party.problem.needs
    if needs is None:
        return True
    at = [index for index, node in enumerate(party.problem.nodes) if node.name in chosen]
    switches = {party.problem.nodes[index].switch for index in at}
    return (
        set(needs.required_nodes) <= set(chosen)
        and (not needs.contiguous or at[-1] - at[0] + 1 == len(at))
        and (not needs.one_switch or (len(switches) == 1 and "" not in switches))
    )


def check(parties: Sequence[Party], shares: Sequence[Share]) -> None:
    """Every share keeps what it promises."""
    by_id = {party.job_id: party for party in parties}
    suspended = {job_id: share for share in shares for job_id, way in share.leaving if way.action is Action.SUSPEND}
    left: set[str] = set()
    given: set[str] = set()
    for share in shares:
        party = by_id[share.job_id]
        assert len(share.nodes) == len(set(share.nodes)) == party.nodes
        assert not given & set(share.nodes), "no node for two"
        given |= set(share.nodes)
        own = {job_id for job_id, _ in share.leaving}
        assert not left & own, "no job for two"
        assert set(share.counts_on) <= left, "who leaves for others does so before"
        left |= own
        gone = own | set(share.counts_on) | {job_id for job_id, _ in share.ending}
        kept = {job_id for job_id, of in suspended.items() if of is not share}
        assert all(serves(parties, party, name, gone, kept) for name in share.nodes)
        assert lie_as_asked(party, share.nodes)
        assert share.done_s <= party.problem.max_delay_s


def cost_of(shares: Sequence[Share]) -> Cost:
    return _cost({job_id: (option, 0) for share in shares for job_id, option in share.leaving})


@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_what_trying_everything_finds(shape: str, block: int) -> None:
    served = refused = 0
    for seed in seeds(SHAPES, shape, block, IN_A_TEST):
        parties = parties_of(seed)
        before = repr(parties)
        found = by_program(parties, endless)
        assert found is not None
        assert found.proven
        check(parties, found.shares)
        best = everything(parties)
        if best is not None:
            served += 1
            assert len(found.shares) == len(parties), (seed, best)
        else:
            refused += 1
            admitted: list[Party] = []
            for party in parties:
                if everything((*admitted, party)) is not None:
                    admitted.append(party)
            assert {share.job_id for share in found.shares} == {party.job_id for party in admitted}, seed
            best = everything(admitted)
        assert cost_of(found.shares) == best, seed
        assert found.least_node_s <= Together(found.shares, 0.0).cost.lost_work_node_s, "what is proven is true"
        assert repr(parties) == before
    assert served >= IN_A_TEST / 10
    assert refused >= IN_A_TEST / 10


@pytest.mark.parametrize("shape", SHAPES)
def test_of_one_job_too(shape: str) -> None:
    for seed in seeds(SHAPES, shape, 1, 10):
        parties = parties_of(seed, jobs=1)
        found = by_program(parties, endless)
        assert found is not None
        check(parties, found.shares)
        if (best := everything(parties)) is not None:
            assert cost_of(found.shares) == best, seed


def test_all_jobs_leave_where_all_are_needed() -> None:
    has = Amounts(4, 100, (("", 4),))
    nodes = tuple(NodeResources(f"n{index}", has) for index in range(4))
    kill = (Option(Action.KILL, 5),)
    jobs = tuple(
        Candidate(str(index), 2, kill, (f"n{index}", f"n{(index + 1) % 4}"), (Amounts(2, 50, (("", 2),)),) * 2)
        for index in range(4)
    )
    whole = Needs(Amounts(4, 0, (("", 3),)))
    parties = [_party(f"u{index}", 2, 10, whole, nodes, jobs) for index in range(2)]
    found = by_program(parties, endless)
    assert found is not None
    assert found.proven
    check(parties, found.shares)
    assert cost_of(found.shares) == (20, 0, 0, 4)
    assert found.least_node_s == 20


@pytest.mark.parametrize("shape", SHAPES)
def test_the_answer_does_not_depend_on_the_order_of_candidates_and_ways(shape: str) -> None:
    for seed in seeds(SHAPES, shape, 2, 10):
        parties = parties_of(seed)
        turned = []
        for party in parties:
            jobs = [replace(each, options=tuple(reversed(each.options))) for each in party.problem.candidates]
            turned.append(replace(party, problem=replace(party.problem, candidates=tuple(reversed(jobs)))))
        assert by_program(parties, endless) == by_program(turned, endless), seed


@pytest.mark.parametrize("shape", SHAPES)
def test_on_the_cheapest_nodes_alone_plans_stay_valid_and_claim_no_proof(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way for large clusters, taken for small ones."""
    for name in ("FEW_NODES", "SPARE_NODES", "FEW_PLACES"):
        monkeypatch.setattr(cheapest_nodes, name, 0)
    served = worse = 0
    for seed in seeds(SHAPES, shape, 3, 20):
        parties = parties_of(seed)
        found = at_once(parties, endless)
        every = by_program(parties, endless)
        assert found is not None
        assert every is not None
        check(parties, found.shares)
        order = [party.job_id for party in parties]
        ranks = [(unserved(Together(each.shares, 0.0).served, order), cost_of(each.shares)) for each in (found, every)]
        assert ranks[0] >= ranks[1]
        assert ranks[0] == ranks[1] or not found.proven
        served += len(every.shares) > 0
        worse += ranks[0] > ranks[1]
    assert served >= 10
    assert worse * 4 <= served


def test_without_time_there_is_no_answer() -> None:
    assert all(by_program(parties_of(seed), lambda: 0.0) is None for seed in range(40))
