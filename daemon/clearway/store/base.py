"""What the daemon asks of its database. One transaction a call; every call is durable when it returns."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol

from clearway.estimates.history import HistoryStore
from clearway.model.audit import AuditCheck, Audited, AuditRow
from clearway.model.case import Case
from clearway.model.involvement import Involvement
from clearway.model.leadership import Leader, Lease
from clearway.model.notice import Channel, Notice, Waiting
from clearway.model.operations import EvictionState, O, Operation, OperationKind, Usage
from clearway.model.orders import MoveKind
from clearway.model.plan import Explanation, OperationPlan
from clearway.model.requests import Answer, OperatorRequest, RequestKind
from clearway.model.rolling import RollingDrain, RollingState
from clearway.model.save_test import SaveTest
from clearway.model.steps import StepLog, StepRecord
from clearway.model.taking import Loop, Taking

# Small values that the daemon stores: see ``Store.set_value``.
HALTED = "halted"  # who has halted the daemon; empty where it is not halted
PAUSED = "paused"
BACKEND = "backend"
STATUS = "status"  # mode and waiting urgent jobs, as ``service.loop.StatusRecord`` writes them
LARGEST_ID = 2**31 - 1  # what every database's integer holds


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleState:
    """What a cycle starts from; all of it as it was at one moment."""

    operations: tuple[Operation, ...]  # those that are open, by id
    rolling_drains: tuple[RollingDrain, ...]  # those that are open, by id
    requests: tuple[OperatorRequest, ...]  # those that are not handled yet, by id
    values: Mapping[str, Any]  # small values by name; one that was never stored is absent
    usage: Usage


@dataclass(frozen=True, slots=True)
class Judgement(Generic[O]):
    """How an operation shall be stored, by what preemption costs in the very transaction that stores it."""

    since: datetime  # from when costs count
    of: Callable[[Usage], O]


class Store(HistoryStore, Protocol):
    """Raises ``StoreError`` when the database cannot be used.

    What changes anything raises ``LeaseLostError``, and writes nothing, once this object was asked for the lease and
    does not hold it (any more); but for ``add_request`` and ``depose``, which are everybody's.

    Records that are kept for learning: the same one again replaces the first (and is not new: False), and those read
    are the newest of each key (a bounded number), newest first.
    """

    def create_eviction(
        self, eviction: O, judgement: Judgement[O] | None = None, tell: Callable[[O], Sequence[Notice]] | None = None
    ) -> O:
        """Store plan, problem, curve, reasons and preemptions; returns it with its id and mark.

        With a ``judgement`` it is stored as that has it: two plans cannot both count on the same rest of a budget.
        What ``tell`` says of the operation as stored must be told: it is stored in the same transaction.
        """

    def save_eviction(
        self, eviction: Operation, notices: Sequence[Notice] = (), log: StepLog | None = None
    ) -> tuple[int, ...]:
        """Store where an eviction and its preemptions stand (added preemptions and a new plan included).

        ``notices`` must be told of it, and are stored in the same transaction; so is the ``log`` of its steps. Returns
        the ids of the steps that this begins, in their order.
        Raises ``StoreError`` for one that has ended, or that another writer has changed since ``cycle_state``.
        """

    def add_notices(self, notices: Sequence[Notice]) -> int:
        """Store what must be told and is not known by key and channel yet; returns how many these are."""

    def notices_due(self, channel: Channel, now: datetime, longest: timedelta, limit: int) -> tuple[Notice, ...]:
        """What is to be said now, the oldest first.

        What is put off for more than ``longest`` is due too: the clock was set back since.
        """

    def begin_notices(self, ids: Sequence[int], again_at: datetime) -> None:
        """Store that these are about to be said; where nothing more is stored, the next attempt is at this time."""

    def postpone_notices(self, ids: Sequence[int], until: datetime, error: str = "") -> None: ...

    def notices_said(self, ids: Sequence[int], now: datetime) -> None:
        """They were said in one message."""

    def give_up_notices(self, ids: Sequence[int], now: datetime, error: str) -> None: ...

    def overdue_notices(self, channel: Channel, before: datetime, tried: int, most: int) -> tuple[int, ...]:
        """Ids of those stored before then and tried so often, and of the oldest beyond ``most``; a bounded number."""

    def messages_between(self, channel: Channel, user: str, since: datetime, until: datetime) -> int:
        """How many messages were sent to this user ("": operators) by this channel, from ``since`` to ``until``."""

    def waiting_notices(self) -> Mapping[Channel, Waiting]:
        """What was not said yet, by channel."""

    def prune_notices(self, before: datetime) -> None:
        """Delete what was said or given up before then."""

    def eviction(self, eviction_id: int) -> Operation:
        """Everything of one eviction; raises ``UnknownEvictionError``."""

    def open_evictions(self) -> tuple[Operation, ...]:
        """All that are not in a terminal state, by id."""

    def cycle_state(self, usage_since: datetime, names: Sequence[str]) -> CycleState:
        """Everything that each cycle asks for, in one transaction; ``names`` are those of small values."""

    def evictions(
        self,
        *,
        states: Sequence[EvictionState] | None = None,
        kind: OperationKind | None = None,
        user: str | None = None,
        job: str | None = None,
        own: str | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> tuple[Operation, ...]:
        """Newest first; ``user``: those that serve a job of this user, or that such a job leaves for.

        ``job``: likewise of a job, by either form of its id. ``own``: only what concerns this user, to whom the jobs
        of others that leave are not known.
        """

    def involvements(
        self, job: str, *, own: str | None = None, limit: int = 10, offset: int = 0
    ) -> tuple[Involvement, ...]:
        """What operations have to do with a job (by either form of its id), newest first.

        ``own``: only where the job was this user's, for job ids come again.
        """

    def successor(self, eviction_id: int) -> int | None:
        """The next eviction that was planned for the same preemptor; None: there is none."""

    def forget_plans(self, eviction_id: int, before_revision: int) -> None:
        """Delete the plans that a proposal had before this revision, with their explanations."""

    def plans(self, eviction_id: int) -> tuple[OperationPlan, ...]:
        """Every plan an eviction has had, the first one first; empty for an unknown eviction."""

    def explain_plan(self, eviction_id: int, revision: int, explanation: Explanation) -> None:
        """Keep what explains a plan; a plan that was explained already keeps its first explanation."""

    def explanation(self, eviction_id: int) -> Explanation | None:
        """Of the newest plan that has one; None when there is none, or no such eviction."""

    def explanations(self, eviction_ids: Iterable[int]) -> dict[int, Explanation]:
        """As ``explanation``, of several; evictions without any are absent."""

    def unexplained(self, since: datetime) -> tuple[int, ...]:
        """Evictions planned since then whose present plan has no explanation, the oldest first; a bounded number."""

    def begin_step(self, eviction_id: int, job_id: str | None, kind: str, at: datetime, detail: str = "") -> int:
        """Store the intent of an act, before the act; returns the step's id."""

    def finish_step(self, step_id: int, at: datetime, result: str, detail: str = "") -> None: ...

    def add_event(self, eviction_id: int, job_id: str | None, at: datetime, detail: str) -> None:
        """Something noticed rather than done: a step of kind "event", finished at once."""

    def steps(self, eviction_id: int) -> tuple[StepRecord, ...]: ...

    def add_request(
        self,
        kind: RequestKind,
        eviction_id: int | None,
        actor: str,
        at: datetime,
        document: str = "",
        rolling_id: int | None = None,
    ) -> int: ...

    def pending_requests(self) -> tuple[OperatorRequest, ...]:
        """Those that are not handled yet, by id."""

    def finish_request(self, request_id: int, at: datetime, answer: Answer) -> None:
        """Store what has become of it, with the operation that it has led to."""

    def request(self, request_id: int) -> OperatorRequest | None: ...

    def audit(self, audited: Audited) -> AuditRow:
        """Append to the audit trail; requests and their answers are appended with them, by the store itself."""

    def audit_keeping(self, audited: Audited, name: str, value: object) -> AuditRow:
        """Append, and keep a small JSON value (``get_value``) in the same transaction; also for a standby."""

    def audit_trail(self, *, limit: int = 50, before: int | None = None) -> tuple[AuditRow, ...]:
        """Newest first; ``before``: of lower numbers alone."""

    def check_audit(self) -> AuditCheck:
        """Whether the trail is whole, from its first entry to its last."""

    def create_rolling_drain(self, rolling: RollingDrain) -> RollingDrain:
        """Returns it with its id."""

    def save_rolling_drain(self, rolling: RollingDrain) -> None: ...

    def rolling_drain(self, rolling_id: int) -> RollingDrain | None: ...

    def open_rolling_drains(self) -> tuple[RollingDrain, ...]:
        """All that are not in a terminal state, by id."""

    def rolling_drains(
        self, *, state: RollingState | None = None, limit: int = 50, offset: int = 0
    ) -> tuple[RollingDrain, ...]:
        """Newest first; ``state``: those in this state alone."""

    def create_save_test(self, test: SaveTest) -> None:
        """Store the intent of a test."""

    def keep_save_test(self, test: SaveTest) -> None:
        """Store what has come of it."""

    def save_test(self, request_id: int) -> SaveTest | None: ...

    def save_tests_since(self, at: datetime) -> tuple[SaveTest, ...]:
        """Those that were asked for since then or have not ended, newest first."""

    def save_tests_of(self, job: str, *, own: str | None = None, limit: int = 5) -> tuple[SaveTest, ...]:
        """Of a job, by either form of its id, newest first; ``own``: only where the job was this user's."""

    def keep_case(self, case: Case) -> None:
        """Store it, in place of that of the same job and beginning."""

    def open_cases(self) -> tuple[Case, ...]:
        """Those that are still followed, the oldest first."""

    def cases_since(self, at: datetime, limit: int = 1_000) -> tuple[Case, ...]:
        """Those that began since then or are still followed, newest first."""

    def preemption_counts(self, job_ids: Iterable[str]) -> dict[str, int]:
        """How often each job has passed its point of no return in an eviction; jobs without any are absent."""

    def usage_since(self, since: datetime, without: int = 0) -> Usage:
        """Preemptions past their point of no return since then, and the work they lost; and what is intended beside.

        ``without``: an operation whose own intentions do not count.
        """

    def takings(self, since: datetime) -> tuple[Taking, ...]:
        """What evictions for urgent jobs have taken from jobs since then, and what they intend to: one for each."""

    def loops(self, since: datetime, repeats: int) -> tuple[Loop, ...]:
        """What has happened so many times since then that it looks like a loop."""

    def moved_since(self, kind: MoveKind, since: datetime) -> int:
        """Jobs moved for this that have passed their point of no return since then."""

    def get_value(self, key: str) -> Any:
        """A small JSON value that outlives restarts (paused, the last cycle's summary); None when absent."""

    def set_value(self, key: str, value: object) -> None: ...

    def halted_by(self) -> str:
        """Who has halted the daemon, by a request that is not handled yet as well; empty where it is not halted."""

    def take_lease(self, owner: str, now: datetime, ttl_s: float, gone: str | None = None) -> Lease:
        """Take the lease where it is free or its holder has not renewed it in time; says who holds it afterwards.

        It is free as well where it is the owner's own, or that of ``gone``, which must certainly live no more. Each
        taking begins an epoch; what this object writes belongs to its newest one. ``now`` counts on SQLite only.
        """

    def renew_lease(self, now: datetime, ttl_s: float) -> None:
        """Let the lease last ``ttl_s`` from now on; raises ``LeaseLostError`` when its epoch is over."""

    def release_lease(self, now: datetime) -> None:
        """Let another daemon act at once; nothing happens when this one does not hold the lease."""

    def depose(self, actor: str, now: datetime) -> str:
        """Take the lease from the daemon that holds it, whatever that is doing; its owner, empty for none.

        The daemon that takes the lease next, which may be the same, has to expect commands that are still under way.
        """

    def sign_of_life(self) -> datetime | None:
        """When a daemon has last renewed the lease; None: none has taken it yet."""

    def server_time(self) -> datetime | None:
        """The time by the database's own clock; None where it has none (SQLite)."""

    def leaders(self, *, limit: int = 50, offset: int = 0) -> tuple[Leader, ...]:
        """The daemons that have held the lease, newest first."""

    def prune(self, before: datetime) -> int:
        """Delete what ended before then, with all that hangs on it; returns how many evictions went.

        Of the audit trail nothing is deleted.
        """

    def prune_superseded(self, before: datetime) -> int:
        """Delete evictions that were put aside before then; returns how many went, a bounded number a call."""

    def size_bytes(self) -> int:
        """How large the database is."""

    def close(self) -> None: ...
