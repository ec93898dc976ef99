"""Keeps a bad record, or a defect that it meets, from costing more than what it is about.

Whatever raises while one job, one operation or one part of a cycle is handled ends that, not the cycle. The subject is
passed over for a while, which doubles with each failure in a row. Errors that concern everything go through: without
the database, or without Slurm, the cycle ends, and the next one tries again. Nothing of this is stored: a restart costs
one failure each.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from clearway.model.clock import Clock
from clearway.model.errors import ClearwayError
from clearway.model.events import Emit, HandlingFailed
from clearway.model.report import Quarantined, Subject, T, described

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 300.0
_FORGOTTEN_AFTER = timedelta(minutes=10)  # without another try: the job or the operation is gone


class Quarantine:
    """The subjects that are passed over in this cycle."""

    def __init__(self, clock: Clock, emit: Emit) -> None:
        self._clock = clock
        self._emit = emit
        self._known: dict[tuple[Subject, str], Quarantined] = {}

    def all(self) -> tuple[Quarantined, ...]:
        """Those that failed when they were tried last."""
        oldest = self._clock.now() - _FORGOTTEN_AFTER
        self._known = {key: each for key, each in self._known.items() if each.until > oldest}
        return tuple(self._known.values())

    def why(self, subject: Subject, ident: str) -> str:
        """Why it is passed over, for people; empty where it is not."""
        known = self._known.get((subject, ident))
        return "" if known is None else f"Clearway failed at it and tries again later ({known.why})"

    def attempt(self, subject: Subject, ident: str, act: Callable[[], T]) -> T | None:
        """What ``act`` returns; None where it raised, now or a short while ago.

        Raises ``ClearwayError`` where another try can help, and only after what is wrong concerns more than this
        subject.
        """
        key, now = (subject, ident), self._clock.now()
        known = self._known.get(key)
        if known is not None and now < known.until:
            return None
        try:
            result = act()
        except Exception as error:
            if isinstance(error, ClearwayError) and error.retryable:
                raise
            self.failed(subject, ident, error, now)
            return None
        self._known.pop(key, None)
        return result

    def attempt_job(self, ident: str, act: Callable[[], T]) -> T | None:
        """As ``attempt``, for one job; see ``model.report.Attempt``."""
        return self.attempt(Subject.JOB, ident, act)

    def attempt_part(self, name: str, act: Callable[..., T], *arguments: object) -> T | None:
        """As ``attempt``, for a part of the cycle."""
        return self.attempt(Subject.PART, name, partial(act, *arguments))

    def failed(self, subject: Subject, ident: str, error: Exception, now: datetime) -> None:
        """Pass it over for a while."""
        before = self._known.get((subject, ident))
        times = 1 if before is None else before.times + 1
        pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(times - 1, 20))
        found = Quarantined(subject, ident, described(error), times, now + timedelta(seconds=pause_s))
        if subject is not Subject.REQUEST:
            self._known[subject, ident] = found
        self._emit(HandlingFailed(found, error))
