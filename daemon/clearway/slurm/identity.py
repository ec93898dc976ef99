"""What Slurm says of its users: whose token this is, what rights they have, and what they may see of each other. A
token (JWT) is shown to slurmctld, which alone has the key: used to ask for another one, of ten seconds, it gets it only
while it is genuine, and that names its user. Some release or site might answer with the daemon's rights instead. So a
forged token is shown first, now and then: while Slurm takes it, Slurm's tokens are no identity here.
"""

import base64
import json
import re
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from clearway.model.cluster import AdminLevel
from clearway.model.errors import SlurmError, SlurmTimeoutError, SlurmUnavailableError
from clearway.slurm.parse.fields import setting
from clearway.slurm.process import Commands, checked

LONGEST_TOKEN = 4_096
_ASKED_AT_ONCE = 2  # processes; more callers wait a little
_PATIENCE_S = 2.0
_FORGED_EVERY = timedelta(minutes=10)
_PRIVATE_EVERY = timedelta(minutes=10)
_JWT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
_ANSWER = re.compile(r"^SLURM_JWT=(\S+)$", re.MULTILINE)
_DOWN = "Unable to contact"  # else the controller has answered: "Zero Bytes were transmitted" is its no in 22.05
_LEVEL = re.compile(r"AdminLevel=(\w+)")
EVERYTHING_PRIVATE = frozenset({"accounts", "events", "jobs", "nodes", "partitions", "reservations", "usage", "users"})


def is_jwt(token: str) -> bool:
    return len(token) <= LONGEST_TOKEN and _JWT.fullmatch(token) is not None


def claims_of(token: str) -> dict[str, Any]:
    """What a token says of itself, which proves nothing. Empty when that cannot be read."""
    try:
        body = token.split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (ValueError, IndexError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def token_in(answer: str) -> str:
    found = _ANSWER.search(answer)
    return found[1] if found else ""


class SlurmIdentity:
    """Safe for several threads. Answers are not kept, but for what the whole site has set."""

    def __init__(self, *, now: Callable[[], datetime], slurm_conf: str | None, timeout_s: float) -> None:
        self._run = Commands(timeout_s, slurm_conf).run
        self._now = now
        self._asking = threading.BoundedSemaphore(_ASKED_AT_ONCE)
        self._believed_until: datetime | None = None
        self._private: tuple[datetime, frozenset[str]] | None = None

    def user_of(self, token: str) -> str | None:
        """The user whose genuine token this is; None for any other text. Raises ``SlurmError`` where nobody can say."""
        claims = claims_of(token)
        if not is_jwt(token) or not claims:
            return None
        with self._in_turn():
            self._try_forged()
            user = self._asked(token)
        return user if user is not None and claims.get("sun", user) == user else None

    def admin_level(self, user: str) -> AdminLevel:
        """From slurmctld's own memory: quick, and known while slurmdbd is down. ``NONE`` without accounting."""
        with self._in_turn():
            records = self._run(
                ["scontrol", "--oneliner", "show", "assoc_mgr", f"users={checked(user)}", "flags=users"]
            )
        for line in records.splitlines():
            if line.startswith(f"UserName={user}(") and (found := _LEVEL.search(line)):
                word = found[1].lower()
                return AdminLevel(word) if word in set(AdminLevel) else AdminLevel.NONE
        return AdminLevel.NONE

    def private_data(self) -> frozenset[str]:
        """Slurm's PrivateData, read every ten minutes; everything while it cannot be read."""
        if self._private is None or self._private[0] <= self._now():
            try:
                with self._in_turn():
                    found = setting(self._run(["scontrol", "show", "config"]), "PrivateData")
            except SlurmError:
                return EVERYTHING_PRIVATE
            if not found:
                return EVERYTHING_PRIVATE
            words = frozenset(found.lower().split(",")) - {"none"}
            self._private = (self._now() + _PRIVATE_EVERY, words)
        return self._private[1]

    def _asked(self, token: str) -> str | None:
        try:
            answer = self._run(["scontrol", "token", "lifespan=10"], env={"SLURM_JWT": token})
        except SlurmError as error:
            if isinstance(error, SlurmTimeoutError) or _DOWN in str(error):
                raise
            return None
        user = claims_of(token_in(answer)).get("sun")
        return user if isinstance(user, str) and user else None

    def _try_forged(self) -> None:
        now = self._now()
        if self._believed_until is not None and now < self._believed_until:
            return
        self._believed_until = None
        claims = {"exp": int(now.timestamp()) + 600, "iat": int(now.timestamp()), "sun": "root"}
        parts = (_encoded({"alg": "HS256", "typ": "JWT"}), _encoded(claims), secrets.token_urlsafe(32))
        if self._asked(".".join(parts)) is not None:
            raise SlurmUnavailableError("scontrol token: this Slurm takes a forged token, so its tokens prove nothing")
        self._believed_until = now + _FORGED_EVERY

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        if not self._asking.acquire(timeout=_PATIENCE_S):
            raise SlurmUnavailableError("too many logins are being checked")
        try:
            yield
        finally:
            self._asking.release()


def _encoded(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
