"""What slurmrestd of real releases answered (tests/slurm/record_rest.py) reads as what the commands printed then."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clearway.model.cluster import Job, JobState, Reservation
from clearway.slurm import parse
from clearway.slurm import rest_records as records
from clearway.slurm.rest_client import Offer, offer_of

TOKEN = "recorded"
RELEASES = sorted(path for path in (Path(__file__).parent / "recorded_rest").iterdir() if path.is_dir())


def answered(folder: Path, key: str) -> list[Any]:
    return [json.loads(line) for line in (folder / f"{key}.jsonl").read_bytes().splitlines()]


def text(folder: Path, name: str) -> str:
    return (folder / name).read_bytes().decode()


@pytest.fixture(scope="module", params=RELEASES, ids=lambda folder: str(folder.name))
def release(request: pytest.FixtureRequest) -> Path:
    folder = request.param
    assert isinstance(folder, Path)
    return folder


def test_both_releases_are_recorded() -> None:
    assert [folder.name for folder in RELEASES] == ["24.11", "26.05"]


def test_jobs(release: Path) -> None:
    found, skipped = records.read_jobs(answered(release, "jobs"))
    columns = parse.job_columns(text(release, "columns.txt"))
    printed, printed_skipped = parse.read_jobs(text(release, "jobs.txt"), TOKEN, columns)
    excluded, _ = parse.read_excluded_nodes(text(release, "excluded.txt"), TOKEN)
    assert skipped == printed_skipped == []
    theirs = {job.job_id: _alike(job, excluded) for job in printed}
    ours = {job.job_id: _alike(job, {}) for job in found}
    assert ours.keys() == theirs.keys()
    for job_id, job in ours.items():
        assert job == theirs[job_id]
    states = {job.state for job in found}
    assert states == set(JobState) - {JobState.UNKNOWN}


def _alike(job: Job, excluded: dict[str, tuple[str, ...]]) -> Job:
    """Without what differs from one moment to the next; squeue is asked for excluded nodes of waiting jobs alone."""
    nodes = excluded.get(job.job_id, job.excluded_nodes) if job.state is JobState.PENDING else ()
    # An array's limit is left out of the line of its last task.
    start_time = job.start_time if job.state in (JobState.RUNNING, JobState.SUSPENDED) else None  # else it moves
    return replace(job, excluded_nodes=nodes, array_limit=0, reason="", eligible_time=None, start_time=start_time)


def test_nodes_and_reservations(release: Path) -> None:
    for key, ours, theirs in (
        ("nodes", records.read_nodes, parse.read_nodes),
        ("reservations", records.read_reservations, parse.read_reservations),
    ):
        found, skipped = ours(answered(release, key))
        printed, printed_skipped = theirs(text(release, f"{key}.txt"))
        assert skipped == printed_skipped == []
        assert list(map(_spelled, found)) == list(map(_spelled, printed))


def _spelled(thing: Any) -> Any:
    """Flags come in another order, and scontrol's line ends where a Reason has a line break."""
    if isinstance(thing, Reservation):
        return replace(thing, flags=tuple(sorted(thing.flags)))
    state = "+".join(sorted(thing.raw_state.split("+")))
    return replace(thing, raw_state=state, reason=thing.reason.partition("\n")[0])


def test_what_is_offered() -> None:
    offers = {folder.name: offer_of(json.loads((folder / "openapi.json").read_bytes())) for folder in RELEASES}
    assert offers == {
        "24.11": Offer("v0.0.42", "v0.0.42", requeue=False, reservations=False, slurm_version="24.11.5"),
        "26.05": Offer("v0.0.44", "v0.0.45", requeue=True, reservations=True, slurm_version="26.05.5"),
    }
