"""What operators ask over REST and the command line, handled by the loop: decision 0007."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from clearway.drain.controller import DrainController
from clearway.drain.request import DrainRequest, read_request
from clearway.drain.rolling import RollingController
from clearway.eligibility.authorization import may_not_approve
from clearway.execution.cycle_context import CycleContext
from clearway.execution.executor import Executor
from clearway.execution.open_operations import OpenOperations
from clearway.execution.progress import entered
from clearway.execution.restraints import Breaker, Quarantine, Suppression, UserPauses, told
from clearway.execution.save_tests import SaveTestController, SaveTestRequest
from clearway.model.errors import ClearwayError, RequestError, StoreError
from clearway.model.events import Emit, PlanMade
from clearway.model.operations import Eviction, EvictionState, Operation, Promise
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.model.records import HALTED, PAUSED
from clearway.model.report import Subject, described
from clearway.model.requests import SWITCHES, Answer, OperatorRequest, RequestKind, RequestResult
from clearway.preemption.approval import ApprovalRequest
from clearway.preemption.pledges import approved, what_leaves
from clearway.promise.controller import PromiseController
from clearway.relocation.controller import RelocationController
from clearway.service.leadership import Leadership
from clearway.slurm.parse.hostlist import short
from clearway.store.repository import Store

_WHEN_RESUMED = ", when the pause is over (clearway resume)"


LONGEST_S = 0.5  # of a cycle, and what the request takes that has been begun by then


def in_turns(requests: Sequence[OperatorRequest]) -> list[OperatorRequest]:
    """Switches first; then the first of each actor, the second of each, and so on: who asks for much waits for it.
    Tests of saving are looked at last: they stay open, and must not keep others from being handled.
    """
    before: Counter[str] = Counter()
    turns: list[tuple[tuple[bool, bool, int, int], OperatorRequest]] = []
    for each in sorted(requests, key=lambda request: request.request_id):
        switch = each.kind in SWITCHES
        turn = 0 if switch else before[each.actor]
        before[each.actor] += not switch
        turns.append(((not switch, each.kind == RequestKind.TEST_PREEMPTION, turn, each.request_id), each))
    return [each for _, each in sorted(turns, key=lambda turn: turn[0])]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHandler:
    """In turns by actor (``in_turns``), for a part of a cycle (``LONGEST_S``); what is left has the next one. One that
    makes Clearway fail is finished as failed, not met again.
    """

    store: Store
    operations: OpenOperations
    suppression: Suppression
    pauses: UserPauses
    breaker: Breaker
    executor: Executor
    drains: DrainController
    rolling: RollingController
    relocation: RelocationController
    promises: PromiseController
    save_tests: SaveTestController
    quarantine: Quarantine
    leadership: Leadership
    emit: Emit
    monotonic: Callable[[], float]

    def handle(self, requests: Sequence[OperatorRequest], context: CycleContext) -> tuple[CycleContext, bool]:
        """The cycle as it is now, and whether requests are left."""
        ends = self.monotonic() + LONGEST_S
        for request in in_turns(requests):
            if self.monotonic() > ends and request.kind not in SWITCHES:
                return context, True
            context.alive()
            try:
                answer = self._handle(request, context)
            except ClearwayError as error:
                if isinstance(error, StoreError) and error.retryable:
                    raise  # it may be stored all the same: the next cycle sees what is, and takes the request again
                answer = Answer(code=RequestResult.REFUSED, sentence=str(error))
            except Exception as error:  # noqa: BLE001 - a defect, which must not keep other requests from being handled
                self.quarantine.failed(Subject.REQUEST, str(request.request_id), error, context.now)
                why = f"Clearway failed at this request and does not try it again ({described(error)}); see its log"
                answer = Answer(code=RequestResult.FAILED, sentence=why)
            else:
                if request.kind in (RequestKind.PAUSE, RequestKind.RESUME):
                    context = replace(context, paused=request.kind == RequestKind.PAUSE)
                elif request.kind in (RequestKind.HALT, RequestKind.UNHALT):
                    context = replace(context, halted=told(request.actor) if request.kind == RequestKind.HALT else "")
            if answer is not None:
                self.store.finish_request(request.request_id, context.now, answer)
        return context, False

    def _handle(self, request: OperatorRequest, context: CycleContext) -> Answer | None:
        """None: it stays open. Raises ``ClearwayError`` where the request is refused."""
        answers: Mapping[str, Callable[[OperatorRequest, CycleContext], Answer | None]] = {
            RequestKind.APPROVE: self._approve,
            RequestKind.CANCEL: self._cancel,
            RequestKind.PAUSE: self._pause,
            RequestKind.RESUME: self._pause,
            RequestKind.HALT: self._halt,
            RequestKind.UNHALT: self._halt,
            RequestKind.DRAIN: self._drain,
            RequestKind.UNDRAIN: self.drains.undrain,
            RequestKind.CANCEL_ROLLING: self.rolling.cancel,
            RequestKind.PROMISE: self.promises.handle,
            RequestKind.COMPACT: self.relocation.handle,
            RequestKind.PROMOTE: self.relocation.handle,
            RequestKind.TEST_PREEMPTION: self._test_preemption,
            RequestKind.HAND_OVER: self._hand_over,
        }
        if request.kind not in answers:
            raise RequestError(f"unknown request {request.kind}")
        return answers[request.kind](request, context)

    def _pause(self, request: OperatorRequest, context: CycleContext) -> Answer:
        pause = request.kind == RequestKind.PAUSE
        self.store.set_value(PAUSED, pause)
        if not pause:
            self.pauses.end(context.now)
            self.breaker.end()
        return Answer(sentence="paused" if pause else "resumed")

    def _halt(self, request: OperatorRequest, _: CycleContext) -> Answer:
        halt = request.kind == RequestKind.HALT
        self.store.set_value(HALTED, request.actor if halt else "")
        return Answer(sentence="halted" if halt else "not halted any more")

    def _test_preemption(self, request: OperatorRequest, context: CycleContext) -> Answer | None:
        return self.save_tests.carry_on(request, read_request(SaveTestRequest, request.document), context)

    def _hand_over(self, _: OperatorRequest, __: CycleContext) -> Answer:
        return Answer(sentence=f"gives up the lease after this cycle; {self.leadership.ask_to_hand_over()}")

    def _drain(self, request: OperatorRequest, context: CycleContext) -> Answer:
        wish = read_request(DrainRequest, request.document)
        if wish.rolling is not None:
            rolling = self.rolling.order(request, wish, context)
            size = f"{len(rolling.turns)} node(s), {rolling.at_once} at once"
            return Answer(sentence=f"rolling drain {rolling.rolling_id}: {size}", rolling_id=rolling.rolling_id)
        drain = self.drains.drain(request, wish, context)
        self.emit(PlanMade(drain))
        begins = f"emptying {short(drain.plan.placement_nodes)}" + (_WHEN_RESUMED if context.paused else "")
        return Answer(sentence=f"drain {drain.eviction_id}: {drain.outcome or begins}", eviction_id=drain.eviction_id)

    def _operation(self, request: OperatorRequest) -> Operation:
        if request.eviction_id is None:
            raise RequestError("it names no eviction")
        return self.operations.get(request.eviction_id)

    def _approve(self, request: OperatorRequest, context: CycleContext) -> Answer:
        """Plans that were made together count on each other's jobs, so they are approved together, or none is."""
        eviction = self._operation(request)
        if eviction.state is not EvictionState.AWAITING_APPROVAL:
            replaced = eviction.state is EvictionState.SUPERSEDED
            newer = self.store.successor(eviction.eviction_id) if replaced else None
            instead = "" if newer is None else f"; eviction {newer} replaces it"
            raise RequestError(f"eviction {eviction.eviction_id} is {eviction.state.value}{instead}")
        if context.only_observes:
            raise RequestError(context.nothing_begun)
        self._as_it_was_read(eviction, request)
        both = eviction, *self._planned_together(eviction)
        for each in both:
            if isinstance(each, Eviction) and (why := may_not_approve(request.actor, each, context.config.access)):
                raise RequestError(why if each is eviction else f"planned together with {each.eviction_id}: {why}")
        nothing = {"outcome": "", "outcome_code": None, "why": ""}
        told = list[str]()
        for each in both:
            now = approved(each, context.now, context.config.execution) if isinstance(each, Eviction) else each
            told.append(what_leaves(now))
            self.operations.save(entered(now, EvictionState.PLACING, context.now, approved_by=request.actor, **nothing))
            self.store.add_event(each.eviction_id, None, context.now, f"Approved by {request.actor}: {told[-1]}.")
        others = ", ".join(str(each.eviction_id) for each in both[1:])
        with_them = f", with {others}: planned together" if others else ""
        return Answer(sentence=f"approved{with_them}: {'; '.join(told)}")

    def _as_it_was_read(self, eviction: Operation, request: OperatorRequest) -> None:
        """Raises ``RequestError`` where it was planned anew since the revision that is approved."""
        seen = read_request(ApprovalRequest, request.document).revision if request.document else None
        same_since = eviction.plan.same_since if isinstance(eviction, Eviction) else eviction.revision
        if seen is not None and not same_since <= seen <= eviction.revision:
            stands = f"revision {eviction.revision}: {what_leaves(eviction)}"
            raise RequestError(f"eviction {eviction.eviction_id} was planned anew since revision {seen}; {stands}")

    def _planned_together(self, eviction: Operation) -> tuple[Operation, ...]:
        jobs = eviction.plan.together if isinstance(eviction, Eviction) else ()
        await_it = [e for e in self.operations.others(eviction) if e.state is EvictionState.AWAITING_APPROVAL]
        waiting = [e for e in await_it if isinstance(e, Eviction) and e.preemptor.job_id in jobs]
        return tuple(e for e in waiting if eviction.subject.job_id in e.plan.together)

    def _cancel(self, request: OperatorRequest, context: CycleContext) -> Answer:
        eviction = self._operation(request)
        before_start = eviction.started_at is None and eviction.state is not EvictionState.CANCELLING
        holds = isinstance(eviction, Promise) and eviction.state is EvictionState.STARTED
        if eviction.state.terminal or not (before_start or holds):
            raise RequestError(f"eviction {eviction.eviction_id} is {eviction.state.value}")
        if isinstance(eviction, Eviction):
            self.suppression.suppress(eviction)
        else:
            self.rolling.leave_out(eviction, f"Its drain was cancelled by {request.actor}")
        self.executor.cancel(eviction, context.now, Outcome(OutcomeCode.CANCELLED, f"Cancelled by {request.actor}"))
        return Answer(sentence="cancelled")
