"""Read: the cluster as the newest snapshot shows it, the preemptors that wait, and what has been learned of jobs."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query

from clearway.api import schemas, views
from clearway.api.authorization import needs
from clearway.api.context import Daemon, Report
from clearway.api.filters import JobFilter, UserFilter
from clearway.api.sight import Seen
from clearway.api.status import read_status
from clearway.api.status_schemas import StatusView
from clearway.estimates.run_times import RunKey, advice_on, sentence
from clearway.model.requests import Role

_USER = [needs(Role.USER)]
snapshot = APIRouter(tags=["cluster"], dependencies=_USER)
learned = APIRouter(dependencies=_USER)


@snapshot.get("/cluster")
def cluster(daemon: Daemon, seen: Seen, report: Report) -> schemas.ClusterView:
    """Nodes, jobs and evictions in numbers, the budget, and what could not be read."""
    view = views.cluster_view(report, daemon.config(), daemon.backend)
    return view if seen.all("jobs") else view.model_copy(update={"skipped": ()})


@snapshot.get("/preemptors")
def preemptors(seen: Seen, report: Report, job_id: JobFilter = None, user: UserFilter = None) -> schemas.PreemptorList:
    """The urgent jobs that wait, with their deadlines and what is done for them.

    Ordinary jobs for which eternal jobs make room are among them.
    """
    own = seen.of_snapshot(report.snapshot)
    waiting = (
        each
        for each in seen.waiting(report)
        if user in (None, each.preemptor.job.user)
        and job_id in (None, each.preemptor.job.job_id, each.preemptor.job.display_id)
    )
    found = (views.preemptor_view(each, report) for each in waiting)
    items = tuple(each.model_copy(update={"why": own.told(each.why)}) for each in found)
    return schemas.PreemptorList(taken_at=report.snapshot.taken_at, items=items)


@snapshot.get("/status")
def status(daemon: Daemon, seen: Seen) -> StatusView:
    """Whether a daemon leads, in which mode, the urgent jobs that wait, and what is planned or under way.

    Any daemon of the database answers, also one that stands by.
    """
    report, leads = daemon.report(), daemon.leads()
    operations = report.open_evictions if report is not None and leads else daemon.store.open_evictions()
    halted = report.halted if report is not None and leads else ""
    found = read_status(daemon.store, daemon.clock.now(), daemon.config().daemon, operations)
    return seen.status(found.model_copy(update={"halted": halted or found.halted}), operations)


@snapshot.get("/leaders")
def leaders(
    daemon: Daemon,
    limit: Annotated[int, Query(ge=1, le=1_000, description="maximum number of leaders")] = 50,
    offset: Annotated[int, Query(ge=0, le=1_000_000, description="number of leaders to skip")] = 0,
) -> schemas.LeaderList:
    """The daemons that have acted on this database, newest first."""
    found = daemon.store.leaders(limit=limit + 1, offset=offset)
    items = tuple(schemas.LeaderView.model_validate(each) for each in found[:limit])
    return schemas.LeaderList(items=items, next_offset=offset + limit if len(found) > limit else None)


@learned.get("/calibration", tags=["calibration"])
def calibration(
    daemon: Daemon,
    seen: Seen,
    user: UserFilter = None,
    limit: Annotated[int, Query(ge=1, le=1_000, description="maximum number of applications")] = 100,
    offset: Annotated[int, Query(ge=0, le=1_000_000, description="number of applications to skip")] = 0,
) -> schemas.CalibrationView:
    """By checkpointer, and by user, application and checkpointer in their order, over the newest records of each."""
    history, everybody = daemon.history(), seen.all("jobs", "usage")
    keys = [key for key in history.keys if (everybody or key.user == seen.asker.name) and user in (None, key.user)]
    return views.calibration_view(history, keys, daemon.clock.now(), limit, offset)


@learned.get(
    "/walltime/advice",
    tags=["walltime"],
    responses={404: {"model": schemas.Problem, "description": "no such job has ended yet"}},
)
def walltime_advice(
    daemon: Daemon,
    seen: Seen,
    user: Annotated[str, Query(max_length=255, description="user of the jobs")],
    name: Annotated[str, Query(max_length=255, description="the application as the job calls it, else its name")],
) -> schemas.WalltimeAdviceView:
    """Time limits and run times of the jobs of this user and name that the daemon has seen end."""
    if user != seen.asker.name and not seen.all("jobs", "usage"):
        raise HTTPException(403, "Slurm's PrivateData shows each user the own jobs alone")
    found = advice_on(daemon.runs(RunKey(user, name)))
    if found is None:
        raise HTTPException(404, f"no job {name!r} of user {user!r} has been seen to end")
    return schemas.WalltimeAdviceView(user=user, app=name, advice=sentence(found), **asdict(found))
