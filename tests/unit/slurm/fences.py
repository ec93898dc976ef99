"""A fence as tests need it."""

from __future__ import annotations

from clearway.model.errors import LeaseLostError


class TestFence:
    """Allows commands so many seconds each (None: none at all); ``keeps``: how often it is asked before it ends."""

    __test__ = False

    def __init__(self, limit_s: float | None, keeps: int = 1_000_000) -> None:
        self._limit_s, self._keeps = limit_s, keeps
        self.kept = 0

    def keep(self) -> None:
        self.kept += 1
        if self.kept > self._keeps:
            raise LeaseLostError("another daemon has taken over")

    def command_limit_s(self) -> float:
        if self._limit_s is None:
            raise LeaseLostError("another daemon has taken over")
        return self._limit_s
