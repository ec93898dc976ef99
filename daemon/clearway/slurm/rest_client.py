"""Calls to slurmrestd: each with a time limit, with what it answers as a dictionary, or as a typed error. Each is a
connection of its own: one that slurmrestd has closed meanwhile would leave it open whether a change was made. What it
offers is read from its own description (OpenAPI), again when it says that a path does not exist.
"""

import asyncio
import json
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from clearway.config.trusted_files import read_trusted
from clearway.model.errors import ConfigError, SlurmError, SlurmTimeoutError, SlurmUnavailableError
from clearway.slurm.base import Fence, Unfenced
from clearway.slurm.identity import claims_of, is_jwt, token_in
from clearway.slurm.process import AUTHENTICATION, KEEP_EVERY_S, RefusedError, error_for
from clearway.slurm.site_settings import NEVER, Run

LIFESPAN_S = 1800  # what is asked for; a site may allow less (max_token_lifespan)
_SHORTER_S = 300


class Tokens:
    """Slurm's tokens (JWT) for slurmrestd; they are in no log and in no message. ``auth`` "local" needs none. ``file``
    is read again before each call. Without a file ``scontrol token`` makes one for this process's user: anew when half
    of its time is over, and when Slurm has refused it.
    """

    def __init__(self, auth: str, file: Path | None, run: Run, now: Callable[[], datetime]) -> None:
        self._needed, self._file, self._run, self._now = auth != "local", file, run, now
        self._made = ""
        self._renew_at = NEVER

    def token(self) -> str:
        """A token that is good for a while; "" where none is needed. Raises SlurmUnavailableError without it."""
        now = self._now()
        if not self._needed:
            return ""
        if self._file is not None:
            return _read_token(self._file, now)
        if not self._made or now >= self._renew_at:
            self._made = ""
            made = self._make()
            end = _end_of(made) or now
            self._made, self._renew_at = made, now + (end - now) / 2
        return self._made

    def refused(self) -> bool:
        """Slurm has refused the last one. Returns whether the next one may be another."""
        again, self._made = bool(self._made), ""
        return again

    def _make(self) -> str:
        for lifespan_s in (LIFESPAN_S, _SHORTER_S):
            try:
                answer = self._run(["scontrol", "token", f"lifespan={lifespan_s}"])
            except SlurmError as error:
                why = str(error)
                continue
            if is_jwt(made := token_in(answer)):
                return made
            why = "it printed none"
        raise SlurmUnavailableError(f"scontrol token made no token: {why}")


def _read_token(file: Path, now: datetime) -> str:
    try:
        text = read_trusted(file, "Slurm's token", secret=True).strip().removeprefix("SLURM_JWT=")
    except ConfigError as error:
        raise SlurmUnavailableError(str(error)) from None
    if not is_jwt(text):
        raise SlurmUnavailableError(f"{file}: holds no token of Slurm's")
    end = _end_of(text)
    if end is not None and end <= now:
        raise SlurmUnavailableError(f"{file}: the token ended at {end:%Y-%m-%dT%H:%M:%SZ}")
    return text


def _end_of(token: str) -> datetime | None:
    seconds = claims_of(token).get("exp")
    if not isinstance(seconds, int) or not 0 <= seconds < 1 << 40:
        return None
    return datetime.fromtimestamp(min(seconds, 1 << 37), UTC)


UNIX = "unix:"
MAX_BODY = 512 * 1024 * 1024
# The parsers known here, newest first. v0.0.45 (26.05) does not tell which jobs want whole nodes; v0.0.44 does.
_ACTING = ("v0.0.45", "v0.0.44", "v0.0.43", "v0.0.42")
_READING = _ACTING[1:]
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity"}  # a small answer must not become a large one

Document = Mapping[str, Any]
UNCHANGED: Document = {}  # the answer to a question with update_time


@dataclass(frozen=True, slots=True)
class Offer:
    reading: str  # the version of its data_parser for reading jobs and all else
    acting: str  # and for changes
    requeue: bool  # with the flag Incomplete: without it a job that has just completed would run again
    reservations: bool  # to make, change and delete them
    slurm_version: str = ""  # slurmrestd's own


