"""Rolling drains: a list of nodes, emptied a few at a time. Frozen; the store keeps them."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from clearway.model.orders import DrainOrder


class TurnState(StrEnum):
    WAITING = "waiting"
    EMPTYING = "emptying"  # a drain of its own has been begun
    AWAY = "away"  # empty; whatever the site does there is being done
    OVER = "over"  # terminal: it was empty, and takes jobs again
    SKIPPED = "skipped"  # terminal: it could not be emptied, or an operator left it out

    @property
    def terminal(self) -> bool:
        return self in (TurnState.OVER, TurnState.SKIPPED)


@dataclass(frozen=True, slots=True)
class Turn:
    """One node of a rolling drain."""

    node: str
    state: TurnState = TurnState.WAITING
    drain_id: int = 0  # the newest eviction that was to empty it; 0: none yet
    alone: bool = False  # it could not be emptied together with others: it is tried by itself
    note: str = ""


class RollingState(StrEnum):
    UNDER_WAY = "under_way"
    CANCELLING = "cancelling"  # nothing new is begun; drains that are not empty yet are being called off
    COMPLETED = "completed"  # terminal: every node's turn is over, or it was skipped
    CANCELLED = "cancelled"  # terminal

    @property
    def terminal(self) -> bool:
        return self in (RollingState.COMPLETED, RollingState.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingDrain:
    """Nodes that are emptied a few at a time, each by an ordinary drain; the next follow when those are back."""

    rolling_id: int  # 0 until the store has given it one
    order: DrainOrder  # its nodes are all of them, in the order of their turns
    at_once: int  # at most so many are away
    turns: tuple[Turn, ...]
    created_at: datetime
    state: RollingState = RollingState.UNDER_WAY
    progressed_at: datetime | None = None  # when a turn last changed its state of its own accord; None: not yet
    finished_at: datetime | None = None
    outcome: str = ""  # in sentences for people
    why: str = ""  # it was cancelled or stopped, half a sentence

    def nodes(self, *states: TurnState) -> tuple[str, ...]:
        return tuple(turn.node for turn in self.turns if turn.state in states)
