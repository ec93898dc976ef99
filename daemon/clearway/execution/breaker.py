"""Stops all that makes jobs leave once two nodes were lost after jobs had left them, until an operator has looked.

An epilog that fails, or a step that cannot be killed, drains each node that a job leaves. The next plan frees the next
node, and so on through the whole cluster. One lost node may be chance: its plan is made anew. The second within a day
stops: nothing is begun, no job is asked to leave any more, and jobs that have left are followed until they are back.
`clearway resume` goes on; nodes that were lost before are not counted again.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from clearway.execution.lifecycle import drain_number
from clearway.model.audit import Audited, AuditKind
from clearway.model.cluster import ClusterSnapshot, Node
from clearway.model.operations import Drain, Operation
from clearway.store.repository import Store

BREAKER = "breaker"  # the name of the stored value
TRIPS_AT = 2  # lost nodes
WITHIN = timedelta(days=1)
# Once the urgent job has started, only a prolog or an epilog that is still to come is about the job that left.
_AFTER_THE_START = timedelta(minutes=5)
_WORD = re.compile(r"[A-Z]+(?:_[A-Z]+)*")
_OUT_OF_ORDER = frozenset({"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "ERROR"})
_MOST_TOLD = 3  # nodes in a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class LostNode:
    """A node that takes no jobs any more since one has left it for an operation."""

    node: str
    job_id: str  # that left it
    left_at: str  # when that was decided, ISO 8601
    eviction_id: int
    seen_at: datetime
    state: str  # and reason, as Slurm says them
    looked_at: bool = False  # by an operator

    @property
    def key(self) -> tuple[str, str, str]:
        return self.node, self.job_id, self.left_at


def lost_nodes(operations: Iterable[Operation], snapshot: ClusterSnapshot, now: datetime) -> Iterator[LostNode]:
    """Of operations under way; a drain takes its nodes out of service itself. Pure."""
    for e in operations:
        if not e.state.acting or isinstance(e, Drain):
            continue
        wanted = set(e.plan.placement_nodes)
        for p in e.preemptions:
            if p.requeued_at is None or not (e.state.before_start or now - p.requeued_at <= _AFTER_THE_START):
                continue
            for name in sorted(wanted.intersection(p.job.nodes)):
                node = snapshot.node_by_name.get(name)
                if node is not None and _is_lost(node):
                    why = f"{node.raw_state}, {node.reason}" if node.reason else node.raw_state
                    yield LostNode(
                        node=name,
                        job_id=p.job_id,
                        left_at=p.requeued_at.isoformat(),
                        eviction_id=e.eviction_id,
                        seen_at=now,
                        state=why[:120],
                    )


def _is_lost(node: Node) -> bool:
    """Not one that only has not answered yet, is switched off, or was drained by Clearway."""
    words = set(_WORD.findall(node.raw_state))
    return not node.available and not words.isdisjoint(_OUT_OF_ORDER) and drain_number(node.reason) is None


class Breaker:
    """Every change is stored at once."""

    def __init__(self, store: Store, tell: Callable[[str, datetime], None] = lambda _why, _now: None) -> None:
        self._store = store
        self._tell = tell  # before it is stored: a crash in between loses nothing
        self._lost: tuple[LostNode, ...] = ()
        self.stopped = ""  # why nothing is begun, half a sentence; empty: it may be

    def refresh(self, stored: Mapping[str, Any] | None) -> None:
        """Go by what is stored, under ``BREAKER``."""
        found = stored or {"stopped": "", "lost": ()}
        self.stopped = found["stopped"]
        self._lost = tuple(
            LostNode(**each | {"seen_at": datetime.fromisoformat(each["seen_at"])}) for each in found["lost"]
        )

    def look(self, operations: Iterable[Operation], snapshot: ClusterSnapshot, now: datetime) -> None:
        """Count what was lost since the last look, and stop where that is too much."""
        known = {each.key for each in self._lost}
        new = [each for each in lost_nodes(operations, snapshot, now) if each.key not in known]
        if not new:
            return
        for each in new:
            text = f"Node {each.node} was lost after job {each.job_id} had left it ({each.state})."
            self._store.add_event(each.eviction_id, None, now, text)
        kept = (*(each for each in self._lost if now - each.seen_at < WITHIN), *new)
        counted = {each.node: each for each in kept if not each.looked_at}
        stopped = self.stopped
        if not stopped and len(counted) >= TRIPS_AT:
            stopped = _why(list(counted.values()))
            self._tell(stopped, now)
            about = {"why": stopped, "nodes": sorted(counted)[:100]}
            self._store.audit(Audited(at=now, actor="clearway", kind=AuditKind.STOPPED, about=about))
        self._keep(stopped, kept)

    def lost_by(self, e: Operation) -> bool:
        """Whether one of the nodes that count was freed by this operation."""
        return any(each.eviction_id == e.eviction_id and not each.looked_at for each in self._lost)

    def end(self) -> None:
        """An operator has looked: only what is lost from now on counts."""
        if self.stopped or self._lost:
            self._keep("", tuple(replace(each, looked_at=True) for each in self._lost))

    def _keep(self, stopped: str, lost: tuple[LostNode, ...]) -> None:
        listed = [asdict(each) | {"seen_at": each.seen_at.isoformat()} for each in lost]
        self._store.set_value(BREAKER, {"stopped": stopped, "lost": listed})
        self.stopped, self._lost = stopped, lost


def _why(lost: list[LostNode]) -> str:
    told = "; ".join(f"{each.node}: {each.state}" for each in lost[:_MOST_TOLD])
    more = f"; and {len(lost) - _MOST_TOLD} more" if len(lost) > _MOST_TOLD else ""
    return f"{len(lost)} nodes were lost after jobs had left them ({told}{more})"
