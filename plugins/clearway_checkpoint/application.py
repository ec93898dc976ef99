"""Checkpointer "application": the program saves itself, on a signal or by a command of its own.

Model: the CoSim paper, section III-B. An application writes a share of its memory (``app_memory_fraction``), in the
time of equation (1). To restart is to start: the program reads its own file, in the same time at best.
"""

from clearway.config.configuration import CostsConfig
from clearway.estimates.checkpointers import Estimate, Footprint
from clearway.estimates.costs import checkpoint_time_s
from clearway.model.problem import Action
from clearway_checkpoint.driver import Driver


class Application(Driver):
    """Settings: CLEARWAY_APPLICATION_FILE, CLEARWAY_APPLICATION_COMMAND, CLEARWAY_APPLICATION_SIGNAL."""

    name = "application"
    action = Action.APP_CHECKPOINT
    limits = (
        "The program must save itself when it is asked to, and go on from there when it is started again.",
        "Only that the file is new and complete is checked, not that its contents are right.",
        "Tasks that srun has started are not held: what they compute between checkpoint and requeue is repeated.",
    )

    def estimate(self, footprint: Footprint, costs: CostsConfig) -> Estimate:
        per_node_mib = max(1.0, footprint.memory_mib * costs.app_memory_fraction)
        write_s = checkpoint_time_s(footprint.nodes, per_node_mib, costs)
        return Estimate(
            size_mib=footprint.nodes * per_node_mib, checkpoint_s=write_s + costs.checkpoint_overhead, restart_s=write_s
        )
