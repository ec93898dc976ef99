"""Read: time limits and run times of jobs."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query

from clearway.api import schemas
from clearway.api.context import Daemon
from clearway.estimates.run_times import RunKey, advice_on, sentence

router = APIRouter(tags=["walltime"])


@router.get("/walltime/advice", responses={404: {"model": schemas.Problem, "description": "no such job has ended yet"}})
def walltime_advice(
    daemon: Daemon,
    user: Annotated[str, Query(max_length=255, description="user of the jobs")],
    name: Annotated[str, Query(max_length=255, description="the application as the job calls it, else its name")],
) -> schemas.WalltimeAdviceView:
    """Time limits and run times of the jobs of this user and name that the daemon has seen end."""
    found = advice_on(daemon.runs(RunKey(user, name)))
    if found is None:
        raise HTTPException(404, f"no job {name!r} of user {user!r} has been seen to end")
    return schemas.WalltimeAdviceView(user=user, app=name, advice=sentence(found), **asdict(found))
