"""Who asks, who may use which route, and what of the answers each asker may see.

Every route declares its least role (``needs``) or ``PUBLIC``, on itself or on its router; of several all hold. A route
for ``Role.USER`` must show a user no more than ``Sight`` allows, or leave the decision to the loop. One that stores a
request takes ``Ask`` (operation_routes), whose actor is the asker's name. Where ``access.public = "reading"``, an asker
without a token is a viewer without a name, and can ask nothing of the loop.

A proxy that knows the site's users names them in a header. It counts on connections of the proxy alone, told by the
address, or on the daemon's socket by the user of the other process, as the kernel says. The proxy may know its users by
a cookie, which a browser also sends with what another site's page asks for: what changes something must therefore have
a header that no such page can send.

Where Slurm's PrivateData hides jobs, answers to users are cut down to their own, and in sentences the names of others
are replaced. The name of a placement is told to viewers alone: who knows it could submit other jobs into it.
"""

import pwd
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.datastructures import Headers
from starlette.types import Scope

from clearway.api import schemas as s
from clearway.api.context import Context, Daemon, problems
from clearway.api.lanes import Caller
from clearway.api.logins import LoginRefusedError
from clearway.api.report_schemas import StatusView
from clearway.config.access import Public
from clearway.execution.lifecycle import PREFIX
from clearway.model.cluster import ClusterSnapshot, Job
from clearway.model.errors import SlurmError
from clearway.model.operations import Eviction, Operation
from clearway.model.report import CycleReport, Waiting
from clearway.model.requests import Identity, Role

PAGE = "x-clearway-page"  # sent with everything that the page asks
_SAFE = ("GET", "HEAD")


def _is(peer: str, known: str) -> bool:
    if not known.startswith("unix:"):
        return peer == known
    try:
        return peer == f"unix:{pwd.getpwnam(known.removeprefix('unix:')).pw_uid}"
    except KeyError:
        return False


REFUSALS = problems({401: "no valid token", 403: "the identity's role does not allow it"})
_ANONYMOUS = Identity("", Role.VIEWER)

_bearer = HTTPBearer(auto_error=False, description="of `scontrol token` or `clearway token`")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


_TOLD = {  # where a token or a user's name is refused, and where Slurm cannot be asked
    "token": ("the token is not valid, or has ended", "whether the token is good"),
    "proxy": ("the user that is named by a header is not accepted from here", "for the user's rights"),
}


def _asker(given: Credentials, daemon: Daemon, request: Request) -> Identity:
    """Whose token this is; each request is asked once, however many of its dependencies want to know."""
    what = "proxy" if given is None else "token"
    try:
        if given is None and (named := _named_by_proxy(daemon, request)) is not None:
            return named
        if given is not None and daemon.logins.configured:
            return daemon.logins.identify(given.credentials.strip())
    except LoginRefusedError as error:  # the asker is not told why; the audit trail is
        daemon.refusals.note(what, str(error), actor="", peer=_peer(request), path=request.url.path)
        raise _unknown(_TOLD[what][0]) from None
    except SlurmError:
        raise HTTPException(503, f"Slurm cannot be asked {_TOLD[what][1]}; try again") from None
    if given is None and daemon.config().access.public is Public.READING:
        return _ANONYMOUS
    raise _no_token(daemon)


def _named_by_proxy(daemon: Context, request: Request) -> Identity | None:
    """The user whom the site's proxy names, if any; a token counts more, and is asked for first."""
    access, peer = daemon.config().access, _peer(request)
    header = access.proxy_header
    named = request.headers.getlist(header) if header is not None else []
    if not named:
        return None
    if not any(_is(peer, known) for known in access.proxy_peers):
        raise LoginRefusedError(f"{header} from {peer or 'an unknown peer'}, which is not the proxy")
    if len(named) > 1:
        raise LoginRefusedError(f"{header} more than once")
    if not named[0]:
        return None
    if request.method not in _SAFE and PAGE not in request.headers:
        raise HTTPException(403, "a change through the proxy needs the header X-Clearway-Page")
    return daemon.logins.identify_user(named[0])


def known_caller(daemon: Context, scope: Scope) -> Caller:
    """By whom places are counted (``lanes``), without asking Slurm: the user of a token that was found good, or one
    whom the site's proxy names.
    """
    access, headers, peer = daemon.config().access, Headers(scope=scope), (scope.get("client") or ("",))[0]
    kind, _, token = headers.get("authorization", "").partition(" ")
    name = daemon.logins.known(token.strip()) if kind.lower() == "bearer" else ""
    if not name and access.proxy_header is not None and any(_is(peer, known) for known in access.proxy_peers):
        name = headers.get(access.proxy_header, "")[:_LONGEST_USER]
    monitor = name in access.monitors if name else any(_is(peer, known) for known in access.monitors)
    return Caller(name, monitor)


_LONGEST_USER = 64


def _no_token(daemon: Context) -> HTTPException:
    if not daemon.logins.configured:
        return HTTPException(403, "this needs a token, and none is good: see api.token_file, access.slurm_tokens")
    return _unknown("this needs a valid token: send 'Authorization: Bearer TOKEN'")


def _unknown(why: str) -> HTTPException:
    return HTTPException(401, why, headers={"WWW-Authenticate": "Bearer"})


Asker = Annotated[Identity, Depends(_asker)]


