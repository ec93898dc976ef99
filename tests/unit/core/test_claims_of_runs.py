"""A Comment outlives a requeue: in which of a job's runs its claims count."""

from __future__ import annotations

import pytest

from clearway.model.claims import Claims, may_be_signalled, of_another_run, read_claims, saves
from clearway.model.cluster import JobState
from tests.builders import NOW, after, job

START = int(after(-3600).timestamp())  # of the run that builders make
EARLIER, LATER = START - 500, START + 500
LAUNCHER = "checkpoint=signal,signal=USR1,to=batch,app=solver"


@pytest.mark.parametrize(
    ("claim", "run", "counts"),
    [
        pytest.param(f"run=0,{LAUNCHER}", 0, True, id="the launcher's, in its first run"),
        pytest.param(f"run=2,{LAUNCHER},state=saved,asked={LATER},last={LATER}", 2, True, id="in its third run"),
        pytest.param(f"run=0,{LAUNCHER}", 1, False, id="of the run before"),
        pytest.param(f"run=1,{LAUNCHER},last={LATER}", 2, False, id="whatever its times say"),
        pytest.param("run=0,checkpoint=none", 1, False, id="another node may have the checkpointer"),
        pytest.param("checkpoint=signal", 0, True, id="a user's, at submission"),
        pytest.param("checkpoint=signal", 3, True, id="a user's, in a later run"),
        pytest.param("checkpoint=signal,signal=USR2,to=steps,requeues=self", 3, True, id="submitit"),
        pytest.param("checkpoint=signal,to=steps,app=train,requeues=self", 3, True, id="submitit with a name"),
        pytest.param(LAUNCHER, 0, True, id="an old launcher's, in the first run"),
        pytest.param(LAUNCHER, 1, False, id="an old launcher's, in a later run"),
        pytest.param(f"{LAUNCHER},last={EARLIER}", 1, False, id="with a checkpoint of an earlier run"),
        pytest.param(f"{LAUNCHER},last={LATER}", 1, True, id="with a checkpoint of this run"),
        pytest.param(f"checkpoint=signal,state=saved,asked={EARLIER}", 0, False, id="asked before its run"),
        pytest.param("checkpoint=signal,state=failed", 1, False, id="a failure of some run"),
        pytest.param(f"checkpoint=interval,interval=1h,last={EARLIER}", 1, True, id="at its own pace: no signal"),
    ],
)
def test_which_run_a_claim_is_of(claim: str, run: int, counts: bool) -> None:
    seen = job(comment=f"mine clearway:max_delay=5m,{claim}", restart_count=run)
    claims, error = read_claims(seen)
    assert error == ""
    assert claims is not None
    assert of_another_run(seen) is not counts
    assert (claims.checkpoint is not None) is counts
    assert claims.max_delay_s == 300, "the user's word holds in every run"
    if not counts:
        kept = {key: getattr(claims, key) for key in ("max_delay_s", "app", "checkpointer", "requeues", "run")}
        assert claims == Claims(**kept), "nothing else lasts"
        assert saves(seen) is None


def test_what_was_said_is_read_for_the_run_that_was_decided_on() -> None:
    """A job that requeues itself is seen in its next run when its outcome is stored."""
    chosen = job(comment="clearway:checkpoint=signal")
    back = job(
        comment=f"clearway:run=0,{LAUNCHER},state=saved,asked={LATER},last={LATER}",
        state=JobState.PENDING,
        restart_count=1,
    )
    assert saves(back) is None
    claims, _ = read_claims(back, chosen)
    assert claims is not None
    assert claims.last is not None


def test_a_claim_that_is_older_than_its_run_waits_until_a_handler_may_be_there() -> None:
    for ran_s, claim, ready in ((5, "", False), (59, "", False), (60, "", True), (0, "run=0,", True)):
        seen = job(comment=f"clearway:{claim}checkpoint=signal", start_time=after(-ran_s))
        claims = saves(seen)
        assert claims is not None
        assert may_be_signalled(claims, seen, NOW) is ready
