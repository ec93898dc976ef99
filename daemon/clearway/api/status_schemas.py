"""What is answered about the daemon as its database knows it."""

from datetime import datetime

from pydantic import Field

from clearway.api.plan_schemas import Answer
from clearway.api.schemas import EvictionSummary, PreemptorView, RollingView
from clearway.config.configuration import Mode
from clearway.model.plan import ObstacleCode


class StatusView(Answer):
    running: bool = Field(description="whether a daemon leads, and has shown itself within daemon.lease")
    not_running_since: datetime | None = Field(
        description="when a daemon that led has last shown itself; null: one leads, or none ever has"
    )
    mode: Mode | None = Field(description="what the daemon that led last may do; null: none has led yet")
    leader: str | None = Field(description="host and process of the daemon that leads; null: none does")
    last_heartbeat: datetime | None = Field(description="when a daemon has last renewed its lease; null: none has yet")
    heartbeat_age_s: float | None = Field(description="time since then, seconds")
    backend: str | None = Field(description="how it talks to Slurm: cli, pyslurm or simulated; null: none has led yet")
    backend_why: str = Field(description="why it talks to Slurm in this way, and why in no other one that it tried")
    slurm_version: str = Field(description="version of slurmctld; empty: not known")
    only_observes: str = Field(
        description="why it begins nothing with this release of Slurm; empty: what its mode says is done"
    )
    paused: bool = Field(description="whether an operator has paused the daemon")
    halted: str = Field(description="why no command is given to Slurm; empty: commands are given")
    stopped: str = Field(description="why no job is made to leave until an operator resumes; empty: jobs may be")
    waiting_preemptors: int = Field(description="urgent jobs that waited in its last cycle")
    waiting: tuple[PreemptorView, ...] = Field(description="the first 100 of them, most pressing first")
    left_to_slurm: dict[ObstacleCode, int] = Field(
        description="how many of all that waited no plan is made for, by reason; empty: none"
    )
    open_evictions: tuple[EvictionSummary, ...] = Field(description="what is planned or under way, by number")
    rolling_drains: tuple[RollingView, ...] = Field(description="rolling drains that have not ended, by number")
