"""Read: the cluster, the preemptors that wait, what has been learned, the report on urgent jobs, the audit trail."""

from typing import Annotated

from fastapi import APIRouter, HTTPException, Query

from clearway.api import schemas, views
from clearway.api.authorization import needs
from clearway.api.context import Daemon, Report
from clearway.api.forms import JobFilter, UserFilter
from clearway.api.report_schemas import AuditCheckView, AuditList, ReportView, audit_view
from clearway.api.sight import Seen
from clearway.api.status_schemas import StatusView
from clearway.api.views import read_status
from clearway.estimates.run_times import RunKey
from clearway.model.durations import parse_duration_s
from clearway.model.records import LARGEST_ID
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
    items = tuple(own.redacted(each, "why") for each in found)
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
    return views.leader_list(daemon.store, limit, offset)


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
    found = views.advice(user, name, daemon.runs(RunKey(user, name)))
    if found is None:
        raise HTTPException(404, f"no job {name!r} of user {user!r} has been seen to end")
    return found


urgent = APIRouter(tags=["evictions"], dependencies=[needs(Role.USER)])


@urgent.get("/report")
def urgent_report(
    daemon: Daemon,
    seen: Seen,
    since: Annotated[str, Query(max_length=40, description="how far to look back, such as 7d or 12h")] = "7d",
) -> ReportView:
    """What Clearway did or would have done for urgent jobs, what happened, and what Slurm's own rule would lose."""
    try:
        since_s = parse_duration_s(since)
    except ValueError as error:
        raise HTTPException(422, f"since: {error}") from None
    return views.urgent_report(daemon.store, since_s, daemon.clock.now(), seen.own_alone)


trail = APIRouter(prefix="/audit", tags=["audit"], dependencies=[needs(Role.ADMIN)])


@trail.get("")
def audit(
    daemon: Daemon,
    limit: Annotated[int, Query(ge=1, le=100, description="maximum number of entries")] = 50,
    before: Annotated[int | None, Query(ge=1, le=LARGEST_ID, description="entries of lower numbers alone")] = None,
) -> AuditList:
    """Who asked for what, what came of it, changes of the configuration, and refusals; newest first."""
    found = daemon.store.audit_trail(limit=limit + 1, before=before)
    items = tuple(audit_view(row) for row in found[:limit])
    return AuditList(items=items, next_before=items[-1].sequence if len(found) > limit else None)


@trail.get("/check")
def check(daemon: Daemon) -> AuditCheckView:
    """Follow the chain of hashes from the first entry to the last; it takes a second for 100,000 entries."""
    return AuditCheckView.model_validate(daemon.store.check_audit())
