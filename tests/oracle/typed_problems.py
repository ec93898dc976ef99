"""Random eviction problems where jobs share nodes by parts: GPUs of types, cores, memory, and where nodes must lie."""

from __future__ import annotations

import random
from dataclasses import replace

from clearway.model.problem import Amounts, Candidate, EvictionProblem, Needs, NodeResources
from tests.oracle.problems import random_problem

KINDS = (
    "gpus", "types", "all resources", "whole nodes", "chosen nodes", "in a row", "one switch", "everything",
    "licenses", "few switches", "same feature",
)  # fmt: skip
_TYPES = ("a100", "h100")


def typed_problem(seed: int, *, jobs: int | None = None) -> EvictionProblem:
    """The jobs of ``random_problem`` on nodes that they share by parts; the seed decides everything."""
    rng = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    plain = random_problem(seed // len(KINDS), jobs)
    nodes = [_node(rng, kind, index) for index in range(rng.randint(1, 6))]
    candidates = tuple(_placed(rng, kind, candidate, nodes) for candidate in plain.candidates)
    if rng.random() < 0.2:  # somebody who stays
        node = rng.choice(nodes)
        nodes[nodes.index(node)] = replace(node, held=_part(rng, node.has))
    needs = _needs(rng, kind, nodes)
    made = replace(
        plain,
        nodes_needed=rng.randint(1, len(nodes) + (rng.random() < 0.2)),
        candidates=candidates,
        needs=needs,
        nodes=tuple(nodes),
    )
    for name in ("a", "b")[: rng.randint(1, 2) if kind == "licenses" else int(kind == "same feature")]:
        made = _with_license(rng, made, f"license {name}")
    return made


def _with_license(rng: random.Random, problem: EvictionProblem, name: str) -> EvictionProblem:
    """Some jobs hold the license; what they hold and others use may be more than there is."""
    total = rng.randint(1, 6)
    pool = NodeResources(name, Amounts(total), held=Amounts(rng.choice((0, 0, 1))), pool=Amounts(rng.randint(1, total)))
    candidates = []
    for each in problem.candidates:
        if rng.random() < 0.7:
            has = {node.name: node.has for node in problem.nodes}
            holds = (*(each.holds or [has[at] for at in each.node_names]), Amounts(rng.randint(1, 3)))
            each = replace(each, nodes=each.nodes + 1, node_names=(*each.node_names, name), holds=holds)  # noqa: PLW2901
        candidates.append(each)
    needs = problem.needs
    assert needs is not None
    return replace(
        problem,
        nodes_needed=problem.nodes_needed + 1,
        candidates=tuple(candidates),
        needs=replace(needs, required_nodes=(*needs.required_nodes, name)),
        nodes=(*problem.nodes, pool),
    )


def _node(rng: random.Random, kind: str, index: int) -> NodeResources:
    gpus: tuple[tuple[str, int], ...] = (("", rng.choice((2, 4, 8))),)
    if kind in ("types", "everything"):
        gpus = tuple((name, rng.choice((0, 2, 4))) for name in _TYPES)
    has = Amounts(cores=rng.choice((8, 16)), memory_mib=rng.choice((100, 64_000)), gpus=gpus)
    some = kind in ("chosen nodes", "everything")
    return NodeResources(
        f"n{index}",
        has,
        features=_features(rng) if kind == "same feature" else ("fast",) if some and rng.random() < 0.7 else (),
        partitions=("main", "urgent") if not some or rng.random() < 0.8 else ("main",),
        switch=rng.choice(("s1", "s1", "s2", "") if kind != "few switches" else ("s1", "s2", "s3", "s4", "")),
    )


def _features(rng: random.Random) -> tuple[str, ...]:
    return tuple(name for name in ("f1", "f2") if rng.random() < 0.6)


def _part(rng: random.Random, has: Amounts) -> Amounts:
    return Amounts(
        cores=rng.randint(0, has.cores),
        memory_mib=rng.choice((0, has.memory_mib // 3, has.memory_mib)),
        gpus=tuple((name, rng.randint(0, count)) for name, count in has.gpus),
    )


def _placed(rng: random.Random, kind: str, candidate: Candidate, nodes: list[NodeResources]) -> Candidate:
    """Some hold parts, some whole nodes without saying so; together they may hold more than there is."""
    mine = rng.sample(nodes, rng.randint(1, min(3, len(nodes))))
    holds = tuple(_part(rng, node.has) for node in mine) if kind != "whole nodes" and rng.random() < 0.85 else ()
    return replace(candidate, nodes=len(mine), node_names=tuple(node.name for node in mine), holds=holds)


def _needs(rng: random.Random, kind: str, nodes: list[NodeResources]) -> Needs:
    names = [node.name for node in nodes]
    gpus: tuple[tuple[str, int], ...] = (("", rng.choice((1, 2, 4))),)
    if kind in ("types", "everything"):
        gpus = tuple((name, rng.choice((1, 2))) for name in rng.sample(("", *_TYPES), rng.randint(1, 2)))
    every = kind in ("all resources", "everything")
    needs = Needs(
        Amounts(
            cores=rng.choice((0, 4, 8)) if every else 0,
            memory_mib=rng.choice((0, 64, 100)) if every else 0,
            gpus=gpus if kind != "whole nodes" or rng.random() < 0.3 else (),
        )
    )
    if kind in ("chosen nodes", "everything"):
        needs = replace(
            needs,
            features=("fast",) if rng.random() < 0.4 else (),
            partition="urgent" if rng.random() < 0.4 else "",
            required_nodes=tuple(rng.sample(names, min(len(names), rng.choice((0, 1, 1, 2))))),
            excluded_nodes=tuple(rng.sample(names, min(len(names), rng.choice((0, 0, 1))))),
        )
    return replace(
        needs,
        contiguous=kind == "in a row" or (kind == "everything" and rng.random() < 0.3),
        switches=2 * (kind == "few switches"),
        same_feature=("f1", "f2") if kind == "same feature" else (),
        one_switch=kind == "one switch" or (kind in ("everything", "in a row") and rng.random() < 0.3),
    )
