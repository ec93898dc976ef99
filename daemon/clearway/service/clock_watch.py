"""Whether the wall clock can be gone by: it and the clock that nobody sets must go on alike, and others must agree.

Deadlines, checkpoints and Slurm's own times are times of the wall clock. One that was set forward makes every
checkpoint late at once, and jobs would leave in the middle of saving themselves. So after a step nothing is done; that
ends when the clock is set back, or when the new time has lasted, which it need not for long where nothing is under way.

Others are a database server (asked at the start, after a step and now and then) and Slurm, whose clock has shown at
least the latest start or submission of a job. After a step back nothing is done until that time has come again.
"""

from collections.abc import Callable
from datetime import datetime

from clearway.model.clock import Clock
from clearway.model.cluster import ClusterSnapshot, JobState
from clearway.slurm.parse.fields import LATEST

STEP_S = 5.0  # less is drift, or a correction that harms no plan
APART_S = 30.0  # so far the clocks of other machines may be from ours
LASTS_S = 10.0  # where nothing is under way
LASTS_UNDER_WAY_S = 300.0  # longer than most jobs take to save themselves
_ASKS_EVERY_S = 600.0  # a database server


class ClockWatch:
    """Looks once a cycle; only the loop's thread uses it. ``server_time``: see ``Store.server_time``."""

    def __init__(self, clock: Clock, server_time: Callable[[], datetime | None] = lambda: None) -> None:
        self._clock = clock
        self._server_time = server_time
        self._ahead: float | None = None  # by how much the wall clock is ahead of the other one, as it is gone by
        self._new: tuple[float, float] | None = None  # the same after a step, and when that was seen first
        self._asked: float | None = None  # the server, last; None: it has to be asked
        self.step_s = 0.0  # by so much the clock was set, where that is believed since the last look

    def doubt(self, now: datetime, seen: float, snapshot: ClusterSnapshot, *, under_way: bool) -> str:
        """Why nothing must be done by this time, in words; empty where it can be believed.

        ``seen`` is what ``steady`` said at ``now``: by the time Slurm has answered it says something else.
        """
        ahead, self.step_s = now.timestamp() - seen, 0.0
        step_s = 0.0 if self._ahead is None else ahead - self._ahead
        if abs(step_s) <= STEP_S:
            self._new = None
        else:
            if self._new is None or abs(ahead - self._new[0]) > STEP_S:
                self._new, self._asked = (ahead, seen), None
            if seen - self._new[1] < (LASTS_UNDER_WAY_S if under_way else LASTS_S):
                return f"the wall clock was set by {step_s:+.0f} s"
        if why := self._others(now, seen, snapshot):
            return why
        if self._new is not None:
            self.step_s = step_s
        self._ahead, self._new = ahead, None
        return ""

    def _others(self, now: datetime, seen: float, snapshot: ClusterSnapshot) -> str:
        times = [job.start_time for job in snapshot.holders if job.state is JobState.RUNNING and job.start_time]
        times += [job.submit_time for job in snapshot.jobs]
        latest = max((each for each in times if each < LATEST), default=now)  # one bad record says nothing of a clock
        if (behind_s := (latest - now).total_seconds()) > APART_S:
            return f"the wall clock is at least {behind_s:.0f} s behind Slurm's"
        if self._asked is None or seen - self._asked >= _ASKS_EVERY_S:
            theirs = self._server_time()
            since_s = self._clock.steady() - seen
            if theirs is not None and abs(ahead_s := (now - theirs).total_seconds() + since_s) > APART_S:
                return f"the wall clock is {ahead_s:+.0f} s ahead of the database's"
            self._asked = seen
        return ""
