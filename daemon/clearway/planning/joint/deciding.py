"""What urgent jobs ask of nodes without what never decides, so that more of them are alike.

Model: of a node with S of one resource and R of another, jobs hold s_j and r_j; an urgent job needs a and b of them. If

    r_j (S - a)  <=  s_j (R - b)  for each job j there, and R >= b,

then there is room for b wherever there is room for a: jobs that stay hold at most S - a in all of the one, so of the
other at most (R - b) / (S - a) as much. (Where S = a only jobs that hold nothing of the one may stay, and they must
hold nothing of the other.) Where that is so on every node, the urgent job is given the same nodes without its need for
b. Processors and memory are such needs beside GPUs on most clusters: then urgent jobs differ in their GPUs alone.

Cost: time in the number of (job, node) pairs for each kind of urgent job; in numpy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from clearway.model.problem import Amounts, EvictionProblem, Needs
from clearway.planning.joint.requests import Request

_Ints = npt.NDArray[np.int64]
_Of = Callable[[Amounts], int]


def deciding(requests: Sequence[Request]) -> list[Request]:
    """The same requests, without needs that are met wherever their other needs are."""
    grounds: dict[tuple[int, int], _Ground] = {}
    known: dict[tuple[int, int, Needs], Needs] = {}
    found = []
    for each in requests:
        needs = each.problem.needs
        if needs is None or needs.together or needs.required_nodes or each.problem.pools:
            found.append(each)
            continue
        same = (id(each.problem.candidates), id(each.problem.nodes))
        if (*same, needs) not in known:
            if same not in grounds:
                grounds[same] = _Ground(each.problem)
            known[*same, needs] = replace(needs, per_node=_deciding(needs.per_node, grounds[same]))
        found.append(replace(each, problem=replace(each.problem, needs=known[*same, needs])))
    return found


class _Ground:
    """What nodes have, and what is held there, by resource; found when it is asked for."""

    def __init__(self, problem: EvictionProblem) -> None:
        self._nodes = problem.nodes
        place = {node.name: number for number, node in enumerate(problem.nodes)}
        self._held = [(number, node.held) for number, node in enumerate(problem.nodes) if node.held != Amounts()]
        for job in problem.candidates:
            holds = job.holds or [problem.nodes[place[name]].has for name in job.node_names]
            self._held += [(place[name], amounts) for name, amounts in zip(job.node_names, holds, strict=True)]
        self.on: _Ints = np.array([number for number, _ in self._held], dtype=np.int64)
        self._known: dict[str, tuple[_Ints, _Ints]] = {}

    def amounts(self, name: str, of: _Of) -> tuple[_Ints, _Ints]:
        """So much has each node; so much is held, in the order of ``on``."""
        if name not in self._known:
            has = np.array([of(node.has) for node in self._nodes], dtype=np.int64)
            self._known[name] = has, np.array([of(amounts) for _, amounts in self._held], dtype=np.int64)
        return self._known[name]


@dataclass(frozen=True, slots=True)
class _Need:
    """Of one resource; its name has what no name of GPUs has before it."""

    name: str
    of: _Of
    asked: int


def _needs(per_node: Amounts) -> list[_Need]:
    """GPUs last: they decide most often."""
    found = [
        _Need("/cores", lambda amounts: amounts.cores, per_node.cores),
        _Need("/memory", lambda amounts: amounts.memory_mib, per_node.memory_mib),
    ]
    found += [_Need(name, partial(Amounts.gpus_of, gpu_type=name), count) for name, count in per_node.gpus]
    return [each for each in found if each.asked]


def _deciding(per_node: Amounts, ground: _Ground) -> Amounts:
    needs = _needs(per_node)
    for need in list(needs):
        if any(_met_with(other, need, ground) for other in needs if other is not need):
            needs.remove(need)
    left = {each.name for each in needs}
    return Amounts(
        per_node.cores if "/cores" in left else 0,
        per_node.memory_mib if "/memory" in left else 0,
        tuple([each for each in per_node.gpus if each[0] in left]),
    )


def _met_with(one: _Need, other: _Need, ground: _Ground) -> bool:
    """Whether on every node that has enough of the one there is room for the other wherever there is for the one."""
    has, held = ground.amounts(one.name, one.of)
    has_other, held_other = ground.amounts(other.name, other.of)
    spare, spare_other = has - one.asked, has_other - other.asked
    if np.any((spare >= 0) & (spare_other < 0)):
        return False
    on = ground.on
    at_most = held_other * np.maximum(spare[on], 0) <= held * np.maximum(spare_other[on], 0)
    none = (spare[on] != 0) | (held > 0) | (held_other == 0)
    return bool(np.all((at_most & none) | (spare[on] < 0)))
