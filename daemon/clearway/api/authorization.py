"""Who asks, and who may use which route. Every route declares it, or the application is not made.

A route that anybody may use, known or not (health), says ``dependencies=[PUBLIC]``. Every other route names the least
role that it needs, on itself or on its router::

    router = APIRouter(tags=["..."], dependencies=[needs(Role.VIEWER)], responses=REFUSALS)

    @router.post("/stop", dependencies=[needs(Role.OPERATOR)])
    def stop(ask: Ask) -> ...:

``needs(Role.USER)`` admits every known user: such a route must show a user no more than ``Sight`` allows, or leave the
decision to the loop. Where several are declared, all of them hold. A route that wants to know the asker takes
``asker: Asker``, one that stores a request takes ``Ask`` (operation_routes), whose actor is the identity's name: callers
cannot choose it. Where ``access.public = "reading"``, an asker without token counts as a viewer without a name; what is
asked of the loop (``Ask``) always needs a name.

A site may have a proxy that knows its users (Apache, nginx, Open OnDemand) and names them in a header. Whoever could
send that header could be anybody. So it counts on connections of the proxy alone, told by the address, or on the
daemon's socket by the user that the process at the other end runs as, which the kernel says. From anywhere else it is
refused: somebody tries, or the proxy is not the one that was configured. A proxy may know its users by a cookie, which
a browser sends along with what another site's page asks for. What changes something must therefore have a header that
no such page can send.
"""

import pwd
from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import HTTPConnection

from clearway.api import schemas
from clearway.api.context import Context, Daemon
from clearway.api.logins import LoginRefusedError
from clearway.config.access import AccessConfig, Public
from clearway.model.errors import SlurmError
from clearway.model.requests import Identity, Role

PAGE = "x-clearway-page"  # sent with everything that the page asks
_SAFE = ("GET", "HEAD")


class ForeignPageError(Exception):
    """A change that a page of another site may have asked for."""


def user_named_by_proxy(request: HTTPConnection, access: AccessConfig) -> str | None:
    """None: no proxy is configured, or it names no user.

    Raises:
        LoginRefusedError: the header is not the proxy's, or names several users.
        ForeignPageError: the request changes something and lacks the header of the page.
    """
    if access.proxy_header is None:
        return None
    named = request.headers.getlist(access.proxy_header)
    if not named:
        return None
    peer = "" if request.client is None else request.client.host
    if not any(_is(peer, known) for known in access.proxy_peers):
        raise LoginRefusedError(f"{access.proxy_header} from {peer or 'an unknown peer'}, which is not the proxy")
    if len(named) > 1:
        raise LoginRefusedError(f"{access.proxy_header} more than once")
    if not named[0]:
        return None
    if request.scope["method"] not in _SAFE and PAGE not in request.headers:
        raise ForeignPageError
    return named[0]


def _is(peer: str, known: str) -> bool:
    if not known.startswith("unix:"):
        return peer == known
    try:
        return peer == f"unix:{pwd.getpwnam(known.removeprefix('unix:')).pw_uid}"
    except KeyError:
        return False


REFUSALS: dict[int | str, dict[str, Any]] = {
    401: {"model": schemas.Problem, "description": "no valid token"},
    403: {"model": schemas.Problem, "description": "the identity's role does not allow it"},
}

_ANONYMOUS = Identity("", Role.VIEWER)

_bearer = HTTPBearer(auto_error=False, description="of `scontrol token` or `clearway token`")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


def _asker(given: Credentials, daemon: Daemon, request: Request) -> Identity:
    """Whose token this is; each request is asked once, however many of its dependencies want to know."""
    if given is None:
        named = _named_by_proxy(daemon, request)
        if named is not None:
            return named
        if daemon.config().access.public is Public.READING:
            return _ANONYMOUS
        raise _no_token(daemon)
    if not daemon.logins.configured:
        raise _no_token(daemon)
    try:
        return daemon.logins.identify(given.credentials.strip())
    except LoginRefusedError as error:
        daemon.refusals.note("token", str(error), actor="", peer=_peer(request), path=request.url.path)
        raise _unknown("the token is not valid, or has ended") from None
    except SlurmError:
        raise HTTPException(503, "Slurm cannot be asked whether the token is good; try again") from None


def _named_by_proxy(daemon: Context, request: Request) -> Identity | None:
    """The user whom the site's proxy names; a token counts more, and is asked for first."""
    try:
        user = user_named_by_proxy(request, daemon.config().access)
        return None if user is None else daemon.logins.identify_user(user)
    except LoginRefusedError as error:
        daemon.refusals.note("proxy", str(error), actor="", peer=_peer(request), path=request.url.path)
        raise _unknown("the user that is named by a header is not accepted from here") from None
    except ForeignPageError:
        raise HTTPException(403, "a change through the proxy needs the header X-Clearway-Page") from None
    except SlurmError:
        raise HTTPException(503, "Slurm cannot be asked for the user's rights; try again") from None


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
