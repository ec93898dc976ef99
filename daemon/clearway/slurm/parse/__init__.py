"""Slurm's text becomes types here, once. Pure functions; nothing in this package runs a command or reads a clock.

Text that users control (a job's name, its Comment) may hold anything: line breaks, "JobState=RUNNING", separators.
It must never change another field, and what cannot be read becomes a ``Skipped``, never an exception and never a
guess: a record that was misread could be acted upon.
"""

from clearway.slurm.parse.fields import FieldError, Reading, together
from clearway.slurm.parse.gres import Gpus, gpus, wants_whole, without_parts
from clearway.slurm.parse.hostlist import compress, expand
from clearway.slurm.parse.jobs import (
    JOB_COLUMNS,
    TARGET_COLUMNS,
    Row,
    cut_record,
    excluded_nodes_format,
    job_columns,
    job_format,
    job_from_row,
    job_state,
    job_target,
    read_excluded_nodes,
    read_jobs,
    read_record,
    record_separator,
    split_columns,
    split_rows,
    unread_job,
)
from clearway.slurm.parse.nodes import (
    NodeStatus,
    node_from_record,
    node_status,
    over,
    read_node,
    read_nodes,
    read_reservations,
    reservation_from_record,
    status_from_record,
)

__all__ = [
    "JOB_COLUMNS", "TARGET_COLUMNS", "FieldError", "Gpus", "NodeStatus", "Reading", "Row", "compress", "cut_record",
    "excluded_nodes_format", "expand", "gpus", "job_columns", "job_format", "job_from_row", "job_state",
    "job_target", "node_from_record", "node_status", "over", "read_excluded_nodes", "read_jobs", "read_node",
    "read_nodes", "read_record", "read_reservations", "record_separator", "reservation_from_record",
    "split_columns", "split_rows", "status_from_record", "together", "unread_job", "wants_whole", "without_parts",
]  # fmt: skip
