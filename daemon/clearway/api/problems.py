"""The one form of every error, and those that several routes document."""

from typing import Any

from fastapi.responses import JSONResponse

from clearway.api import schemas

Documented = dict[int | str, dict[str, Any]]

NOT_FOUND: Documented = {404: {"model": schemas.Problem, "description": "there is none of this number"}}


def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """One line of text, whatever the detail holds."""
    return JSONResponse({"detail": " ".join(detail.split())}, status, headers)
