"""A slurmrestd without Slurm: it keeps what it was asked, and answers as it is told or as 26.05 does."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx

from clearway.slurm.rest import RestBackend
from clearway.slurm.rest_client import Document
from tests.one_job import OneJob

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
Answer = httpx.Response | Callable[[], httpx.Response]


def number(value: int | None) -> Document:
    return {"set": value is not None, "infinite": False, "number": value or 0}


def job(job_id: int = 5, *states: str, **changes: Any) -> dict[str, Any]:
    """A record of v0.0.44, with the keys that are read."""
    running = not states or states[0] == "RUNNING"
    return {
        "job_id": job_id,
        "job_state": list(states) or ["RUNNING"],
        "user_name": "ann",
        "account": "",
        "partition": "batch",
        "qos": "",
        "state_reason": "None",
        "nodes": "node1" if running else "",
        "name": "job",
        "comment": "",
        "resv_name": "",
        "dependency": "",
        "features": "",
        "licenses": "",
        "tres_per_node": "",
        "tres_per_job": "",
        "tres_per_socket": "",
        "tres_per_task": "",
        "cpus_per_tres": "",
        "memory_per_tres": "",
        "required_nodes": "",
        "excluded_nodes": "",
        "tres_alloc_str": "cpu=2,mem=2000M,node=1,billing=2" if running else "",
        "tres_req_str": "cpu=2,mem=2000M,node=1,billing=2",
        "array_job_id": number(0),
        "array_task_id": number(None),
        "array_task_string": "",
        "array_max_tasks": number(0),
        "shared": [],
        "node_count": number(1),
        "cpus": number(2),
        "minimum_cpus_per_node": number(1),
        "tasks": number(2),
        "cpus_per_task": number(1),
        "required_switches": 0,
        "priority": number(1),
        "restart_cnt": 0,
        "het_job_id": number(0),
        "het_job_offset": number(0),
        "time_limit": number(60),
        "start_time": number(int(NOW.timestamp()) - 60),
        "end_time": number(int(NOW.timestamp()) + 3540),
        "deadline": number(0),
        "submit_time": number(int(NOW.timestamp()) - 90),
        "eligible_time": number(int(NOW.timestamp()) - 90),
        "contiguous": False,
        "requeue": True,
        "batch_flag": True,
    } | changes


def node(name: str = "node1", **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "state": ["MIXED"],
        "cpus": 4,
        "effective_cpus": 4,
        "alloc_cpus": 2,
        "real_memory": 4000,
        "specialized_memory": 0,
        "alloc_memory": 2000,
        "threads": 1,
        "partitions": ["batch"],
        "active_features": [],
        "gres": "",
        "gres_used": "",
        "reason": "",
        "reservation": "",
        "weight": 1,
    } | changes


def offering(
    *versions: str, requeue: str = "", reservations: str = "", flags: tuple[str, ...] = ("Incomplete",)
) -> Any:
    """What slurmrestd says that it offers."""
    paths: dict[str, Any] = {f"/slurm/{version}/jobs/": {"get": {}} for version in versions}
    schemas: dict[str, Any] = {}
    if requeue:
        paths[f"/slurm/{requeue}/jobs/requeue"] = {"post": {}}
        query = {"properties": {"flags": {"items": {"enum": list(flags)}}}}
        schemas[f"{requeue}_openapi_jobs_requeue_query"] = query
    if reservations:
        paths[f"/slurm/{reservations}/reservation"] = {"post": {}}
    return {"paths": paths, "components": {"schemas": schemas}}


ALL_26_05 = offering("v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45", requeue="v0.0.45", reservations="v0.0.45")
ALL_24_11 = offering("v0.0.40", "v0.0.41", "v0.0.42")


def refusal(code: int, text: str, status: int = 500) -> httpx.Response:
    return httpx.Response(status, json={"errors": [{"error_number": code, "error": text, "description": "no"}]})


class FakeSlurmrestd:
    """``answers`` by method and path after the version, instead of what it would say."""

    def __init__(self, *jobs: dict[str, Any], offer: Any = ALL_26_05) -> None:
        self.jobs, self.nodes, self.reservations = list(jobs), [node()], list[dict[str, Any]]()
        self.offer = offer
        self.answers: dict[tuple[str, str], Answer] = {}
        self.updated = 1_000  # by its clock, the last change
        self.asked: list[tuple[str, str, Any]] = []
        self.headers: list[httpx.Headers] = []

    @property
    def changes(self) -> list[tuple[str, str, Any]]:
        return [each for each in self.asked if each[0] != "GET"]

    def reads(self, path: str) -> list[Any]:
        return [query for method, asked, query in self.asked if (method, asked) == ("GET", path)]

    def backend(self, **settings: Any) -> RestBackend:
        settings = {"url": "unix:/nowhere", "auth": "local", "bin_dir": "/nowhere", "now": lambda: NOW} | settings
        return OneJob(RestBackend(transport=lambda: httpx.MockTransport(self._answer), **settings))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.headers.append(request.headers)
        path = request.url.path
        if path == "/openapi/v3":
            return httpx.Response(200, json=self.offer)
        _, _, version, *rest = path.split("/")
        path = "/" + "/".join(rest)
        told = json.loads(request.content) if request.content else dict(request.url.params)
        self.asked.append((request.method, path, told))
        self.version = version
        answer = self.answers.get((request.method, path))
        if answer is not None:
            return answer() if callable(answer) else answer
        return httpx.Response(200, json=self._document(request, path))

    def _document(self, request: httpx.Request, path: str) -> dict[str, Any]:
        if request.method != "GET":
            return {"status": [], "errors": [], "warnings": []}
        since = int(request.url.params.get("update_time", 0))
        if since > self.updated:
            return {"jobs": [], "nodes": [], "last_update": number(0)}
        if path == "/jobs/state/":
            whole = (each for each in self.jobs if isinstance(each, dict))
            return {"jobs": [{"job_id": str(each.get("job_id")), "state": each.get("job_state")} for each in whole]}
        last = {"last_update": number(self.updated + 10)}
        if path == "/jobs/" or path.startswith("/job/"):
            return {"jobs": self.jobs} | last
        if path == "/reservations/":
            return {"reservations": self.reservations} | last
        return {"nodes": self.nodes} | last
