"""How it stands with what owners and operators are told. Safe for several threads."""

from clearway.model.notice import Channel, Waiting
from clearway.telemetry.families import Families


class NoticeMetrics:
    def __init__(self, families: Families) -> None:
        self._families = families

    def sent(self, channel: Channel) -> None:
        self._families.add("messages_sent", 1, channel.value)

    def failed(self, channel: Channel) -> None:
        self._families.add("messages_failed", 1, channel.value)

    def given_up(self, channel: Channel, notices: int) -> None:
        self._families.add("notices_given_up", notices, channel.value)

    def waiting(self, channel: Channel, waiting: Waiting) -> None:
        self._families.set("notices_waiting", waiting.count, channel.value)
        oldest = waiting.oldest.timestamp() if waiting.oldest is not None else 0.0
        self._families.set("notices_oldest_timestamp_seconds", oldest, channel.value)
