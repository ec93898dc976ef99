"""Asks the daemon over REST what only the daemon knows: the newest snapshot. Nothing here needs the database."""

import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from pydantic import BaseModel, ValidationError

from clearway.config.configuration import load_config
from clearway.model.errors import ClearwayError, ConfigError

URL, TOKEN = "CLEARWAY_URL", "CLEARWAY_TOKEN"
_LIMIT_S = 60.0
_TOKEN_LIMIT_S = 10.0
_LARGEST = 64 * 2**20  # bytes of an answer

T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Address:
    """Where the daemon answers; ``unix``: by a socket instead of host and port."""

    scheme: str
    host: str
    port: int
    unix: Path | None = None
    authority: Path | None = None  # whose certificates are believed, beside the system's

    @property
    def shown(self) -> str:
        return str(self.unix) if self.unix is not None else f"{self.scheme}://{self.host}:{self.port}"


def address(config: Path) -> Address:
    """By CLEARWAY_URL, else by the configuration.

    Raises:
        ConfigError: when neither says it.
    """
    url = os.environ.get(URL, "")
    if url:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{URL}: must be such as https://clearway.example.org:8642, not {url[:80]!r}")
        return Address(parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))
    try:
        api = load_config(config).api
    except ConfigError as error:
        raise ConfigError(f"set {URL} to the daemon's address, such as http://host:8642 ({error})") from None
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(api.host, api.host)  # noqa: S104 - compared, not bound
    return Address("http" if api.certificate is None else "https", host, api.port, api.socket, api.certificate)


def token() -> str:
    """CLEARWAY_TOKEN or SLURM_JWT, else one of Slurm's own for this user; empty where there is none."""
    found = os.environ.get(TOKEN) or os.environ.get("SLURM_JWT", "")
    scontrol = shutil.which("scontrol")
    if found or scontrol is None:
        return found.strip()
    command = [scontrol, "token", "lifespan=60"]
    try:
        done = subprocess.run(  # noqa: S603 - fixed words
            command, capture_output=True, text=True, timeout=_TOKEN_LIMIT_S, check=False
        )
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return ""
    return done.stdout.strip().removeprefix("SLURM_JWT=") if done.returncode == 0 else ""


@dataclass(frozen=True, slots=True)
class DaemonApi:
    """The daemon's REST API, for one command."""

    at: Address
    token: str = ""

    def get(self, schema: type[T], path: str, **parameters: Any) -> T:
        """Raises ``ClearwayError``: one line, the daemon's own where it refuses."""
        given = {name: value for name, value in parameters.items() if value is not None}
        return self._answer(schema, "GET", f"/api/v1/{quote(path)}{f'?{urlencode(given)}' if given else ''}")

    def post(self, schema: type[T], path: str, body: Mapping[str, Any] | None = None) -> T:
        """Likewise."""
        return self._answer(schema, "POST", f"/api/v1/{quote(path)}", body)

    def _answer(self, schema: type[T], method: str, path: str, body: Mapping[str, Any] | None = None) -> T:
        headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {self.token}"} if self.token else {})
        data = None
        if body is not None:
            data, headers = json.dumps(body).encode(), headers | {"Content-Type": "application/json"}
        try:
            status, text = send(self.at, method, path, data, headers)
        except (OSError, http.client.HTTPException) as error:
            raise ClearwayError(f"the daemon does not answer at {self.at.shown}: {error}") from None
        try:
            if status >= 400:
                raise ClearwayError(_refusal(status, text))
            return schema.model_validate_json(text)
        except (ValidationError, ValueError):
            raise ClearwayError(f"{self.at.shown} answers {status}, and not as Clearway does") from None


def _refusal(status: int, text: bytes) -> str:
    answer = json.loads(text)
    detail = answer.get("detail") if isinstance(answer, dict) else None
    if not isinstance(detail, str):
        raise ValueError("no detail")  # noqa: TRY004 - of the answer, not of its type
    hint = f" (set {TOKEN}, or run it where `scontrol token` works)" if status == 401 else ""
    return f"{detail}{hint}"


def send(at: Address, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
    """Status and body of the answer."""
    connection = _connection(at)
    try:
        connection.request(method, path, body=body, headers=dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read(_LARGEST)
    finally:
        connection.close()


def _connection(at: Address) -> http.client.HTTPConnection:
    if at.unix is not None:
        return _UnixConnection(at.unix)
    if at.scheme == "http":
        return http.client.HTTPConnection(at.host, at.port, timeout=_LIMIT_S)
    context = ssl.create_default_context()
    if at.authority is not None:
        context.load_verify_locations(at.authority)
    return http.client.HTTPSConnection(at.host, at.port, timeout=_LIMIT_S, context=context)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_LIMIT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_LIMIT_S)
        self.sock.connect(str(self._path))
