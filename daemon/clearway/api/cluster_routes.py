"""Read: the cluster as the newest snapshot shows it, and the preemptors that wait."""

from fastapi import APIRouter

from clearway.api import schemas, views
from clearway.api.context import Daemon, Report

router = APIRouter(tags=["cluster"])


@router.get("/cluster")
def cluster(daemon: Daemon, report: Report) -> schemas.ClusterView:
    """Nodes, jobs and evictions in numbers, the budget, and what could not be read."""
    return views.cluster_view(report, daemon.config(), daemon.backend)


@router.get("/preemptors")
def preemptors(report: Report) -> schemas.PreemptorList:
    """The urgent jobs that wait, with their deadlines and what is done for them.

    Ordinary jobs for which eternal jobs make room are among them.
    """
    return schemas.PreemptorList(
        taken_at=report.snapshot.taken_at,
        items=tuple(views.preemptor_view(waiting, report) for waiting in report.waiting),
    )
