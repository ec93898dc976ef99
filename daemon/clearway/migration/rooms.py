"""What is free on nodes for jobs of one node: processors as Slurm counts them, memory by what jobs hold. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from clearway.model import ClusterSnapshot, Job


@dataclass(frozen=True, slots=True)
class Rooms:
    """By node; ``take`` changes it, so that jobs that come together are counted together."""

    cpus: dict[str, int]
    memory_mib: dict[str, int]

    @classmethod
    def of(cls, snapshot: ClusterSnapshot) -> Rooms:
        held = {name: sum(job.memory_mib for job in jobs) for name, jobs in snapshot.jobs_on.items()}
        return cls(
            {node.name: node.cpus - node.alloc_cpus for node in snapshot.nodes},
            {node.name: node.memory_mib - held.get(node.name, 0) for node in snapshot.nodes},
        )

    def fits(self, node: str, job: Job) -> bool:
        return self.cpus.get(node, 0) >= job.cpus and self.memory_mib.get(node, 0) >= job.memory_mib

    def take(self, node: str, job: Job) -> bool:
        """Whether the job fits beside those that were counted before; then it is counted too."""
        if not self.fits(node, job):
            return False
        self.cpus[node] -= job.cpus
        self.memory_mib[node] -= job.memory_mib
        return True
