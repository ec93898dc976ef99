"""What an asker may see. Viewers see everything; a user sees own jobs, the urgent jobs that these left for or that are
the user's own, and of other users' jobs what Slurm shows every user (PrivateData).

Where jobs are private, answers are cut down to the user's own, and in sentences the names of others are replaced.
The name of a placement is told to viewers alone: who knows it could submit other jobs into it.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import Depends, HTTPException

from clearway.api import plan_schemas as p
from clearway.api import schemas as s
from clearway.api.authorization import Asker
from clearway.api.context import Daemon
from clearway.api.status_schemas import StatusView
from clearway.execution.lifecycle import PREFIX
from clearway.model.cluster import ClusterSnapshot, Job
from clearway.model.operations import Eviction, Operation
from clearway.model.report import CycleReport, Waiting
from clearway.model.requests import Identity, Role

_WORD = re.compile(r"[\w.@-]+")
_OTHER = "(not yours)"

A = TypeVar("A", bound=p.Answer)
E = TypeVar("E", bound=s.EvictionSummary)
P = TypeVar("P", bound=p.PlanView)


@dataclass(frozen=True, slots=True)
class Own:
    """One user's part of an operation or a snapshot; ``jobs`` None: all of them are shown."""

    jobs: frozenset[str] | None
    others: frozenset[str]  # job ids and users that are not told

    def has(self, job_id: str) -> bool:
        return self.jobs is None or job_id in self.jobs

    def told(self, sentence: str) -> str:
        """The sentence without the names of others."""
        return _WORD.sub(lambda word: _OTHER if self._hidden(word[0]) else word[0], sentence)

    def _hidden(self, word: str) -> bool:
        word = word.strip(".-@")
        return word in self.others or word.startswith(PREFIX)

    def redacted(self, answer: A, *sentences: str, **others: object) -> A:
        """The answer without the names of others in these fields of it, and with ``others`` as they are given."""
        return answer.model_copy(update={name: self.told(getattr(answer, name)) for name in sentences} | others)

    def plan(self, plan: P) -> P:
        if self.jobs is None:
            return plan
        actions = tuple(each for each in plan.chosen.actions if self.has(each.job_id))
        own: dict[str, object] = {
            "chosen": plan.chosen.model_copy(update={"actions": actions}),
            "together": tuple(job_id for job_id in plan.together if self.has(job_id)),
        }
        if isinstance(plan, p.WholePlanView):
            own["verdicts"] = self.verdicts(plan.verdicts)
        return self.redacted(plan, "note", **own)

    def verdicts(self, verdicts: Iterable[p.VerdictView]) -> tuple[p.VerdictView, ...]:
        return tuple(self.redacted(each, "reason") for each in verdicts if self.has(each.job_id))

    def what_if(self, answer: s.WhatIfView) -> s.WhatIfView:
        plan = None if answer.plan is None else self.plan(answer.plan)
        curve = answer.curve if plan is None or answer.curve is None else plan.curve
        return self.redacted(answer, "why", plan=plan, curve=curve, verdicts=self.verdicts(answer.verdicts))

    def summary(self, eviction: E) -> E:
        return self.redacted(eviction, "outcome", placement="", promise=None)

    def preemption(self, preemption: s.PreemptionView) -> s.PreemptionView:
        return self.redacted(preemption, "reason", "note")

    def eviction(self, eviction: s.EvictionView) -> s.EvictionView:
        own = tuple(self.preemption(each) for each in eviction.preemptions if self.has(each.job_id))
        return self.summary(eviction).model_copy(update={"plan": self.plan(eviction.plan), "preemptions": own})

    def steps(self, steps: Iterable[s.StepView]) -> tuple[s.StepView, ...]:
        return tuple(self.redacted(each, "detail") for each in steps if each.job_id is None or self.has(each.job_id))


_ALL = Own(None, frozenset())


