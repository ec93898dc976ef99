"""The page about the database, from its tables. ``generate.py`` writes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clearway.store.tables import METADATA

TABLES = {
    "evictions": "One row for each operation (eviction, drain or relocation): its state, and the sums of its "
    "preemptions.",
    "plans": "One row for each plan of an operation; a new plan is a new row. `document` is JSON: the plan with "
    "problem, curve, chosen point and jobs. `verdicts` is JSON: the reasons, and for each job the number of its "
    "reason. `candidates` and `nodes` name rows of `plan_parts`. What is null of these three is in `document`.",
    "plan_parts": "The candidates or the nodes of plans, once for all plans that have the same ones. `document` is "
    "JSON; `digest` is its SHA-256. A row is deleted with the last plan that names it.",
    "explanations": "The cost of every other decision, once a plan is explained. `document` is JSON; `complete` is "
    "false where there was not enough time for everything.",
    "preemptions": "One row for each preemptee of an operation. `job` is JSON: the job as it was when it was chosen.",
    "steps": "The journal: every act, its intended time, and its result. `finished_at` is null and `result` empty "
    "while the result is not known. `kind` is a command to Slurm, or `event`.",
    "requests": "Requests of operators over REST or the command line, and the daemon's answers.",
    "rolling_drains": "One row for each rolling drain; its drains are rows of `evictions`. `document` is JSON: "
    "the request, the turn of each node, and why nodes were skipped.",
    "cases": "Urgent jobs that were planned for, as the report needs them. `document` is JSON: the plan, and what "
    "happened; `closed_at` is null while the case is followed.",
    "save_tests": "Tests of whether a job saves itself (`clearway test-preemption`). `document` is JSON: the job, what "
    "was asked, and what came of it.",
    "checkpoint_history": "Predicted and actual time of each requested checkpoint, and its outcome.",
    "restart_history": "How each run began that continued from a checkpoint, as the job reports it.",
    "run_history": "Duration of each run that ended by itself under watch; the newest 200 of each user and name.",
    "notices": "The outbox: what owners and operators must be told. `document` is JSON: the facts.",
    "kept_values": "Small JSON values by name, such as whether the daemon is paused.",
    "audit": "The audit trail: who did what, each entry with the hash of the one before. Nothing is deleted from it.",
    "audit_head": "The number and hash of the last entry of the audit trail.",
    "leases": "The daemon that may act on this database, and the end of its right.",
    "leaders": "Which daemon acted when, and how its time ended. One row for each takeover; never deleted.",
}


ABOUT_DATABASE = """\
# Database

The database is SQLite (with a write-ahead log), PostgreSQL or MariaDB; `store.url` chooses it
([configuration](configuration.md#store)).
The daemon updates the schema when it starts. Other programs may read the tables; only Clearway may write them. Times
are UTC. Deleting an operation deletes all rows that refer to it. Finished operations are deleted after
`daemon.keep_history`.
"""


def database(table: Callable[..., str]) -> str:
    """The page; ``table`` is that of ``generate``."""
    parts = [ABOUT_DATABASE]
    for found in METADATA.sorted_tables:
        rows = []
        for column in found.columns:
            marks = ["key"] if column.primary_key else []
            marks += [f"refers to {item.target_fullname}" for item in column.foreign_keys]
            rows.append((f"`{column.name}`", words_of(column.type), "yes" if column.nullable else "", ", ".join(marks)))
        parts += [f"## {found.name}\n", TABLES[found.name] + "\n", table(("column", "type", "may be null", ""), rows)]
    return "\n".join(parts)


def words_of(column_type: Any) -> str:
    if enums := getattr(column_type, "enums", None):
        return ", ".join(f"`{word}`" for word in enums)
    names = {"UtcDateTime": "time", "Figure": "number", "LongText": "text", "Name": "text"}
    names |= {"Integer": "whole number", "Boolean": "true or false"}
    return names.get(type(column_type).__name__, type(column_type).__name__.lower())