class RestClient:
    """``url`` is ``unix:PATH``, or http(s)://HOST:PORT; ``timeout_s`` limits each call."""

    def __init__(
        self,
        url: str,
        tokens: Tokens,
        *,
        timeout_s: float,
        transport: Callable[[], httpx.AsyncBaseTransport] | None = None,
    ) -> None:
        self._url = url
        self._tokens = tokens
        self._timeout_s = timeout_s
        self._base = "http://localhost" if url.startswith(UNIX) else url
        self._transport = transport or _transport(url)
        self._offer: Offer | None = None
        self.fence: Fence = Unfenced()

    @property
    def offer(self) -> Offer:
        """Raises SlurmError when slurmrestd does not answer, or offers nothing that is known here."""
        if self._offer is None:
            self._offer = offer_of(self._call("GET", "/openapi/v3", {}, None, changes=False))
        return self._offer

    def read(self, path: str, **query: str | int) -> Document:
        """The answer to a question; ``path`` is what follows the version."""
        return self._call("GET", f"/slurm/{self.offer.reading}{path}", query, None, changes=False)

    def change(self, method: str, path: str, body: Document | None = None) -> Document:
        """As ``read``, for what changes something: the fence may refuse it, or give it less time."""
        return self._call(method, f"/slurm/{self.offer.acting}{path}", {}, body, changes=True)

    def _call(
        self, method: str, path: str, query: Mapping[str, str | int], body: Document | None, *, changes: bool
    ) -> Document:
        for again in (True, False):
            headers = _HEADERS | ({"X-SLURM-USER-TOKEN": token} if (token := self._tokens.token()) else {})
            request = httpx.Request(method, self._base + path, params=query, json=body, headers=headers)
            # From here on nothing takes time.
            limit_s = min(self._timeout_s, self.fence.command_limit_s()) if changes else self._timeout_s
            status, answer = asyncio.run(self._bounded(request, limit_s))
            try:
                return self._decoded(f"{method} {path}", status, answer)
            except _TokenError as error:
                if not self._tokens.refused() or not again:
                    raise SlurmUnavailableError(str(error)) from None
        raise AssertionError("the second time has returned or raised")

    async def _bounded(self, request: httpx.Request, limit_s: float) -> tuple[int, bytes]:
        """Status and body. The fence hears of the wait every second; whatever ends it ends the connection too."""
        loop = asyncio.get_running_loop()
        end = loop.time() + limit_s
        sending = asyncio.ensure_future(self._send(request, limit_s))
        try:
            while not sending.done():
                left_s = end - loop.time()
                if left_s <= 0:
                    raise SlurmTimeoutError(f"slurmrestd did not answer {request.method} within {limit_s:g} s")
                await asyncio.wait({sending}, timeout=min(left_s, KEEP_EVERY_S))
                if not sending.done():
                    self.fence.keep()
            return sending.result()
        except httpx.TimeoutException:
            raise SlurmTimeoutError(f"slurmrestd did not answer {request.method} within {limit_s:g} s") from None
        except (httpx.HTTPError, OSError) as error:
            why = _line(error) or type(error).__name__
            raise SlurmUnavailableError(f"slurmrestd at {self._url} cannot be asked: {why}") from None
        finally:
            sending.cancel()
            await asyncio.wait({sending})

    async def _send(self, request: httpx.Request, limit_s: float) -> tuple[int, bytes]:
        body = bytearray()
        # No proxy of the environment is to see the token.
        async with httpx.AsyncClient(transport=self._transport(), trust_env=False, timeout=limit_s) as client:
            request.extensions = {"timeout": httpx.Timeout(limit_s).as_dict()}
            answer = await client.send(request, stream=True)
            async for part in answer.aiter_bytes():
                body += part
                if len(body) > MAX_BODY:
                    raise SlurmUnavailableError(f"slurmrestd's answer is longer than {MAX_BODY} bytes")
            return answer.status_code, bytes(body)

    def _decoded(self, what: str, status: int, body: bytes) -> Document:
        if status == httpx.codes.NOT_MODIFIED:
            return UNCHANGED
        try:
            # A job's name may be no UTF-8, and slurmrestd passes it on. ASCII stays as it is, and so do all borders.
            document = json.loads(body.decode(errors="replace"))
        except (ValueError, RecursionError):
            if status == httpx.codes.NOT_FOUND:
                self._offer = None  # another release runs there now
                raise SlurmUnavailableError(f"slurmrestd: {what}: there is no such path") from None
            if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
                raise _TokenError(f"slurmrestd: {what}: it takes no such token") from None
            raise SlurmUnavailableError(f"slurmrestd: {what}: status {status}, and no JSON") from None
        if not isinstance(document, dict):
            raise SlurmUnavailableError(f"slurmrestd: {what}: its answer is no object")
        for number, text in _errors(document):
            if number == AUTHENTICATION:
                raise _TokenError(f"slurmrestd: {what}: {text}")
            told = f"slurmrestd: {what}: {text}"
            raise error_for(number, told) if number else RefusedError(told, number)
        if status >= httpx.codes.BAD_REQUEST:
            raise SlurmUnavailableError(f"slurmrestd: {what}: status {status}")
        return document


