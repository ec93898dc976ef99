"""How far a run of all experiments is, and how long the rest will take. Pure: the clock is passed in.

Model: each experiment has parts (its sweeps, one after another), and each part took so many seconds the last time that
they were measured. The measured seconds tell parts from each other, not how fast this machine is: what is left takes as
long for each of them as what is done did. The first ``_TRUSTED_S`` count as if they had been as fast as then, so that
there is an estimate from the beginning and its first changes are small.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

_TRUSTED_S = 15.0
# Seconds of processor time of each part, and more of them for each drawing (a seed, a random day), measured on one
# machine. What matters is the ratios.
LAST_S: Mapping[str, Sequence[tuple[float, float]]] = {
    "stochastic": ((40, 0), (17, 0)),
    "compaction": ((0, 2.8),),
    "drain": ((15, 0),),
    "promises": ((12, 21),),
    "urgent": ((7, 57),),
    "realtime": ((3, 0), (1, 68)),
    "cosim": ((2, 0), (3, 0), (22, 0), (1, 0)),
}
ALONE = frozenset({"cosim"})  # computed by one process, whatever is asked for


@dataclass(slots=True)
class Course:
    """A run of experiments, from its making on."""

    parts: dict[str, list[float]]  # by experiment: what each of its parts takes
    clock: Callable[[], float]
    began_s: float = field(init=False)
    done: dict[str, float] = field(init=False, default_factory=dict)  # by experiment: what is done, of the same
    experiment: str = field(init=False, default="")
    _part: int = field(init=False, default=-1)

    def __post_init__(self) -> None:
        self.began_s = self.clock()

    def begin(self, experiment: str) -> None:
        self.experiment, self._part = experiment, -1
        self.done[experiment] = 0.0

    def next_part(self) -> None:
        """The part before it is done."""
        self._part += 1
        self.reached(0.0)

    def reached(self, share: float) -> None:
        """So much of the part is done."""
        parts = self.parts[self.experiment]
        part = min(self._part, len(parts) - 1)
        self.done[self.experiment] = sum(parts[:part]) + share * parts[part]

    def end(self, *, made: bool) -> None:
        """An experiment that was not made counts for nothing."""
        if not made:
            self.parts[self.experiment] = [0.0]
        self.done[self.experiment] = sum(self.parts[self.experiment])

    @property
    def share(self) -> float:
        """What is done, of everything."""
        whole = self._whole()
        return sum(self.done.values()) / whole if whole else 1.0

    @property
    def passed_s(self) -> float:
        return self.clock() - self.began_s

    @property
    def left_s(self) -> float:
        done = sum(self.done.values())
        return (self._whole() - done) * (self.passed_s + _TRUSTED_S) / (done + _TRUSTED_S)

    def _whole(self) -> float:
        return sum(map(sum, self.parts.values()))


def expected(drawings: Mapping[str, int], processes: int) -> dict[str, list[float]]:
    """What the parts of all experiments would have taken the last time, with so many drawings and processes."""
    return {
        name: [
            (fixed_s + drawn_s * drawings.get(name, 1)) / (1 if name in ALONE else processes)
            for fixed_s, drawn_s in parts
        ]
        for name, parts in LAST_S.items()
    }
