"""Whether the wall clock can be gone by: it and the clock that nobody sets must go on alike.

Deadlines, checkpoints and Slurm's own times are times of the wall clock. One that was set forward makes every
checkpoint late at once, and jobs would leave in the middle of saving themselves. So after a step nothing is done; that
ends when the clock is set back, or when the new time has lasted, which it need not for long where nothing is under way.
"""

from datetime import datetime

from clearway.model.clock import Clock

STEP_S = 5.0  # less is drift, or a correction that harms no plan
LASTS_S = 10.0  # where nothing is under way
LASTS_UNDER_WAY_S = 300.0  # longer than most jobs take to save themselves


class ClockWatch:
    """Looks once a cycle; only the loop's thread uses it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead: float | None = None  # by how much the wall clock is ahead of the other one, as it is gone by
        self._new: tuple[float, float] | None = None  # the same after a step, and when that was seen first

    def doubt(self, now: datetime, *, under_way: bool) -> str:
        """Why nothing must be done by this time, in words; empty where it can be believed."""
        seen = self._clock.monotonic()
        ahead = now.timestamp() - seen
        if self._ahead is None or abs(ahead - self._ahead) <= STEP_S:
            self._ahead, self._new = ahead, None
            return ""
        if self._new is None or abs(ahead - self._new[0]) > STEP_S:
            self._new = ahead, seen
        step_s, since_s = ahead - self._ahead, seen - self._new[1]
        if since_s >= (LASTS_UNDER_WAY_S if under_way else LASTS_S):
            self._ahead, self._new = ahead, None
            return ""
        return f"the wall clock was set by {step_s:+.0f} s"
