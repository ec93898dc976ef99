"""The OpenAPI document as FastAPI makes it, and what FastAPI does not know of it."""

from typing import Any

from fastapi import FastAPI

from clearway.api.problems import MEDIA_TYPE

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