@dataclass(frozen=True, slots=True)
class Sight:
    asker: Identity
    private: frozenset[str]  # kinds of data of which the asker sees only what is own, as Slurm's PrivateData names them

    def all(self, *kinds: str) -> bool:
        """Whether the asker sees these kinds of data of all users."""
        return not self.private & set(kinds)

    @property
    def own_alone(self) -> str | None:
        """The user whose jobs alone are shown; None: those of all users."""
        return None if self.all("jobs") else self.asker.name

    def of_snapshot(self, snapshot: ClusterSnapshot) -> Own:
        return self._own(snapshot.jobs)

    def of_operation(self, operation: Operation) -> Own:
        """The job that it serves is told to those who left for it."""
        subject = operation.subject
        told = {subject.job_id, subject.display_id, subject.user}
        ids = {verdict.job_id for verdict in operation.plan.verdicts} | set(getattr(operation.plan, "together", ()))
        return self._own(_jobs_of(operation), ids, told)

    def _own(self, jobs: Iterable[Job], ids: Collection[str] = (), told: Collection[str] = ()) -> Own:
        if self.asker.role.includes(Role.VIEWER):
            return _VIEWERS
        if self.all("jobs"):
            return _ALL
        user, known = self.asker.name, tuple(jobs)
        own = frozenset(job.job_id for job in known if job.user == user)
        others = {word for job in known if job.user != user for word in (job.job_id, job.display_id, job.user)}
        return Own(own, frozenset(others | set(ids)) - own - set(told) - {""})

    def part_of(self, operation: Operation) -> Own | None:
        """None where nothing of it is the asker's."""
        own = self.of_operation(operation)
        return own if own.jobs is None or own.jobs or operation.subject.user == self.asker.name else None

    def eviction(self, operation: Operation) -> Own:
        """Raises 404, as for one that does not exist, where nothing of it is the asker's."""
        own = self.part_of(operation)
        if own is None:
            raise HTTPException(404, f"no eviction {operation.eviction_id}")
        return own

    def involvement(self, load: Callable[[], Operation]) -> Own:
        """As ``of_operation``, for an operation that is loaded only where its jobs' names matter."""
        return self._own(()) if self.all("jobs") else self.of_operation(load())

    def _left_for(self, operations: Iterable[Operation]) -> frozenset[str]:
        """The jobs that jobs of the asker leave for."""
        return frozenset(e.subject.job_id for e in operations if self.of_operation(e).jobs)

    def waiting(self, report: CycleReport) -> list[Waiting]:
        """The urgent jobs of the asker, and those that the asker's jobs leave for."""
        if self.all("jobs"):
            return list(report.waiting)
        left_for, user = self._left_for(report.open_evictions), self.asker.name
        return [
            each for each in report.waiting if each.preemptor.job.user == user or each.preemptor.job.job_id in left_for
        ]

    def status(self, status: StatusView, operations: Sequence[Operation]) -> StatusView:
        """What waits as ``waiting`` has it, without sentences; the asker's operations; no rolling drains."""
        if self.asker.role.includes(Role.VIEWER):
            return status
        parts = {e.eviction_id: part for e in operations if (part := self.part_of(e)) is not None}
        told = (parts[each.eviction_id].summary(each) for each in status.open_evictions if each.eviction_id in parts)
        cut: dict[str, object] = {"open_evictions": tuple(told), "rolling_drains": ()}
        if not self.all("jobs"):
            left_for, user = self._left_for(operations), self.asker.name
            own = (each for each in status.waiting if each.user == user or each.job_id in left_for)
            cut["waiting"] = tuple(each.model_copy(update={"why": ""}) for each in own)
        return status.model_copy(update=cut)


class _Viewer(Own):
    """Sees what there is, placements included."""

    def told(self, sentence: str) -> str:
        return sentence

    def summary(self, eviction: E) -> E:
        return eviction


_VIEWERS = _Viewer(None, frozenset())


def _jobs_of(operation: Operation) -> Iterable[Job]:
    yield from (each.job for each in operation.preemptions)
    if isinstance(operation, Eviction):
        yield operation.preemptor


def _sight(asker: Asker, daemon: Daemon) -> Sight:
    everything: frozenset[Any] = frozenset()
    return Sight(asker, everything if asker.role.includes(Role.VIEWER) else daemon.logins.private_data())


Seen = Annotated[Sight, Depends(_sight)]
