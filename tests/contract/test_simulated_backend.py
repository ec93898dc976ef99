"""The simulated backend keeps to the same contract as the real ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clearway.model.cluster import Node
from clearway.model.errors import SlurmRefusedError
from clearway.model.limits import Limits, Partition
from clearway.simulation.backend import SimulatedBackend
from clearway.simulation.cluster import SimulatedCluster
from clearway.simulation.jobs import Program
from clearway.simulation.scheduler import Rules
from clearway.simulation.updates import update_job, update_partition
from tests.builders import ManualClock
from tests.contract.backend_conformance import BackendConformance
from tests.contract.site import CPUS, NODES

START = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
LONG_S = 1e6


class SimulatedSite:
    user = "alice"
    most_queries = 2

    def __init__(self) -> None:
        self.clock = ManualClock(START)
        self.cluster = SimulatedCluster(now=START)
        self.cluster.add_nodes(
            Node(name=name, available=True, raw_state="IDLE", cpus=CPUS, memory_mib=4000, partitions=("batch",))
            for name in NODES
        )
        self.cluster.rules = Rules(strict=True)
        self.cluster.limits = Limits(partitions={"batch": Partition(name="batch")})
        self.backend = SimulatedBackend(self.cluster, self.clock)

    def now(self) -> datetime:
        return self.clock.now()

    def _submit(self, program: Program | None = None, **fields: Any) -> str:
        defaults = {"user": self.user, "time_limit_s": 3600, "memory_mib": 1000}
        return self.cluster.submit(program or Program(work_s=LONG_S, save_s=1.0), **(defaults | fields))

    def run_job(
        self,
        *nodes: str,
        cpus: int | None = None,
        name: str = "job",
        comment: str = "",
        deaf: bool = False,
        requeueable: bool = True,
    ) -> str:
        program = Program(work_s=LONG_S, save_s=1.0, exit_s=60.0 if deaf else 0.1)
        fields = {"name": name, "comment": comment, "requeueable": requeueable}
        return self._submit(program, num_nodes=len(nodes), cpus_per_node=cpus, on=nodes, **fields)

    def wait_job(self, num_nodes: int = 1, *, held: bool = False, switches: int = 0) -> str:
        return self._submit(num_nodes=num_nodes, priority=0 if held else 100, switches=switches)

    def array(self) -> str:
        array_id = str(self.cluster.next_id)
        self._submit(priority=0, cpus_per_node=1, array_job_id=array_id, pending_tasks=2)
        for task in (1, 2):
            self._submit(cpus_per_node=1, on=["node1"], array_job_id=array_id, array_task_id=task)
        return array_id

    def full_array(self) -> str:
        array_id = str(self.cluster.next_id)
        for task in (2, 1):
            self._submit(cpus_per_node=1, on=["node1"], array_job_id=array_id, array_task_id=task)
        return array_id

    def het(self) -> str:
        first = str(self.cluster.next_id)
        self._submit(num_nodes=1, on=["node1"], het_job_id=first, het_job_offset=0)
        self._submit(num_nodes=2, on=["node2", "node3"], het_job_id=first, het_job_offset=1)
        return first

    def configuring(self) -> str:
        return self._submit(Program(work_s=LONG_S, boot_s=5.0), on=["node1"])

    def configured(self, job_id: str) -> None:
        """As time goes on."""

    def let_go(self, job_id: str) -> None:
        """As time goes on."""

    def finish(self, job_id: str) -> None:
        entry = self.cluster.jobs[job_id]
        self.cluster._on_done(entry)

    def heard(self, job_id: str) -> bool:
        return self.cluster.jobs[job_id].asked_at is not None

    def drain_as_somebody_else(self, node: str, reason: str) -> None:
        found = self.cluster.nodes[node]
        self.cluster.nodes[node] = replace(found, available=False, raw_state="IDLE+DRAIN", reason=reason)

    def update_job(self, job_id: str, **asked: Any) -> None:
        names = {"dependency": "dependency", "nice": "nice", "priority": "priority", "limit_s": "time_limit_s"}
        found = {names[name]: value for name, value in asked.items() if name in names}
        for name, field in (("begin_s", "eligible_time"), ("deadline_s", "deadline")):
            if name in asked:
                found[field] = self.now() + timedelta(seconds=asked[name])
        if "nodes" in asked:
            found["num_nodes"] = asked["nodes"]
        update_job(self.cluster, job_id, **found)

    def refuses(self, job_id: str, *, nodes: int) -> bool:
        with pytest.raises(SlurmRefusedError):
            self.update_job(job_id, nodes=nodes)
        return True

    def hold(self, job_id: str) -> None:
        update_job(self.cluster, job_id, held="user")

    def release(self, job_id: str) -> None:
        update_job(self.cluster, job_id, held="")

    def nice(self, job_id: str) -> int:
        return self.cluster.jobs[job_id].job.nice

    def end(self, job_id: str) -> datetime:
        found = self.cluster.jobs[job_id].job.end_time
        assert found is not None
        return found

    def update_partition(self, name: str, state: str) -> None:
        update_partition(self.cluster, name, state=state)

    def wait(self, what: str, predicate: Callable[[], bool], timeout_s: float = 30) -> None:
        end = self.clock.now().timestamp() + timeout_s
        while not predicate():
            assert self.clock.now().timestamp() < end, f"not within {timeout_s:g} s: {what}"
            self.clock.advance(0.1)


@pytest.fixture
def site() -> SimulatedSite:
    return SimulatedSite()


class TestSimulatedBackend(BackendConformance):
    """Every check of the contract."""