class _Needs:
    """The check of one role; its being a class is how ``check_declared`` finds it."""

    def __init__(self, role: Role) -> None:
        self._role = role

    async def __call__(self, asker: Asker, daemon: Daemon, request: Request) -> None:
        if not asker.role.includes(self._role):
            if asker.anonymous:
                raise _no_token(daemon)
            why = f"this needs the role {self._role}; {asker.name} has the role {asker.role}"
            told = {"actor": asker.name, "peer": _peer(request), "path": request.url.path}
            await run_in_threadpool(daemon.refusals.note, "role", why, **told)
            raise HTTPException(403, why)


def _peer(request: Request) -> str:
    return "" if request.client is None else request.client.host


def needs(role: Role) -> Any:
    """A dependency for ``dependencies=[...]``: 401 without a valid token, 403 with a lesser role."""
    return Depends(_Needs(role))


async def _public() -> None:  # async: it takes no worker thread
    pass


PUBLIC = Depends(_public)


def _actor(asker: Asker, daemon: Daemon) -> str:
    if asker.anonymous:
        raise _no_token(daemon)
    return asker.name


Actor = Annotated[str, Depends(_actor)]


def check_declared(router: APIRouter) -> None:
    """Raise for the first route that does not say who may use it: forgotten, it would be open to everybody."""
    for route in router.routes:
        calls = list(_calls(route.dependant)) if isinstance(route, APIRoute) else []
        if not any(call is _public or isinstance(call, _Needs) for call in calls):
            raise LookupError(f"{route}: declare needs(Role...) or PUBLIC, see clearway.api.authorization")


def _calls(dependant: Dependant) -> Iterable[object]:
    for each in dependant.dependencies:
        yield each.call
        yield from _calls(each)


_WORD = re.compile(r"[\w.@-]+")
_OTHER = "(not yours)"

A = TypeVar("A", bound=s.Answer)
E = TypeVar("E", bound=s.EvictionSummary)
P = TypeVar("P", bound=s.PlanView)


@dataclass(frozen=True, slots=True)
class Own:
    """One user's part of an operation or a snapshot; ``jobs`` None: all of them are shown."""

    jobs: frozenset[str] | None
    others: frozenset[str]  # job ids and users that are not told
    viewer: bool = False  # sees what there is, placements included

    def has(self, job_id: str) -> bool:
        return self.jobs is None or job_id in self.jobs

    def told(self, sentence: str) -> str:
        def shown(word: re.Match[str]) -> str:
            name = word[0].strip(".-@")
            return _OTHER if name in self.others or name.startswith(PREFIX) else word[0]

        return sentence if self.viewer else _WORD.sub(shown, sentence)

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
        if isinstance(plan, s.WholePlanView):
            own["verdicts"] = self.verdicts(plan.verdicts)
        return self.redacted(plan, "note", **own)

    def verdicts(self, verdicts: Iterable[s.VerdictView]) -> tuple[s.VerdictView, ...]:
        return tuple(self.redacted(each, "reason") for each in verdicts if self.has(each.job_id))

    def what_if(self, answer: s.WhatIfView) -> s.WhatIfView:
        plan = None if answer.plan is None else self.plan(answer.plan)
        curve = answer.curve if plan is None or answer.curve is None else plan.curve
        return self.redacted(answer, "why", plan=plan, curve=curve, verdicts=self.verdicts(answer.verdicts))

    def summary(self, eviction: E) -> E:
        return eviction if self.viewer else self.redacted(eviction, "outcome", placement="", promise=None)

    def preemption(self, preemption: s.PreemptionView) -> s.PreemptionView:
        return self.redacted(preemption, "reason", "note")

    def eviction(self, eviction: s.EvictionView) -> s.EvictionView:
        own = tuple(self.preemption(each) for each in eviction.preemptions if self.has(each.job_id))
        return self.summary(eviction).model_copy(update={"plan": self.plan(eviction.plan), "preemptions": own})

    def steps(self, steps: Iterable[s.StepView]) -> tuple[s.StepView, ...]:
        return tuple(self.redacted(each, "detail") for each in steps if each.job_id is None or self.has(each.job_id))


_ALL = Own(None, frozenset())
_VIEWERS = Own(None, frozenset(), viewer=True)


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

    def owns_all(self, jobs: Iterable[Job]) -> bool:
        return all(job.user == self.asker.name for job in jobs)

    def of_snapshot(self, snapshot: ClusterSnapshot) -> Own:
        return self._own(snapshot.jobs)

    def of_operation(self, operation: Operation) -> Own:
        """The job that it serves is told to those who left for it."""
        subject = operation.subject
        told = {subject.job_id, subject.display_id, subject.user}
        ids = {verdict.job_id for verdict in operation.plan.verdicts} | set(getattr(operation.plan, "together", ()))
        jobs = [each.job for each in operation.preemptions]
        return self._own([*jobs, operation.preemptor] if isinstance(operation, Eviction) else jobs, ids, told)

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
        jobs = ((each, each.preemptor.job) for each in report.waiting)
        return [each for each, job in jobs if job.user == user or job.job_id in left_for]

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


def _sight(asker: Asker, daemon: Daemon) -> Sight:
    return Sight(asker, frozenset() if asker.role.includes(Role.VIEWER) else daemon.logins.private_data())


Seen = Annotated[Sight, Depends(_sight)]
