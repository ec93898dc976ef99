"""Logging: one line for each thing that happened, as text or as JSON, to standard error.

Keys are fixed words of this project; values come from users (job names, Comments, Slurm's answers) and are escaped,
so that no job can forge a line. Anything outside printable ASCII is shown as an escape.
"""

import json
import logging
import re
import sys
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

_NAME = "clearway"
_PLAIN = re.compile(r"[A-Za-z0-9_.,:;/+@%*()\[\]{}<>|~^-]+")  # needs no quotes in a key=value line
_LONGEST = 2_000  # characters of one value: a Comment or an error may be of any length


def configure_logging(
    log_format: Literal["json", "text"], stream: TextIO | None = None, *, quiet: bool = False
) -> None:
    """Send what the daemon and its libraries log to ``stream``, one line each; ``quiet``: no mere information."""
    renderer: Processor = _as_json if log_format == "json" else _as_text
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
    ]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer]
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)  # libraries speak up only when something is wrong
    logging.getLogger(_NAME).setLevel(logging.WARNING if quiet else logging.INFO)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def get_logger() -> structlog.typing.FilteringBoundLogger:
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(_NAME)
    return logger


def _as_text(_: WrappedLogger, __: str, event: EventDict) -> str:
    """``time level event key=value ...`` on one line."""
    head = [str(event.pop("time", "")), str(event.pop("level", "info")), _escaped(_cut(str(event.pop("event", ""))))]
    return " ".join([*head, *(f"{key}={_value(value)}" for key, value in event.items() if value is not None)])


def _as_json(_: WrappedLogger, __: str, event: EventDict) -> str:
    first = ("time", "level", "event")
    ordered = {key: event[key] for key in first if key in event}
    ordered |= {key: value for key, value in event.items() if key not in first and value is not None}
    return json.dumps({key: _cut(value) for key, value in ordered.items()}, default=str, ensure_ascii=True)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    text = str(_cut(str(value)))
    return text if _PLAIN.fullmatch(text) else f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=True)[1:-1]


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _LONGEST:
        return f"{value[:_LONGEST]}... ({len(value)} characters)"
    return value
