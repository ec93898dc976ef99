"""The user whom a proxy names, where the site has one that knows its users (Apache, nginx, Open OnDemand).

Whoever could send the header could be anybody. So it counts on connections of the proxy alone, told by the address, or
on the daemon's socket by the user that the process at the other end runs as, which the kernel says. From anywhere else
it is refused, not passed over: somebody tries, or the proxy is not the one that was configured.

A proxy may know its users by a cookie, which a browser sends along with what another site's page asks for. What changes
something must therefore have a header that no such page can send.
"""

import pwd

from starlette.requests import HTTPConnection

from clearway.api.logins import LoginRefusedError
from clearway.config.access import AccessConfig

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
