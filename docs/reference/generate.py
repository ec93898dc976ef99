#!/usr/bin/env python3
"""Makes the reference pages from the code: ``.venv/bin/python docs/reference/generate.py``.

tests/unit/docs fails while a page differs from what this makes.
"""

import runpy
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

import annotated_types
import typer.main
from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from clearway.api.app import create_app
from clearway.cli.app import app as command_line
from clearway.cli.app import below
from clearway.config.configuration import Config, PreemptorRule
from clearway.model.clock import SystemClock
from clearway.model.durations import parse_duration_s
from clearway.telemetry.metrics import Metrics

FOLDER = Path(__file__).parent
NOTE = "<!-- Made by docs/reference/generate.py; changes belong into the code. -->\n"
PRESETS = {int: "whole number", float: "number", str: "text", bool: "true or false", Path: "path"}


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"

    head = list(head)
    return "\n".join([line(head), "|" + "---|" * len(head), *(line(row) for row in rows)]) + "\n"


# -- configuration ---------------------------------------------------------------------------------------------

ABOUT_CONFIGURATION = """\
# Configuration

The configuration is one TOML file, `/etc/clearway/clearway.toml` unless `--config` or `CLEARWAY_CONFIG` says otherwise.
Unknown keys are refused. `clearway check-config FILE` names every error; `deploy/clearway.toml` is a commented
example. A *duration* is a number of seconds, or text such as `90s`, `10m`, `1h30m`, `2d`.

`systemctl reload clearway` (SIGHUP) reads the file and the tokens again. Changes of `slurm`, `store`, `api`,
`planning.planner` and `daemon.log_format` need a restart; the log says so. If the file cannot be used, the daemon
refuses it and keeps the old configuration.

## [[preemptors]]

These rules decide which waiting jobs are urgent. Each `[[preemptors]]` block is one rule. A rule must name at least one
condition, and all its conditions must hold (any of the names in a list). The first rule that fits counts. Without a
rule no job is urgent.
"""

SECTIONS = {
    "daemon": "What the daemon may do, and how often it runs a cycle.",
    "slurm": "How the daemon talks to Slurm.",
    "store": "Where the daemon keeps its records.",
    "api": "The REST API, including /metrics.",
    "client": "Where the command line finds the daemon, on machines that do not reach its database; see "
    "[operate](../howto/operate.md).",
    "access": "Which users may do what over REST, see [identity](../howto/identity.md).",
    "candidates": "Which running jobs may be preempted, and how.",
    "budget": "Limits on preemption within any hour. In automatic mode an eviction that would exceed a limit waits for "
    "an operator's approval.",
    "costs": "The cost of checkpoints: time = max(total size / file_system_mib_s, largest node's size / node_mib_s) + "
    "checkpoint_overhead.",
    "learning": "How earlier checkpoints predict the next ones; see [learning](../explanation/learning.md).",
    "planning": "How a plan is made.",
    "execution": "How a plan is carried out.",
    "drain": "Emptying nodes on request, see [draining](../howto/drain.md).",
    "promises": "Nodes that are promised for a time to come, see [promises](../howto/promises.md).",
    "eternal": "Jobs without a meaningful end, see [eternal jobs](../howto/eternal-jobs.md).",
    "compaction": "Moving jobs so that whole nodes become empty, see [gathering jobs](../howto/compact.md).",
    "notify": "Who is told of what, see [notifications](../howto/notifications.md). All of it is off by default.",
    "promotion": "Moving jobs to better nodes, see [gathering jobs](../howto/compact.md).",
}


def configuration() -> str:
    sections = {name: field for name, field in Config.model_fields.items() if name != "preemptors"}
    return "\n".join((ABOUT_CONFIGURATION, keys(PreemptorRule), *each_section("", sections)))


def each_section(above: str, fields: dict[str, FieldInfo]) -> Iterator[str]:
    for name, field in fields.items():
        if nested(field):
            section = cast("type[BaseModel]", field.annotation)
            yield f"## [{above}{name}]\n\n{section.__doc__ if above else SECTIONS[name]}\n\n{keys(section)}"
            yield from each_section(f"{name}.", section.model_fields)


