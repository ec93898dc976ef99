"""What real Slurm releases printed (tests/slurm/record.py), as the readers read it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from clearway.model.cluster import Job, Node, Reservation
from clearway.slurm import parse

TOKEN = "recorded"
RELEASES = sorted(path for path in (Path(__file__).parent / "recorded").iterdir() if path.is_dir())
# Releases that differ where Clearway does not go by it, but looks.
# `squeue --helpFormat` tells the columns. Where squeue refuses it, those of the oldest release count.
TELL_COLUMNS = frozenset({"24.11", "26.05"})
# `scontrol -o show node` has ReservationName=. Without it the state says RESERVED, and no name is known.
NAME_RESERVATIONS = frozenset({"24.11", "26.05"})
CLEAR_REASONS = frozenset({"22.05", "26.05"})  # UNDRAIN does, without slurmdbd; with it, it always does
_KEY = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9_/:]*)=")


def read(folder: Path, name: str) -> str:
    return (folder / name).read_bytes().decode()


def columns(release: Path) -> tuple[str, ...]:
    return parse.job_columns(read(release, "columns.txt"))


def jobs(release: Path) -> dict[str, Job]:
    found, skipped = parse.read_jobs(read(release, "jobs.txt"), TOKEN, columns(release))
    assert skipped == []
    return {job.job_id: job for job in found}


def nodes(release: Path) -> dict[str, Node]:
    found, skipped = parse.read_nodes(read(release, "nodes.txt"))
    assert skipped == []
    return {node.name: node for node in found}


def reservations(release: Path) -> dict[str, Reservation]:
    found, skipped = parse.read_reservations(read(release, "reservations.txt"))
    assert skipped == []
    return {reservation.name: reservation for reservation in found}


def pyslurm_records(release: Path) -> dict[str, list[dict[str, Any]]]:
    """What pyslurm's worker hands over, by kind; nothing where pyslurm does not know the release."""
    found: dict[str, list[dict[str, Any]]] = {"jobs": [], "nodes": [], "reservations": []}
    file = release / "pyslurm.jsonl"
    for line in file.read_text().splitlines() if file.exists() else ():
        ((kind, record),) = json.loads(line).items()
        found[kind].append(record)
    return found


def keys(text: str) -> list[frozenset[str]]:
    """The keys of each line of ``Key=Value`` pairs; what a Reason says at the end of a line counts with them."""
    return [frozenset(_KEY.findall(line)) for line in text.splitlines() if "=" in line]
