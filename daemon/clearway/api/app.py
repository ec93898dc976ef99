"""Puts the application together: routes, bounds and one form for every error."""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio.to_thread
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException as StarletteHTTPException

import clearway
from clearway.api import job_routes as jobs
from clearway.api import operation_routes as operations
from clearway.api import reading_routes as reading
from clearway.api.admission import (
    LARGEST_HEAD,
    MEDIA_TYPE,
    BoundedBody,
    BoundedHead,
    Gzip,
    Heads,
    KnownHosts,
    Tags,
    problem,
)
from clearway.api.authorization import REFUSALS, check_declared, known_caller
from clearway.api.context import Context, problems
from clearway.api.lanes import THREADS, Lanes
from clearway.model.errors import StoreError, TooManyRequestsError, UnknownEvictionError
from clearway.telemetry.log import get_logger

API = "/api/v1"
SMALLEST_COMPRESSED = 1_000  # bytes; less fits into a packet or two anyway
_ASK_AGAIN_S = 10
LARGEST_BODY = 16 * 1024  # bytes; the largest sensible body is a hundred

_DESCRIPTION = """\
Clearway makes room on a Slurm cluster for urgent jobs. Health and metrics need no token. All else needs
`Authorization: Bearer TOKEN`, unless the site lets everybody read (`access.public`); what changes something is carried
out by the daemon's next cycle. Names end in their units: `_s` seconds,
`_node_s` node-seconds (divide by 3600 for node-hours). Times are UTC (RFC 3339). Errors are
`application/problem+json` (RFC 9457), whose `detail` is one line. GET answers have an ETag: with `If-None-Match` an
asker gets 304 while nothing has changed. HEAD answers as GET does; long answers are compressed for who accepts gzip.
"""


def create_app(context: Context, hosts: frozenset[str] | None = None) -> FastAPI:
    """The application for one daemon. ``hosts``: the names by which it may be addressed; None: any."""
    app = FastAPI(
        title="Clearway",
        version=clearway.__version__,
        description=_DESCRIPTION,
        openapi_url=None,  # FastAPI's own route renders the document each time, which holds up all other answers
        docs_url=None,  # their pages load scripts from elsewhere; the document itself is enough
        redoc_url=None,
        lifespan=_lifespan,
        redirect_slashes=False,
        responses=problems(
            {
                405: "not by this method; Allow names those that there are",
                413: f"the body is larger than {LARGEST_BODY} bytes",
                421: "the Host header names another host",
                422: "the request is malformed",
                429: "too many requests of this kind, or of this caller; see Retry-After",
                431: f"request line and headers are larger than {LARGEST_HEAD} bytes",
                503: "no snapshot yet, or the database does not answer",
            }
        ),
    )
    app.state.context = context
    for router in (
        reading.router, reading.snapshot, jobs.router, operations.router, reading.learned, reading.urgent,
        jobs.what_ifs, operations.requests, operations.drains, operations.moves, operations.rolling,
        operations.promised, reading.trail,
    ):  # fmt: skip
        check_declared(router)
        app.include_router(router, prefix=API, responses=REFUSALS, dependencies=[Depends(_no_other_query)])
    check_declared(reading.health_router)
    app.include_router(reading.health_router)
    app.openapi = partial(_documented, app, app.openapi)  # type: ignore[method-assign]  # FastAPI's own way
    app.add_route(f"{API}/openapi.json", _document, include_in_schema=False)
    app.add_middleware(Tags)
    app.add_middleware(Gzip, minimum_size=SMALLEST_COMPRESSED)
    app.add_middleware(Heads)
    refused = lambda lane: context.metrics.add("rest_refusals", 1, lane)  # noqa: E731 - the reference has no daemon
    who, busy = partial(known_caller, context), partial(_in_cycle, context)
    app.add_middleware(Lanes, refused=refused, who=who, busy=busy)
    app.add_middleware(BoundedBody, largest=LARGEST_BODY)  # a body is read before a lane is entered
    app.add_middleware(KnownHosts, names=hosts)
    app.add_middleware(BoundedHead)
    app.add_exception_handler(RequestValidationError, _malformed)
    for kind in (StarletteHTTPException, UnknownEvictionError, TooManyRequestsError, StoreError, Exception):
        app.add_exception_handler(kind, _failed)
    return app


