"""Jobs of a federation: their ids hold the cluster in the upper bits, and a sibling may start elsewhere."""

from __future__ import annotations

from clearway.model.cluster import JobState
from clearway.slurm.cli import CliBackend
from tests.unit.slurm.fake_slurm import FakeSlurm, becomes
from tests.unit.slurm.test_hostile import GOOD

OURS, SIBLING = "67108865", "134217729"  # job 1 of the first cluster, and of the second


def test_ids_above_two_to_the_26th_are_kept_apart(backend: CliBackend, slurm: FakeSlurm) -> None:
    becomes(slurm, JobID=OURS)
    slurm.rows.append(GOOD | {"JobID": SIBLING})
    slurm.rows.append(GOOD | {"JobID": "1"})
    seen = backend.snapshot()
    assert [job.job_id for job in seen.jobs] == [OURS, SIBLING, "1"]
    assert seen.skipped == ()
    assert all("--local" in argv for argv in slurm.reads if "--all" in argv)


def test_a_revoked_sibling_has_ended_here(backend: CliBackend, slurm: FakeSlurm) -> None:
    becomes(slurm, JobID=OURS, State="REVOKED", NodeList="")
    snapshot = backend.snapshot()
    assert (snapshot.jobs, snapshot.skipped) == ((), ())
    job = backend.job(OURS)
    assert job is not None
    assert job.state is JobState.ENDED
