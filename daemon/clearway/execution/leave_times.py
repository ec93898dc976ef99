"""How long jobs take to leave their nodes: what plans allow for it follows what was seen.

From the requeue until a snapshot shows the job in the queue: until then Slurm ends its processes (KillWait), and its
epilog runs. ``execution.kill_allowance`` is the least that is allowed for. A site's epilog may take longer than that,
and urgent jobs would be late again and again.
"""

from collections import deque
from collections.abc import Iterable
from math import ceil

from clearway.config.configuration import Config
from clearway.model.operations import Operation, Preemption
from clearway.model.problem import Action

_REMEMBERED = 20  # jobs
_SHARE = 0.8  # of these that had left within the time that is allowed for: a few that hung do not count
_MOST_S = 600.0  # what takes longer is a node that does not end its jobs, and no measure for others


class LeaveTimes:
    """The newest of them, by the jobs of operations under way; forgotten when the daemon ends."""

    def __init__(self) -> None:
        self._seen: deque[tuple[object, float]] = deque(maxlen=_REMEMBERED)
        self._changed: tuple[Config, float, Config] | None = None

    def observe(self, operations: Iterable[Operation]) -> None:
        """To be called in every cycle."""
        known = {which for which, _ in self._seen}
        for operation in operations:
            for p in operation.preemptions:
                which, took_s = (operation.eviction_id, p.job.run), _took_s(p)
                if took_s is not None and which not in known:
                    self._seen.append((which, took_s))

    @property
    def allowance_s(self) -> float:
        """Within which most of them had left; 0 where none is known."""
        times = sorted(took_s for _, took_s in self._seen)
        return times[ceil(_SHARE * len(times)) - 1] if times else 0.0

    def allowed(self, config: Config) -> Config:
        """The configuration with an allowance that does for what was seen."""
        allowance_s = self.allowance_s
        if allowance_s <= config.execution.kill_allowance:
            return config
        if self._changed is None or self._changed[0] is not config or self._changed[1] != allowance_s:
            execution = config.execution.model_copy(update={"kill_allowance": allowance_s})
            self._changed = config, allowance_s, config.model_copy(update={"execution": execution})
        return self._changed[2]


def _took_s(p: Preemption) -> float | None:
    """None for a job that has not left so, or of which it is not known: it was seen again only in its next run."""
    if p.requeued_at is None or p.vacated_at is None or p.action in (Action.SUSPEND, Action.END):
        return None
    if p.vacated_at == p.returned_at:
        return None
    took_s = (p.vacated_at - p.requeued_at).total_seconds()
    return took_s if took_s <= _MOST_S else None
