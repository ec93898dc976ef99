"""Plans that were parsed already. They never change once stored, and a big one takes 10 ms to parse."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from clearway.model.plan import OperationPlan

PlanKey = tuple[int, int]  # eviction id, revision

CAPACITY_CHARS = 16 * 1024 * 1024  # of JSON; the objects take a few times as much


class Part(NamedTuple):
    """What several plans have in common, and how many characters of JSON it is."""

    value: tuple[object, ...]
    chars: int


class _Held(NamedTuple):
    plan: OperationPlan
    chars: int  # without its parts
    parts: Mapping[str, Part]


class PlanCache:
    """Holds what fits and turns away the rest: all open evictions are read in turn, so evicting would only churn.

    The loop's thread writes, others read at most; replacing the dictionaries keeps both safe without a lock.
    """

    def __init__(self, capacity_chars: int = CAPACITY_CHARS) -> None:
        self._capacity = capacity_chars
        self._plans: dict[PlanKey, _Held] = {}
        self._parts: dict[str, Part] = {}  # of these plans, each counted once
        self._chars = 0

    def get(self, key: PlanKey) -> OperationPlan | None:
        held = self._plans.get(key)
        return held.plan if held is not None else None

    def part(self, digest: str) -> Part | None:
        return self._parts.get(digest)

    def put(self, key: PlanKey, plan: OperationPlan, chars: int, parts: Mapping[str, Part]) -> None:
        """``chars``: without its parts, which are named by their digests."""
        new = {digest: part for digest, part in parts.items() if digest not in self._parts}
        more = chars + sum(part.chars for part in new.values())
        if self._chars + more <= self._capacity:
            self._plans = self._plans | {key: _Held(plan, chars, parts)}
            self._parts = self._parts | new
            self._chars += more

    def keep_only(self, keys: Collection[PlanKey]) -> None:
        """Forget every other plan."""
        if self._plans.keys() - keys:
            self._plans = {key: held for key, held in self._plans.items() if key in keys}
            self._parts = {digest: part for held in self._plans.values() for digest, part in held.parts.items()}
            self._chars = sum(held.chars for held in self._plans.values())
            self._chars += sum(part.chars for part in self._parts.values())
