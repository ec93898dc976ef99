"""Which nodes satisfy a job's constraint (``sbatch --constraint``). Pure.

Names of features are joined by & and |, with parentheses. ``[A|B]`` asks for nodes that all have A or all have B: each
is an alternative, a constraint of its own. Counts (``A*2``) ask for several kinds of nodes at once, and are not read.

Slurm 22.05 reads ``A|B&C`` from left to right (measured), other programs would let & bind closer. A node counts only
where both readings hold.

Cost: O(length) for each kind of node; kept for constraints and sets of features that come again.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

_TOKEN = re.compile(r"[A-Za-z0-9_.=+-]+|[&|()]", re.ASCII)
_LONGEST = 1_000
_DEEPEST = 8


@lru_cache(maxsize=4_096)
def alternatives(constraint: str) -> tuple[str, ...] | None:
    """The constraints of which all nodes must satisfy the same one; None where Clearway cannot read it."""
    head, opening, rest = constraint.partition("[")
    if not opening:
        return (constraint,) if _readable(constraint) else None
    inside, closing, tail = rest.partition("]")
    parts = [f"{head}({part}){tail}" for part in _apart(inside)] if closing else []
    return tuple(parts) if parts and all(map(_readable, parts)) else None


@lru_cache(maxsize=4_096)
def satisfied(constraint: str, features: frozenset[str]) -> bool:
    """Whether a node with these features satisfies a constraint that ``alternatives`` gave."""
    if not constraint:
        return True
    return all(_Reader(constraint, features).read())


def _apart(inside: str) -> list[str]:
    """Where | stands outside of parentheses it parts alternatives."""
    parts, depth = [""], 0
    for character in inside:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


@lru_cache(maxsize=1_024)
def _readable(constraint: str) -> bool:
    if not constraint:
        return True
    try:
        _Reader(constraint, frozenset()).read()
    except ValueError:
        return False
    return True


class _Reader:
    """Both readings of a constraint: from left to right, and with & closer than |. ValueError: it cannot be read."""

    def __init__(self, constraint: str, features: frozenset[str]) -> None:
        if len(constraint) > _LONGEST or "".join(_TOKEN.findall(constraint)) != constraint:
            raise ValueError(constraint)
        self._tokens: Iterator[str] = iter(_TOKEN.findall(constraint))
        self._next, self._features = next(self._tokens, ""), features

    def read(self) -> tuple[bool, bool]:
        found = self._expression(0)
        if self._next:
            raise ValueError(self._next)
        return found

    def _expression(self, depth: int) -> tuple[bool, bool]:
        before, (in_turn, product) = False, self._operand(depth)
        while self._next in ("&", "|"):
            operator, right = self._take(), self._operand(depth)
            if operator == "&":
                in_turn, product = in_turn and right[0], product and right[1]
            else:
                in_turn, before, product = in_turn or right[0], before or product, right[1]
        return in_turn, before or product

    def _operand(self, depth: int) -> tuple[bool, bool]:
        taken = self._take()
        if taken.startswith("(") and depth < _DEEPEST:
            found = self._expression(depth + 1)
            if self._take() != ")":
                raise ValueError(taken)
            return found
        if not taken or taken in "&|()":
            raise ValueError(taken)
        return (taken in self._features,) * 2

    def _take(self) -> str:
        token, self._next = self._next, next(self._tokens, "")
        return token
