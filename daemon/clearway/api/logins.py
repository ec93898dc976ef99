"""From a bearer token to an identity, whoever has made the token: this site's token file, Slurm, or its provider.

A token of the file is 256 random bits, so its plain SHA-256 there keeps the secret: there is nothing to guess. A group
may read the file, so that root can own it and the daemon's group can read it (0640).

Tokens of a provider are checked by the public keys of a JWKS file (RFC 7517). A symmetric key is refused: everybody who
reads it could make tokens.

No token is kept or logged. Whether one was good is remembered by its hash, so that who asks every second costs no
question to Slurm each time. What Slurm takes from a user counts here up to ``KEPT_S`` longer.
"""

import grp
import hashlib
import hmac
import json
import os
import pwd
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from clearway.config.access import AccessConfig
from clearway.config.configuration import Config
from clearway.config.plugins import how_to_install
from clearway.config.trusted_files import read_trusted
from clearway.model.clock import Clock
from clearway.model.cluster import AdminLevel
from clearway.model.errors import ConfigError
from clearway.model.requests import Identity, Role
from clearway.slurm.identity import EVERYTHING_PRIVATE, SlurmIdentity, claims_of, is_jwt

NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_FORM = "expected 'NAME ROLE END sha256:HASH', as `clearway token` writes it"
_END = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class Entry:
    """One token; ``end`` None: it does not end."""

    identity: Identity
    end: datetime | None
    digest: str

    @property
    def line(self) -> str:
        end = "never" if self.end is None else self.end.astimezone(UTC).strftime(_END)
        return f"{self.identity.name} {self.identity.role.value} {end} {self.digest}"

    def ended(self, now: datetime) -> bool:
        return self.end is not None and self.end <= now


def digest_of(token: str) -> str:
    return "sha256:" + hashlib.sha256(token.encode(errors="replace")).hexdigest()


def new_token(name: str, role: Role, end: datetime | None) -> tuple[str, Entry]:
    """A token that was never given out before, and its entry; the token itself is kept nowhere."""
    token = "cw_" + secrets.token_urlsafe(32)
    return token, Entry(Identity(name, role), end, digest_of(token))


