"""What is put into the outbox: the notices that the site has switched on.

The cycle only stores them, in the transaction of the change that they tell of; ``dispatch`` says them, elsewhere.
"""

import threading
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime

from clearway.config.notify import NotifyConfig
from clearway.execution.user_pauses import EVERYBODY, UserPause
from clearway.model.notice import ABOUT_JOBS, Channel, Notice, NoticeKind
from clearway.model.operations import Operation
from clearway.notify.changes import for_operators, notices_of, shown_time
from clearway.store.repository import Store


class Bell:
    """Wakes every thread that waits for it; one that was not waiting just then does not miss it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._rung = 0

    def ring(self) -> None:
        with self._changed:
            self._rung += 1
            self._changed.notify_all()

    def wait(self, heard: int, timeout_s: float) -> int:
        """Until it was rung more than ``heard`` times, or the time is over; how often it was rung by then."""
        with self._changed:
            self._changed.wait_for(lambda: self._rung > heard, timeout_s)
            return self._rung


class Outbox:
    """Implements ``execution.open_operations.Outbox`` under one configuration."""

    def __init__(self, config: NotifyConfig, store: Store, bell: Bell) -> None:
        self._config = config
        self._on = channels_of(config)
        self._store = store
        self._bell = bell

    def notices(
        self, before: Operation | None, after: Operation, given: AbstractSet[str], now: datetime
    ) -> Sequence[Notice]:
        if not self._on:
            return ()
        return tuple(each for each in notices_of(before, after, given, now) if self._wanted(each))

    def stored(self) -> None:
        self._bell.ring()

    def loop_found(self, user: str, pause: UserPause, now: datetime) -> None:
        """Operators are told of it; while it lasts it is found again, and told once."""
        if not self._on:
            return
        of = "all users" if user == EVERYBODY else user
        facts = {"why": pause.why, "until": shown_time(pause.until), "what": of, "at": shown_time(now)}
        key = f"loop {user[:100]} {pause.until:%Y%m%d}: {pause.why}"[:250]
        found = [each for each in for_operators(NoticeKind.LOOP, key, facts, now) if self._wanted(each)]
        if found and self._store.add_notices(found):
            self._bell.ring()

    def stopped(self, why: str, now: datetime) -> None:
        """Operators are told that nothing is begun any more."""
        facts = {"why": why, "at": shown_time(now)}
        key = f"stopped {now:%Y%m%dT%H%M%S}"
        found = [each for each in for_operators(NoticeKind.STOPPED, key, facts, now) if self._wanted(each)]
        if found and self._store.add_notices(found):
            self._bell.ring()

    def _wanted(self, notice: Notice) -> bool:
        config, of_job = self._config, notice.kind in ABOUT_JOBS
        match notice.channel:
            case channel if channel not in self._on:
                return False
            case Channel.WEBHOOK:
                return config.webhook.owners if of_job else config.webhook.operators
            case Channel.SLACK:
                return config.slack.owners if of_job else config.slack.operators
            case Channel.MAIL:
                return config.mail.owners != "none" if of_job else bool(config.mail.operators)
            case _:
                return True


def channels_of(config: NotifyConfig) -> frozenset[Channel]:
    """Those that are switched on."""
    on = {
        Channel.WEBHOOK: config.webhook.url_file is not None,
        Channel.SLACK: config.slack.url_file is not None,
        Channel.MAIL: config.mail.on,
        Channel.COMMENT: config.comment,
        Channel.OUTPUT: config.job_output,
    }
    return frozenset(channel for channel, switched_on in on.items() if switched_on)
