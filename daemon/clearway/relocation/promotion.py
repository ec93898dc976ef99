"""Promotion: jobs leave lower-ranked nodes for free higher-ranked ones, and scarce nodes that they do not need. Pure.

Model: "scheduling with priorities" of the Slurm+DMTCP paper, which keeps the better nodes as full as possible, so that
the lesser ones stay idle, and empties scarce resources as soon as possible. Where a job stands is read off its worst
node: worst is a scarce node that it does not need, then the lowest rank. All parts on nodes of that standing rise
together or none does; its other parts stay.

- gain: node-seconds of worse nodes that are given back, by the processors that leave them, from when the job is saved
  until its expected end.
- cost: see ``moves``.

The largest gain less cost comes first. Free processors go to the job's largest part, on the best node that is free
for it, and of equally good ones the fullest. No other jobs are shifted to make room, and no claim is made that another
choice would not gain more.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from clearway.relocation.moves import Host, Limits, Move, MovePlan, Resident, cost_node_s, free_processors

_Standing = tuple[bool, int]  # no scarce node that it does not need; rank


def plan_promotion(hosts: Sequence[Host], residents: Sequence[Resident], limits: Limits) -> MovePlan:
    """Which jobs go where; a plan without moves when nothing is worth it."""
    by_name = {host.name: host for host in hosts}
    processors = {host.name: host.processors for host in hosts}
    free = free_processors(hosts, residents)
    moves: list[Move] = []
    moved: set[str] = set()
    waited_s = gain_node_s = spent_node_s = 0.0
    for job in _by_gain(residents, by_name, processors):
        if len(moved) == limits.jobs:
            break
        gain, cost = _gain_node_s(job, by_name, waited_s), cost_node_s(job, processors)
        risen = _risen(job, by_name, free) if gain > limits.worth * cost else ()
        if not risen:
            continue
        moved.add(job.job_id)
        waited_s += job.move_s or 0.0
        gain_node_s += gain
        spent_node_s += cost
        moves += risen
        for move in risen:
            # What they leave is not given away yet: they hold it until they have been saved.
            free[move.target] -= move.processors
    return MovePlan(tuple(moves), _emptied(moves, residents), gain_node_s, spent_node_s)


def _emptied(moves: Sequence[Move], residents: Sequence[Resident]) -> tuple[str, ...]:
    """The nodes that no job holds after these moves."""
    held_by = Counter(part.node for resident in residents for part in resident.parts)
    held_by.update(move.target for move in moves)
    held_by.subtract(move.source for move in moves)
    return tuple(name for name in dict.fromkeys(move.source for move in moves) if held_by[name] == 0)


def _by_gain(
    residents: Sequence[Resident], by_name: Mapping[str, Host], processors: Mapping[str, int]
) -> list[Resident]:
    """Those that can be moved, by what each would gain were it the first: others wait until it has been saved."""
    movable = [resident for resident in residents if resident.movable and resident.nodes <= by_name.keys()]
    return sorted(movable, key=lambda job: (cost_node_s(job, processors) - _gain_node_s(job, by_name, 0.0), job.job_id))


def _standing(job: Resident, host: Host) -> _Standing:
    return (job.needs_scarce or not host.scarce, host.rank)


def _worst(job: Resident, by_name: Mapping[str, Host]) -> _Standing:
    return min(_standing(job, by_name[part.node]) for part in job.parts)


def _gain_node_s(job: Resident, by_name: Mapping[str, Host], waited_s: float) -> float:
    """If all parts on its worst nodes rise; ``waited_s``: until its turn to be saved."""
    worst = _worst(job, by_name)
    hosts = [(part.processors, by_name[part.node]) for part in job.parts]
    nodes = sum(count / host.processors for count, host in hosts if _standing(job, host) == worst)
    return nodes * ((job.remaining_s or 0.0) - waited_s - (job.move_s or 0.0))


def _risen(job: Resident, by_name: Mapping[str, Host], free: Mapping[str, int]) -> tuple[Move, ...]:
    """A better node for each part on its worst ones; empty when one of them has none."""
    worst = _worst(job, by_name)
    parts = [part for part in job.parts if _standing(job, by_name[part.node]) == worst]
    taken = set(job.nodes)
    moves = []
    for part in sorted(parts, key=lambda part: (-part.processors, part.node)):
        better = [
            host
            for host in by_name.values()
            if _standing(job, host) > worst
            and free[host.name] >= part.processors
            and host.name not in taken
            and job.may_go_to(host.name)
        ]
        if not better:
            return ()
        highest = max(_standing(job, host) for host in better)
        # Scarce nodes are for jobs that need them: even such a job leaves them alone where others are as good.
        best = min(
            (host for host in better if _standing(job, host) == highest),
            key=lambda host: (host.scarce, free[host.name], host.name),
        )
        taken.add(best.name)
        moves.append(Move(job.job_id, part.node, best.name, part.processors))
    return tuple(moves)
