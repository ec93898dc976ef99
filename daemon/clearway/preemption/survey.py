"""What the urgent jobs of one cycle have in common, each part found once.

Model: of what a plan for an urgent job is made from, most depends on few of its fields: which nodes could serve it on
what they have and what the job asks of each, which jobs may leave and how on its rule. Each part is named by all that
it depends on, beside the snapshot, the configuration and the moment, which are the same for a survey. Parts that are
equal are one object, so that comparing them takes no time.

Urgent jobs that differ in their delays differ in the jobs that end by themselves within these. Where a survey is for
several of them, all ends within the longest delay are known for each: an end that comes too late for one of them is an
option that no deadline of its own has time for. So their problems have the same candidates (``planning.dp.numbers``).

Cost: a look at every node and running job for each kind of urgent job, instead of for each urgent job.
"""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

from clearway.preemption.looks import KeptLooks

T = TypeVar("T")


class Survey:
    """Parts by name; made for one snapshot, configuration and moment."""

    def __init__(self, longest_s: float = 0.0, kept_looks: KeptLooks | None = None) -> None:
        """``longest_s``: the longest time that any of the urgent jobs has; 0: it is for one of them."""
        self.kept_looks = kept_looks
        self._longest_s = longest_s
        self._parts: dict[Hashable, Any] = {}
        self.found = 0  # parts that had to be looked for

    def once(self, name: Hashable, find: Callable[[], T]) -> T:
        """The part of this name."""
        if name not in self._parts:
            self._parts[name] = find()
            self.found += 1
        return cast(T, self._parts[name])

    def ends_within_s(self, horizon_s: float) -> float:
        """Ends of jobs that come later are not looked at."""
        return max(horizon_s, self._longest_s)