def nested(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def keys(section: type[BaseModel]) -> str:
    found = {f"`{name}`": field for name, field in section.model_fields.items() if not nested(field)}
    rows = [(name, kind(field), default(field), field.description or "") for name, field in found.items()]
    return table(("key", "type", "default", "meaning"), rows)


def kind(field: FieldInfo) -> str:
    bounds = []
    for item in field.metadata:
        match item:
            case annotated_types.Gt(gt=low):
                bounds.append(f"more than {low}")
            case annotated_types.Ge(ge=low):
                bounds.append(f"at least {low}")
            case annotated_types.Le(le=high):
                bounds.append(f"at most {high}")
    return ", ".join(["duration" if is_duration(field) else type_name(field.annotation), *bounds])


def is_duration(field: FieldInfo) -> bool:
    return parses_durations(field.metadata)


def parses_durations(metadata: Iterable[Any]) -> bool:
    return any(isinstance(item, BeforeValidator) and item.func is parse_duration_s for item in metadata)


def type_name(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return type_name(next(part for part in arguments if part is not type(None)))
    if origin is Annotated and parses_durations(arguments[1:]):
        return "duration"
    if origin is Literal:
        return " or ".join(f"`{word}`" for word in arguments)
    if origin is tuple:
        return f"list of {type_name(arguments[0])}"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(f"`{word.value}`" for word in annotation)
    return PRESETS[annotation]


def default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "none"
    if is_duration(field):
        return f"`{duration(value)}`"
    if isinstance(value, tuple):
        return "`[]`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if value != "" else '`""`'


def duration(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g}{unit}"
    return f"{seconds:g}s" if seconds == int(seconds) else f"{seconds:g}"


ABOUT_REST = """\
`GET /api/v1/openapi.json` has the same as an OpenAPI document. The daemon listens on `api.host` and `api.port`
([configuration](configuration.md#api)), by default on 127.0.0.1:8642.

## Routes
"""


def rest() -> str:
    document = create_app(cast(Any, None)).openapi()  # the routes do not look at the daemon before a request
    parts = ["# REST\n", document["info"]["description"], ABOUT_REST]
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            parts.append(one_route(method.upper(), path, route))
    parts.append("## Answers\n")
    for name, schema in sorted(document["components"]["schemas"].items()):
        if "properties" not in schema:
            parts.append(f"### {name}\n\n{schema.get('description', '')}\n\n{shape(schema)}\n")
            continue
        rows = [(f"`{key}`", shape(item), item.get("description", "")) for key, item in schema["properties"].items()]
        about = schema.get("description", "")
        parts.append(f"### {name}\n\n{about + 2 * chr(10) if about else ''}{table(('field', 'type', 'meaning'), rows)}")
    return "\n".join(parts)


def one_route(method: str, path: str, route: Mapping[str, Any]) -> str:
    lines = [f"### {method} {path}\n", " ".join(route.get("description", "").split()) + "\n"]
    rows = [
        (f"`{item['name']}`", item["in"], shape(item["schema"]), item.get("description", ""))
        for item in route.get("parameters", [])
        if item["in"] in ("path", "query")
    ]
    if rows:
        lines.append(table(("parameter", "in", "type", "meaning"), rows))
    if "requestBody" in route:
        lines.append(f"Body: {shape(content(route['requestBody']))}\n")
    answers = [
        (code, shape(content(answer)), answer.get("description", "")) for code, answer in route["responses"].items()
    ]
    lines.append(table(("status", "answer", "when"), answers))
    return "\n".join(lines)


def content(holder: Mapping[str, Any]) -> Mapping[str, Any]:
    for media, item in holder.get("content", {}).items():
        schema: Mapping[str, Any] = item.get("schema") or {"type": media}
        return schema
    return {}


def shape(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(shape(part) for part in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {shape(schema['items'])}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"object of {shape(schema['additionalProperties'])}"
    bounds = [
        f"{word} {schema[key]:,.10g}"
        for key, word in (("minimum", "at least"), ("maximum", "at most"))
        if isinstance(schema.get(key), (int, float))
    ]
    words = {"string": "text", "integer": "whole number", "boolean": "true or false"}
    name = "time" if schema.get("format") == "date-time" else str(schema.get("type", ""))
    return ", ".join([words.get(name, name), *bounds])


ABOUT_METRICS = """\
# Metrics

`GET /metrics` answers in Prometheus' text format. Names end in their unit; work is in node-seconds (divide by 3600 for
node-hours). Labels have few values, never a job id or a user name. A histogram has `_bucket`, `_count` and `_sum`
series. In addition there are the usual `process_` metrics (memory, processor time, open files). Counters start at 0
when the daemon starts.
"""
MORE_ABOUT_METRICS = """\
*Lost* work is nodes x time since the job's last checkpoint, at its point of no return. *Saved* work is the loss of a
requeue without checkpoint at the moment when the job was asked to save itself, less the actual loss. It is 0 for jobs
that were requeued without being asked, and never negative.

The metrics `clearway_caused_...` and `clearway_suffered_...` count each job that had to leave: once for what it left
for, and once for itself. Accounts have their names where `access.account_metrics = true`, otherwise each is `other`.
The first 100 combinations of labels keep their account; later ones have the account `other`, and after 100 of these
every label is `other`. So has a value with more than 64 characters or with characters that cannot be printed; one
that Slurm does not name is `none`. These series begin with their first count.

Alert rules that use them are in `deploy/prometheus/clearway.rules.yml`, a dashboard in `deploy/grafana/clearway.json`.
"""


def metrics() -> str:
    found = Metrics(SystemClock())
    labels = {
        metric.name: getattr(collector, "_labelnames", ())
        for collector in found.registry._collector_to_names  # noqa: SLF001 - it has no other list of them
        if hasattr(collector, "describe")
        for metric in collector.describe()
    }
    rows = []
    for metric in found.registry.collect():
        if not metric.name.startswith("clearway_"):
            continue
        suffix = {"counter": "_total", "info": "_info"}.get(metric.type, "")
        values = [
            f"`{name}`: {seen}" if (seen := label_values(metric.samples, name)) else f"`{name}`"
            for name in (labels.get(metric.name) or info_labels(metric))
        ]
        rows.append((f"`{metric.name}{suffix}`", metric.type, "; ".join(values), metric.documentation))
    return "\n".join([ABOUT_METRICS, table(("metric", "type", "labels", "meaning"), sorted(rows)), MORE_ABOUT_METRICS])


def label_values(samples: Iterable[Any], name: str) -> str:
    seen = dict.fromkeys(sample.labels[name] for sample in samples if sample.labels.get(name))
    return ", ".join(seen) if len(seen) > 1 else ""


def info_labels(metric: Any) -> tuple[str, ...]:
    return tuple(metric.samples[0].labels) if metric.type == "info" else ()


ABOUT_CLI = """\
# Command line

Every command has `-h`. The commands read the database that the configuration names and write requests to it. None
of them changes anything in Slurm (`clearway plan --nodes` reads Slurm). So their user must be able to read the
configuration and the database (with SQLite also write it): usually `sudo -u clearway clearway ...`.

The exit status is 0 when the command is done, 1 when it is refused or the daemon does not answer within 15 s, and 2
when a file or an option cannot be used; one line on standard error then names the key. `clearway status` ends with 3
when no daemon leads. `-o json` prints the documents of the [REST API](rest.md). `clearway --install-completion` lets
the shell complete commands.
"""


def cli() -> str:
    parts = [ABOUT_CLI]
    parts += [one_command(words, command) for words, command in commands()]
    return "\n".join(parts)


def commands() -> Iterable[tuple[tuple[str, ...], Any]]:
    """Every command with the words that call it, groups left out."""

    def walk(words: tuple[str, ...], command: Any) -> Iterable[tuple[tuple[str, ...], Any]]:
        children = below(command)
        for name, child in children.items():
            yield from walk((*words, name), child)
        if not children:
            yield words, command

    return walk(("clearway",), typer.main.get_command(command_line))


def one_command(words: tuple[str, ...], command: Any) -> str:
    arguments = [item for item in command.params if item.param_type_name == "argument"]
    call = " ".join([*words, *(item.name.upper() for item in arguments)])
    rows = [(f"`{item.name.upper()}`", "", getattr(item, "help", None) or "") for item in arguments]
    rows += [
        (", ".join(f"`{name}`" for name in item.opts), cli_default(item.default), item.help or "")
        for item in command.params
        if item.param_type_name == "option"
    ]
    about = " ".join((command.help or "").split())
    return f"## {call}\n\n{about}\n" + ("\n" + table(("option", "default", "meaning"), rows) if rows else "")


def cli_default(value: Any) -> str:
    return "" if value is None or value is False else f"`{getattr(value, 'value', value)}`"


# --------------------------------------------------------------------------------------------------------------

PAGES: dict[str, Callable[[], str]] = {
    "configuration.md": configuration,
    "rest.md": rest,
    "metrics.md": metrics,
    "cli.md": cli,
    "database.md": lambda: str(runpy.run_path(str(FOLDER / "database_page.py"))["database"](table)),
}


TRACK_RECORD = "../explanation/track-record.md"
PAGES[TRACK_RECORD] = lambda: str(runpy.run_path(str(FOLDER / "track_record.py"))["track_record"](table))


def page(name: str) -> str:
    return NOTE + PAGES[name]().rstrip() + "\n"


def main() -> None:
    for name in PAGES:
        (FOLDER / name).write_text(page(name), encoding="utf-8")
        sys.stdout.write(f"{FOLDER / name}\n")
    schema = runpy.run_path(str(FOLDER / "problem_schema.py"))
    schema["FILE"].write_text(schema["problem_schema"](), encoding="utf-8")
    runpy.run_path(str(FOLDER / "diagrams.py"), run_name="__main__")


if __name__ == "__main__":
    main()
