"""The forms that routes share: errors, filters, and what FastAPI does not know of the OpenAPI document."""

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi.responses import JSONResponse

from clearway.api import schemas

Documented = dict[int | str, dict[str, Any]]

MEDIA_TYPE = "application/problem+json"  # RFC 9457

NOT_FOUND: Documented = {404: {"model": schemas.Problem, "description": "there is none of this number"}}


def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """One line of text, whatever the detail holds."""
    title = HTTPStatus(status).phrase if status in set(HTTPStatus) else "error"
    document = {"title": title, "status": status, "detail": " ".join(detail.split())}
    return JSONResponse(document, status, headers, MEDIA_TYPE)


_JSON = "application/json"
_UNCHANGED = {"description": "not changed since the answer whose ETag was given in If-None-Match"}
_TAG = {"ETag": {"description": "tag of this content, for If-None-Match", "schema": {"type": "string"}}}


def complete(app: FastAPI) -> None:
    """Have ``app.openapi()`` name the media type of errors, and what its middleware answers to GET."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            _complete(made())
        return made()

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way to extend the document


def _complete(document: dict[str, Any]) -> None:
    for operations in document["paths"].values():
        for method, operation in operations.items():
            answers = operation["responses"]
            for status, answer in answers.items():
                if status >= "400" and _JSON in answer.get("content", {}):
                    answer["content"] = {MEDIA_TYPE: answer["content"][_JSON]}
            good = answers.get("200", {})
            if method == "get" and _JSON in good.get("content", {}):
                good["headers"] = good.get("headers", {}) | _TAG
                answers["304"] = _UNCHANGED


JOB_ID = r"^[0-9]{1,10}([_+][0-9]{1,10})?$"
LONGEST_NAME = 255  # characters of a user or a node

UserFilter = Annotated[
    str | None, Query(max_length=LONGEST_NAME, description="only what concerns jobs of this user; null: all")
]
JobFilter = Annotated[
    str | None, Query(pattern=JOB_ID, description="only what concerns this job, by either form of its id; null: all")
]