class Tokens:
    """The entries of the file, as read when made. Without a file there is none."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self.entries = self.read()

    @property
    def configured(self) -> bool:
        return self._file is not None

    def read(self) -> tuple[Entry, ...]:
        """What the file has now, without taking it over. Raises ``ConfigError``, never with a token."""
        if self._file is None:
            return ()
        return _parse(read_trusted(self._file, "the tokens", secret=True), self._file)

    def find(self, token: str) -> Entry | None:
        """The entry of this token, ended or not. Each is compared in constant time, so that the wait tells nothing."""
        given = digest_of(token)
        found = [entry for entry in self.entries if hmac.compare_digest(given, entry.digest)]
        return found[0] if found else None


def _parse(text: str, file: Path) -> tuple[Entry, ...]:
    entries: dict[str, Entry] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            entry = _entry(line)
        except ValueError as error:
            raise ConfigError(f"{file}: line {number}: {error}") from None
        if entry.digest in entries:
            raise ConfigError(f"{file}: line {number}: the same token as {entries[entry.digest].identity.name}'s")
        entries[entry.digest] = entry
    return tuple(entries.values())


def _entry(line: str) -> Entry:
    """Raises ``ValueError`` with a sentence that repeats nothing of the line but a role."""
    words = line.split()
    if len(words) != 4 or not NAME.fullmatch(words[0]) or not _HASH.fullmatch(words[3]):
        raise ValueError(_FORM)
    name, role, end, digest = words
    if role not in set(Role):
        raise ValueError(f"there is no role {role[:20]!r}; there are {', '.join(Role)}")
    try:
        ends = None if end == "never" else datetime.strptime(end, _END).replace(tzinfo=UTC)
    except ValueError:
        raise ValueError("the end is 'never' or a time like 2027-05-01T00:00:00Z") from None
    return Entry(Identity(name, Role(role)), ends, digest)


_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")

Verify = Callable[[str], str | None]


def verifier(access: AccessConfig) -> Verify:
    """From a token to its user; None: it does not hold, or there is no ``access.jwks_file``, which is read now.

    Raises ``ConfigError``: the file cannot be used, or PyJWT is not installed.
    """
    if access.jwks_file is None:
        return lambda _: None
    try:
        import jwt  # noqa: PLC0415 - an optional dependency: most sites ask Slurm instead
        import jwt.algorithms  # noqa: PLC0415
    except ImportError:
        raise ConfigError(f"access.jwks_file needs PyJWT: {how_to_install('jwks')}") from None
    if not jwt.algorithms.has_crypto:
        raise ConfigError(f"access.jwks_file needs cryptography: {how_to_install('jwks')}")
    keys = _keys(access.jwks_file)
    claim, audience = access.jwks_user_claim, access.jwks_audience

    def user_of(token: str) -> str | None:
        try:
            header = jwt.get_unverified_header(token)
            key = keys.get(str(header.get("kid", ""))) or (next(iter(keys.values())) if len(keys) == 1 else None)
            if key is None or header.get("alg") not in _ALGORITHMS or key.get("alg", header["alg"]) != header["alg"]:
                return None
            options: Any = {"require": ["exp", claim], "verify_aud": audience is not None}
            claims: dict[str, Any] = jwt.decode(
                token, jwt.PyJWK(key, header["alg"]), algorithms=[header["alg"]], audience=audience, options=options
            )
        except (jwt.PyJWTError, ValueError, TypeError):
            return None
        user = claims.get(claim)
        return user if isinstance(user, str) and user else None

    return user_of


def _keys(file: Path) -> dict[str, dict[str, Any]]:
    try:
        document = json.loads(read_trusted(file, "the keys", secret=False))
        found = {str(key.get("kid", "")): key for key in document["keys"] if key.get("use", "sig") == "sig"}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ConfigError(f"{file}: not a JWKS file: expected {{'keys': [...]}}") from None
    if any(key.get("kty") not in ("RSA", "EC", "OKP") for key in found.values()):
        raise ConfigError(f"{file}: holds a key that is not public (kty is neither RSA, EC nor OKP)")
    if not found:
        raise ConfigError(f"{file}: holds no key for signatures")
    return found


KEPT_S = 60.0
_REFUSED_KEPT_S = 10.0
_MOST_KEPT = 1_024  # of each kind
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}", re.ASCII)  # an actor's name ends at its first blank


class LoginRefusedError(Exception):
    """``str`` is the reason in one line for the daemon's records; the asker is told no more than that it failed."""


class _Known(NamedTuple):
    identity: Identity | None  # None: refused
    until: datetime


