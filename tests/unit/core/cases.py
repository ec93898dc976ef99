"""Cases of urgent jobs with the fields that a test does not care about."""

from __future__ import annotations

from typing import Any

from clearway.model.problem import Action
from clearway.model.records import Case, CaseJob
from tests.builders import NOW, after


def case_job(job_id: str = "101", **fields: Any) -> CaseJob:
    """One that would lose an hour of two nodes."""
    defaults: dict[str, Any] = {
        "job_id": job_id,
        "display_id": job_id,
        "user": "ann",
        "num_nodes": 2,
        "nodes": ("n1", "n2"),
        "action": Action.KILL,
        "started_at": after(-3_600),
        "predicted_lost_node_s": 7_200.0,
        "predicted_checkpoint_s": 0.0,
    }
    return CaseJob(**(defaults | fields))


def case(job_id: str = "1", **fields: Any) -> Case:
    """Planned at ``NOW`` for a minute later; the deadline is five minutes later."""
    defaults: dict[str, Any] = {
        "job_id": job_id,
        "began_at": NOW,
        "display_id": job_id,
        "user": "ursula",
        "submitted_at": NOW,
        "num_nodes": 2,
        "eviction_id": 1,
        "mode": "observe",
        "planned_at": NOW,
        "deadline": after(300),
        "expected_start": after(60),
        "nodes": ("n1", "n2"),
        "jobs": (case_job(),),
    }
    return Case(**(defaults | fields))
