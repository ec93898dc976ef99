"""The one form of every error, and those that several routes document."""

from http import HTTPStatus
from typing import Any

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
