"""What CRIU's model says of a checkpoint that nobody has taken yet."""

from clearway.config.configuration import CostsConfig
from clearway.estimates.checkpointers import Footprint
from clearway.model.problem import Action
from clearway_checkpoint.criu import Criu


def test_estimate_is_equation_1_over_all_resident_memory() -> None:
    costs = CostsConfig(file_system_mib_s=1_500, node_mib_s=1_000, checkpoint_overhead=2.0)
    one = Criu().estimate(Footprint(nodes=1, memory_mib=999), costs)
    assert (one.size_mib, one.checkpoint_s) == (1_000, 3.0)  # the node's own bandwidth
    two = Criu().estimate(Footprint(nodes=2, memory_mib=1_499), costs)
    assert (two.size_mib, two.checkpoint_s) == (3_000, 4.0)  # the file system's, which both share
    assert two.restart_s > 2.0
    assert Criu.action is Action.SYS_CHECKPOINT