class Logins:
    """Asks everything that knows identities, in turn; safe for several threads. Raises as ``verifier``."""

    def __init__(
        self, tokens: Tokens, config: Callable[[], Config], clock: Clock, slurm: SlurmIdentity | None = None
    ) -> None:
        self._tokens = tokens
        self._config = config
        self._clock = clock
        self._slurm = slurm
        self._lock = threading.Lock()
        self._known: dict[bool, OrderedDict[bytes, _Known]] = {True: OrderedDict(), False: OrderedDict()}
        self._verify = verifier(config().access)

    def reload(self, access: AccessConfig) -> tuple[tuple[Entry, ...], Callable[[], None]]:
        """Reads tokens and keys: the entries of the token file, and what takes all over. Raises ``ConfigError``."""
        verify, entries = verifier(access), self._tokens.read()

        def take_over() -> None:
            self._verify, self._tokens.entries = verify, entries
            with self._lock:
                for kept in self._known.values():
                    kept.clear()

        return entries, take_over

    @property
    def entries(self) -> tuple[Entry, ...]:
        return self._tokens.entries

    @property
    def configured(self) -> bool:
        access = self._config().access
        return self._tokens.configured or access.jwks_file is not None or self._asks_slurm(access) is not None

    def identify(self, token: str) -> Identity:
        """Raises ``LoginRefusedError``, and ``SlurmError`` while Slurm cannot be asked."""
        now = self._clock.now()
        entry = self._tokens.find(token)
        if entry is not None:
            if entry.ended(now):
                raise LoginRefusedError(f"the token of {entry.identity.name} has ended")
            return entry.identity
        if not is_jwt(token):
            raise LoginRefusedError("unknown token")

        def ask() -> _Known:
            identity = self._asked(token)
            return _Known(identity, _until(token, now, refused=identity is None))

        known = self._known_by(hashlib.sha256(token.encode()).digest(), now, ask)
        if known is None:
            raise LoginRefusedError("a JWT that is not genuine, or has ended")
        return known

    def known(self, token: str) -> str:
        """The name of whom this token was found to be, without asking anybody; empty: not known. Grants nothing."""
        if (entry := self._tokens.find(token)) is not None:
            return entry.identity.name
        with self._lock:
            kept = self._known[True].get(hashlib.sha256(token.encode(errors="replace")).digest())
        return "" if kept is None or kept.identity is None else kept.identity.name

    def identify_user(self, user: str) -> Identity:
        """A user whom the site's proxy names. Raises as ``identify``; a proxy cannot name root."""
        if user == "root" or not _USER.fullmatch(user):
            raise LoginRefusedError(f"the proxy names {user[:40]!r}, which is no user")
        now = self._clock.now()
        until = now + timedelta(seconds=KEPT_S)
        known = self._known_by(b"proxy " + user.encode(), now, lambda: _Known(self._with_role(user), until))
        assert known is not None  # noqa: S101 - no user is remembered as refused
        return known

    def private_data(self) -> frozenset[str]:
        """The kinds of data that ordinary users see of themselves alone; everything where there is no Slurm to ask."""
        return EVERYTHING_PRIVATE if self._slurm is None else self._slurm.private_data()

    def _asked(self, token: str) -> Identity | None:
        slurm = self._asks_slurm(self._config().access)
        user = self._verify(token)
        if user in (None, "root"):  # root is Slurm's word alone: at some providers users choose their names
            user = None if slurm is None else slurm.user_of(token)
        return None if user is None or not _USER.fullmatch(user) else self._with_role(user)

    def _with_role(self, user: str) -> Identity:
        access = self._config().access
        level = AdminLevel.NONE if self._slurm is None or not access.slurm_roles else self._slurm.admin_level(user)
        return Identity(user, role_of(user, access, level))

    def _asks_slurm(self, access: AccessConfig) -> SlurmIdentity | None:
        return self._slurm if access.slurm_tokens else None

    def _known_by(self, key: bytes, now: datetime, ask: Callable[[], _Known]) -> Identity | None:
        """As remembered, else asked for. The oldest are forgotten first; refused tokens cannot drive out good ones."""
        with self._lock:
            for kept in self._known.values():
                if (known := kept.get(key)) is not None and known.until > now:
                    return known.identity
        known = ask()
        kept = self._known[known.identity is not None]
        with self._lock:
            kept[key] = known
            kept.move_to_end(key)
            while len(kept) > _MOST_KEPT:
                kept.popitem(last=False)
        return known.identity


def _until(token: str, now: datetime, *, refused: bool) -> datetime:
    """A good token is known no longer than it lives: its end is part of what was found genuine."""
    until = now + timedelta(seconds=_REFUSED_KEPT_S if refused else KEPT_S)
    end = claims_of(token).get("exp")
    if refused or not isinstance(end, int | float):
        return until
    return min(until, now + timedelta(seconds=max(0.0, min(KEPT_S, end - now.timestamp()))))


def role_of(user: str, access: AccessConfig, level: AdminLevel) -> Role:
    """The highest role that the configuration, or the user's rights in Slurm, give."""
    by_slurm = {AdminLevel.OPERATOR: Role.OPERATOR, AdminLevel.ADMINISTRATOR: Role.ADMIN}
    roles = [Role.USER, by_slurm.get(level, Role.USER)]
    if user == "root" and access.slurm_roles:
        roles.append(Role.ADMIN)
    listed = {Role.VIEWER: access.viewers, Role.OPERATOR: access.operators, Role.ADMIN: access.admins}
    known_as = {user}
    if any(name.startswith("@") for names in listed.values() for name in names):
        known_as |= _groups_of(user)
    roles += [role for role, names in listed.items() if known_as & set(names)]
    return max(roles, key=lambda role: role.rank)


def _groups_of(user: str) -> set[str]:
    """The user's groups on this machine, as @GROUP; none for a user that it does not know."""
    found = set()
    with suppress(KeyError, ValueError):
        for number in os.getgrouplist(user, pwd.getpwnam(user).pw_gid):
            with suppress(KeyError):
                found.add(f"@{grp.getgrgid(number).gr_name}")
    return found