class _TokenError(Exception):
    """Slurm takes no such token; another may be good."""


def _errors(document: Document) -> Iterator[tuple[int, str]]:
    """Slurm's number and words of each thing that went wrong: with the call, or with the jobs that it names."""
    for error in _list(document.get("errors")):
        number = error.get("error_number", 0) if isinstance(error, dict) else 0
        yield number if isinstance(number, int) else 0, _words(error)
    for result in (*_list(document.get("status")), *_list(document.get("results"))):
        for one in result if isinstance(result, list) else [result]:
            told = one if isinstance(one, dict) else {}
            error = told.get("error")
            code = error.get("code") if isinstance(error, dict) else told.get("error_code", 0)
            if code != 0:
                text = error.get("string") if isinstance(error, dict) else error
                yield code if isinstance(code, int) else 0, _line(text)


def _list(value: object) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _words(error: object) -> str:
    if not isinstance(error, dict):
        return _line(error)
    texts = (error.get("error"), error.get("description"))
    return _line(": ".join(text for text in texts if isinstance(text, str) and text))


def _line(text: object) -> str:
    return re.sub(r"\s+", " ", str(text))[:300]


def _transport(url: str) -> Callable[[], httpx.AsyncBaseTransport]:
    if url.startswith(UNIX):
        return lambda: httpx.AsyncHTTPTransport(uds=url.removeprefix(UNIX))
    # The system's authorities: a site's own one is among them.
    context = ssl.create_default_context() if url.startswith("https:") else False
    return lambda: httpx.AsyncHTTPTransport(verify=context)


def offer_of(description: Document) -> Offer:
    paths = _within(description, "paths")
    paths = paths if isinstance(paths, dict) else {}
    offered = {found[1] for path in paths if (found := re.match(r"/slurm/(v[0-9.]+)/jobs/$", str(path)))}
    reading = next((version for version in _READING if version in offered), None)
    acting = next((version for version in _ACTING if version in offered), None)
    if reading is None or acting is None:
        raise SlurmUnavailableError(
            f"slurmrestd offers {', '.join(sorted(offered)) or 'no jobs'}; known here are {', '.join(_READING)}"
        )
    # A flag that slurmrestd does not know is an error to it, and the job is requeued all the same (26.05).
    query = ("components", "schemas", f"{acting}_openapi_jobs_requeue_query")
    flags = _within(description, *query, "properties", "flags", "items", "enum")
    # "Slurm-26.05.5", or "Slurm-24.11.5&openapi/slurmctld"
    version = re.match(r"Slurm-([0-9.]+)", str(_within(description, "info", "version")))
    return Offer(
        reading,
        acting,
        requeue=_within(paths, f"/slurm/{acting}/jobs/requeue", "post") is not None
        and isinstance(flags, list)
        and "Incomplete" in flags,
        reservations=_within(paths, f"/slurm/{acting}/reservation", "post") is not None,
        slurm_version=version[1] if version else "",
    )


def _within(found: Any, *keys: str) -> Any:
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found
