"""What is free on nodes for jobs, or parts of them: processors as Slurm counts them, memory by what jobs hold. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from clearway.model.cluster import ClusterSnapshot


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

    def fits(self, node: str, cpus: int, memory_mib: int) -> bool:
        return self.cpus.get(node, 0) >= cpus and self.memory_mib.get(node, 0) >= memory_mib

    def take(self, node: str, cpus: int, memory_mib: int) -> bool:
        """Whether that fits beside what was counted before; then it is counted too."""
        if not self.fits(node, cpus, memory_mib):
            return False
        self.cpus[node] -= cpus
        self.memory_mib[node] -= memory_mib
        return True
