"""What a request for promised nodes says, as it is stored for the loop."""

import re
from datetime import UTC, datetime, timedelta

from pydantic import BaseModel, ConfigDict, Field, field_validator

from clearway.drain.request import Time, in_utc
from clearway.model.errors import RequestError
from clearway.model.orders import PromiseOrder

MOST_NODES = 100_000
LONGEST_S = 31 * 86_400.0
SHORTEST_S = 60.0  # Slurm's reservations last whole minutes
FURTHEST = timedelta(days=366)
_CLOCKS_DIFFER = timedelta(minutes=1)  # between the machine that asked and the daemon's
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}", re.ASCII)


class PromiseRequest(BaseModel):
    """Nodes that shall be free from a time on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    nodes: int = Field(strict=True, ge=1, le=MOST_NODES, description="how many nodes")
    partition: str = Field(
        "", max_length=64, description="partition whose nodes they are; empty: the only one that there is"
    )
    at: Time = Field(description="from when on they shall be free")
    duration_s: float = Field(
        strict=True,
        ge=SHORTEST_S,
        le=LONGEST_S,
        allow_inf_nan=False,
        description="for how long, seconds: from one minute to 31 days",
    )
    users: tuple[str, ...] = Field(
        min_length=1, max_length=100, description="users whose jobs may run on them, in the promise's reservation"
    )
    reason: str = Field("", max_length=120, description="why: one line")

    @field_validator("at")
    @classmethod
    def _in_whole_seconds(cls, at: datetime) -> datetime:
        return at.replace(microsecond=0)

    @field_validator("users")
    @classmethod
    def _are_names(cls, users: tuple[str, ...]) -> tuple[str, ...]:
        for user in users:
            if not _NAME.fullmatch(user):
                raise ValueError(f"{user[:64]!r} is no name of a user")
        return tuple(dict.fromkeys(users))

    @field_validator("partition")
    @classmethod
    def _is_a_name(cls, partition: str) -> str:
        if partition and not _NAME.fullmatch(partition):
            raise ValueError(f"{partition!r} is no name of a partition")
        return partition

    @field_validator("reason")
    @classmethod
    def _is_one_line(cls, reason: str) -> str:
        if not reason.isprintable():
            raise ValueError("a reason is one line of at most 120 characters")
        return reason

    def check_times(self, asked_at: datetime) -> None:
        """Raises ``RequestError`` for a time that has passed, or that is further ahead than a year."""
        if self.at < asked_at - _CLOCKS_DIFFER:
            raise RequestError(f"at: {in_utc(self.at)} has passed")
        if self.at > asked_at + FURTHEST:
            raise RequestError(f"at: {in_utc(self.at)} lies more than {FURTHEST.days} days ahead")

    def order(self, partition: str, actor: str, request_id: int = 0, event: str = "") -> PromiseOrder:
        return PromiseOrder(
            nodes=self.nodes,
            partition=partition,
            at=self.at.astimezone(UTC),
            duration_s=self.duration_s,
            users=self.users,
            actor=actor,
            request_id=request_id,
            reason=self.reason,
            event=event,
        )
