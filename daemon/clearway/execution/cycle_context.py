"""What one cycle goes by: read once, then passed down. Frozen."""

from dataclasses import dataclass
from datetime import datetime

from clearway.config.configuration import Config
from clearway.model.cluster import ClusterSnapshot


@dataclass(frozen=True, slots=True)
class CycleContext:
    """The cluster as it was seen, the configuration that holds, and whether an operator has paused the daemon."""

    snapshot: ClusterSnapshot
    config: Config
    now: datetime
    paused: bool = False