def _in_cycle(context: Context) -> bool:
    return context.in_cycle()


@asynccontextmanager
async def _lifespan(_: FastAPI) -> AsyncIterator[None]:
    anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
    yield


_JSON = "application/json"
_UNCHANGED = {"description": "not changed since the answer whose ETag was given in If-None-Match"}
_TAG = {"ETag": {"description": "tag of this content, for If-None-Match", "schema": {"type": "string"}}}


def _documented(app: FastAPI, made: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The OpenAPI document, with the media type of errors, and what middleware answers to GET."""
    if app.openapi_schema is not None:
        return app.openapi_schema
    document = made()
    for path in document["paths"].values():
        for method, operation in path.items():
            answers = operation["responses"]
            for status, answer in answers.items():
                if status >= "400" and _JSON in answer.get("content", {}):
                    answer["content"] = {MEDIA_TYPE: answer["content"][_JSON]}
            good = answers.get("200", {})
            if method == "get" and _JSON in good.get("content", {}):
                good["headers"] = good.get("headers", {}) | _TAG
                answers["304"] = _UNCHANGED
    return document


async def _document(request: Request) -> Response:
    app = request.app
    if not hasattr(app.state, "document"):
        app.state.document = json.dumps(app.openapi(), separators=(",", ":")).encode()
    return Response(app.state.document, media_type=_JSON)


async def _malformed(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this type
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part not in ("body", "path", "query"))
    what = "unknown key" if first["type"] == "extra_forbidden" else first["msg"].removeprefix("Value error, ")
    if first["type"] == "json_invalid":
        place, what = "body", f"not valid JSON: {first['ctx']['error']}"
    return problem(422, f"{place or 'body'}: {what}")


async def _no_other_query(request: Request) -> None:
    """A mistyped parameter is refused, as a mistyped key of a body is: to pass over it would answer something else."""
    known = set(_query_names(request.scope["route"].dependant))
    for name in request.query_params:
        if name not in known:
            raise HTTPException(422, f"{name[:80]!r}: unknown parameter")


def _query_names(dependant: Dependant) -> Iterator[str]:
    yield from (each.alias for each in dependant.query_params)
    for each in dependant.dependencies:
        yield from _query_names(each)


def _allowed(request: Request) -> str:
    """The methods of this path, as documented: Starlette names those of the first route that has it alone."""
    paths, asked = request.app.openapi()["paths"], request.url.path
    templates = [path for path in paths if re.fullmatch(re.sub("{[^}]*}", "[^/]+", path), asked)]
    found = [asked] if asked in paths else templates
    methods = {method.upper() for path in found for method in paths[path]}
    return ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))


async def _failed(request: Request, error: Exception) -> JSONResponse:
    match error:
        case StarletteHTTPException(status_code=400):  # FastAPI's for a body that is no text
            return problem(422, f"body: {error.detail}")
        case StarletteHTTPException(status_code=405):
            return problem(405, str(error.detail), {"Allow": _allowed(request)})
        case StarletteHTTPException():
            return problem(error.status_code, str(error.detail), dict(error.headers or {}))
        case UnknownEvictionError():
            return problem(404, str(error))
        case TooManyRequestsError():
            return problem(429, str(error), {"Retry-After": str(_ASK_AGAIN_S)})
        case StoreError():
            get_logger().error("request failed", error=str(error))
            return problem(503, "the database does not answer; the daemon's log says why")
    get_logger().error("request failed", path=request.url.path, error=str(error), exc_info=error)
    return problem(500, "internal error; the daemon's log says more")
