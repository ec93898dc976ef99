"""Plans that were parsed already. They never change once stored, and a big one takes 10 ms to parse."""

from collections.abc import Collection

from clearway.model.plan import OperationPlan

PlanKey = tuple[int, int]  # eviction id, revision

CAPACITY_CHARS = 8 * 1024 * 1024  # of JSON; the objects take a few times as much


class PlanCache:
    """Holds what fits and turns away the rest: all open evictions are read in turn, so evicting would only churn.

    The loop's thread writes, others read at most; replacing the dictionary keeps both safe without a lock.
    """

    def __init__(self, capacity_chars: int = CAPACITY_CHARS) -> None:
        self._capacity = capacity_chars
        self._plans: dict[PlanKey, tuple[OperationPlan, int]] = {}

    def get(self, key: PlanKey) -> OperationPlan | None:
        held = self._plans.get(key)
        return held[0] if held is not None else None

    def put(self, key: PlanKey, plan: OperationPlan, chars: int) -> None:
        if chars + sum(size for _, size in self._plans.values()) <= self._capacity:
            self._plans = self._plans | {key: (plan, chars)}

    def keep_only(self, keys: Collection[PlanKey]) -> None:
        """Forget every other plan."""
        if self._plans.keys() - keys:
            self._plans = {key: held for key, held in self._plans.items() if key in keys}
