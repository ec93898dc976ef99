"""What the daemon asks of its database. One transaction a call; every call is durable when it returns."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol

from clearway.estimates.history import HistoryStore
from clearway.model.audit import AuditCheck, Audited, AuditRow
from clearway.model.notice import Channel, Notice, Waiting
from clearway.model.operations import EvictionState, O, Operation, OperationKind, Usage
from clearway.model.orders import MoveKind, RollingDrain, RollingState
from clearway.model.plan import Explanation, OperationPlan
from clearway.model.records import Involvement, Leader, Lease, Loop, SaveTest, StepLog, StepRecord, Taking
from clearway.model.requests import Answer, OperatorRequest, RequestKind
from clearway.model.urgent_report import Case

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

    ``own`` is the user to whom the jobs of others are not known: only what concerns that user is found.
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

        ``job``: likewise of a job, by either form of its id.
        """

    # Everything of one eviction; raises ``UnknownEvictionError``.
    def eviction(self, eviction_id: int) -> Operation: ...
    # All that are not in a terminal state, by id.
    def open_evictions(self) -> tuple[Operation, ...]: ...
    # What operations have to do with a job (by either form of its id), newest first.
    def involvements(
        self, job: str, *, own: str | None = None, limit: int = 10, offset: int = 0
    ) -> tuple[Involvement, ...]: ...
    # The next eviction that was planned for the same preemptor; None: there is none.
    def successor(self, eviction_id: int) -> int | None: ...

    # Plans, and what explains them: every plan of an eviction, the first one first; empty for an unknown eviction.
    def plans(self, eviction_id: int) -> tuple[OperationPlan, ...]: ...
    # Delete the plans that a proposal had before this revision, with their explanations: nothing was done for them.
    def forget_plans(self, eviction_id: int, before_revision: int) -> None: ...
    # A plan that was explained already keeps its first explanation.
    def explain_plan(self, eviction_id: int, revision: int, explanation: Explanation) -> None: ...
    # Of the newest plan that has one; None when there is none, or no such eviction.
    def explanation(self, eviction_id: int) -> Explanation | None: ...
    # Likewise of several; evictions without any are absent.
    def explanations(self, eviction_ids: Iterable[int]) -> dict[int, Explanation]: ...
    # Evictions planned since then whose present plan has no explanation, the oldest first; a bounded number.
    def unexplained(self, since: datetime) -> tuple[int, ...]: ...

    # Steps: the intent of an act, stored before the act, and what became of it; an event is finished at once.
    def begin_step(self, eviction_id: int, job_id: str | None, kind: str, at: datetime, detail: str = "") -> int: ...
    def finish_step(self, step_id: int, at: datetime, result: str, detail: str = "") -> None: ...
    def add_event(self, eviction_id: int, job_id: str | None, at: datetime, detail: str) -> None: ...
    def steps(self, eviction_id: int) -> tuple[StepRecord, ...]: ...

    # Requests. Both they and their answers are appended to the audit trail.
    def add_request(
        self,
        kind: RequestKind,
        eviction_id: int | None,
        actor: str,
        at: datetime,
        document: str = "",
        rolling_id: int | None = None,
    ) -> int: ...
    # Those that are not handled yet, by id.
    def pending_requests(self) -> tuple[OperatorRequest, ...]: ...
    # What has become of it, with the operation that it has led to.
    def finish_request(self, request_id: int, at: datetime, answer: Answer) -> None: ...
    def request(self, request_id: int) -> OperatorRequest | None: ...
    # Who has halted the daemon, by a request that is not handled yet as well; empty where it is not halted.
    def halted_by(self) -> str: ...

    # The audit trail; ``audit_keeping`` also keeps a small JSON value in the same transaction, and is for standbys too.
    def audit(self, audited: Audited) -> AuditRow: ...
    def audit_keeping(self, audited: Audited, name: str, value: object) -> AuditRow: ...
    # Newest first; ``before``: of lower numbers alone.
    def audit_trail(self, *, limit: int = 50, before: int | None = None) -> tuple[AuditRow, ...]: ...
    # Whether the trail is whole, from its first entry to its last.
    def check_audit(self) -> AuditCheck: ...

    # Notices: what must be told; returns how many are new by key and channel.
    def add_notices(self, notices: Sequence[Notice]) -> int: ...
    # To be said now, the oldest first; what is put off for more than ``longest`` as well: the clock was set back since.
    def notices_due(self, channel: Channel, now: datetime, longest: timedelta, limit: int) -> tuple[Notice, ...]: ...
    # They are about to be said; where nothing more is stored, the next attempt is at this time.
    def begin_notices(self, ids: Sequence[int], again_at: datetime) -> None: ...
    def postpone_notices(self, ids: Sequence[int], until: datetime, error: str = "") -> None: ...
    # They were said in one message.
    def notices_said(self, ids: Sequence[int], now: datetime) -> None: ...
    def give_up_notices(self, ids: Sequence[int], now: datetime, error: str) -> None: ...
    # Ids of those stored before then and tried so often, and of the oldest beyond ``most``; a bounded number.
    def overdue_notices(self, channel: Channel, before: datetime, tried: int, most: int) -> tuple[int, ...]: ...
    # How many messages were sent to this user ("": operators) by this channel, both ends included.
    def messages_between(self, channel: Channel, user: str, since: datetime, until: datetime) -> int: ...
    # What was not said yet, by channel.
    def waiting_notices(self) -> Mapping[Channel, Waiting]: ...
    # Delete what was said or given up before then.
    def prune_notices(self, before: datetime) -> None: ...

    # Rolling drains; a new one is returned with its id.
    def create_rolling_drain(self, rolling: RollingDrain) -> RollingDrain: ...
    def save_rolling_drain(self, rolling: RollingDrain) -> None: ...
    def rolling_drain(self, rolling_id: int) -> RollingDrain | None: ...
    # All that are not in a terminal state, by id.
    def open_rolling_drains(self) -> tuple[RollingDrain, ...]: ...
    # Newest first; ``state``: those in this state alone.
    def rolling_drains(
        self, *, state: RollingState | None = None, limit: int = 50, offset: int = 0
    ) -> tuple[RollingDrain, ...]: ...

    # Tests of saving: the intent is stored first, then what has come of it.
    def create_save_test(self, test: SaveTest) -> SaveTest: ...
    def keep_save_test(self, test: SaveTest) -> None: ...
    def save_test(self, request_id: int) -> SaveTest | None: ...
    # Those that were asked for since then or have not ended, newest first.
    def save_tests_since(self, at: datetime) -> tuple[SaveTest, ...]: ...
    # Of a job, by either form of its id, newest first.
    def save_tests_of(self, job: str, *, own: str | None = None, limit: int = 5) -> tuple[SaveTest, ...]: ...

    # Cases of the report: stored in place of that of the same job and beginning.
    def keep_case(self, case: Case) -> None: ...
    # Those that are still followed, the oldest first.
    def open_cases(self) -> tuple[Case, ...]: ...
    # Those that began since then or are still followed, newest first.
    def cases_since(self, at: datetime, limit: int = 1_000) -> tuple[Case, ...]: ...

    # What preemption has cost: how often each job has passed its point of no return; jobs without any are absent.
    def preemption_counts(self, job_ids: Iterable[str]) -> dict[str, int]: ...
    # Preemptions past their point of no return since then, the work they lost, and what all operations but one intend.
    def usage_since(self, since: datetime, without: int = 0) -> Usage: ...
    # What evictions for urgent jobs have taken from jobs since then, and what they intend to: one for each.
    def takings(self, since: datetime) -> tuple[Taking, ...]: ...
    # What has happened so many times since then that it looks like a loop.
    def loops(self, since: datetime, repeats: int) -> tuple[Loop, ...]: ...
    # Jobs moved for this that have passed their point of no return since then.
    def moved_since(self, kind: MoveKind, since: datetime) -> int: ...

    # Small JSON values that outlive restarts (paused, the last cycle's summary); None when absent.
    def get_value(self, key: str) -> Any: ...
    def set_value(self, key: str, value: object) -> None: ...

    def take_lease(self, owner: str, now: datetime, ttl_s: float, gone: str | None = None) -> Lease:
        """Take the lease where it is free or its holder has not renewed it in time; says who holds it afterwards.

        It is free as well where it is the owner's own, or that of ``gone``, which must certainly live no more. Each
        taking begins an epoch; what this object writes belongs to its newest one. ``now`` counts on SQLite only.
        """

    def depose(self, actor: str, now: datetime) -> str:
        """Take the lease from the daemon that holds it, whatever that is doing; its owner, empty for none.

        The daemon that takes the lease next, which may be the same, has to expect commands that are still under way.
        """

    # Let the lease last ``ttl_s`` from now on; raises ``LeaseLostError`` when its epoch is over.
    def renew_lease(self, now: datetime, ttl_s: float) -> None: ...
    # Let another daemon act at once; nothing happens when this one does not hold the lease.
    def release_lease(self, now: datetime) -> None: ...
    # When a daemon has last renewed the lease; None: none has taken it yet.
    def sign_of_life(self) -> datetime | None: ...
    # The time by the database's own clock; None where it has none (SQLite).
    def server_time(self) -> datetime | None: ...
    # The daemons that have held the lease, newest first.
    def leaders(self, *, limit: int = 50, offset: int = 0) -> tuple[Leader, ...]: ...

    # Delete what ended before then, with all that hangs on it, but nothing of the audit trail; how many evictions went.
    def prune(self, before: datetime) -> int: ...
    # Delete evictions that were put aside before then; how many went, a bounded number a call.
    def prune_superseded(self, before: datetime) -> int: ...
    def size_bytes(self) -> int: ...
    def close(self) -> None: ...
