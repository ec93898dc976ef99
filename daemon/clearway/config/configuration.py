"""The configuration file (TOML), checked. Raw dictionaries stop here; unknown keys are refused.

docs/reference/configuration.md is made from these classes.
"""

from __future__ import annotations

import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from clearway.model.durations import Duration
from clearway.model.errors import ConfigError


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Mode(StrEnum):
    OBSERVE = "observe"
    APPROVE = "approve"
    AUTOMATIC = "automatic"


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
PositiveDuration = Annotated[Duration, Field(gt=0)]


class DaemonConfig(_Section):
    mode: Mode = Field(
        Mode.OBSERVE,
        description="observe: plan and record only. approve: an operator confirms each eviction. automatic: act.",
    )
    poll_interval: PositiveDuration = Field(2.0, description="time between two cycles while no eviction is under way")
    active_interval: PositiveDuration = Field(0.5, description="time between two cycles while an eviction is under way")
    stale_after: PositiveDuration = Field(
        60.0, description="/liveness answers 503 when no cycle has succeeded for longer than this"
    )
    keep_history: Duration = Field(
        365 * 86_400.0, description="finished evictions older than this are deleted; 0: as soon as they are finished"
    )
    log_format: Literal["json", "text"] = Field("text", description="one line a cycle, as text or as JSON")


class SlurmConfig(_Section):
    backend: Literal["auto", "cli", "pyslurm"] = Field(
        "auto", description="auto: pyslurm when it can be loaded and answers, else the command line tools"
    )
    conf: Path | None = Field(None, description="path of slurm.conf; None: SLURM_CONF or Slurm's own default")
    timeout: PositiveDuration = Field(20.0, description="time limit of one call to Slurm")


class StoreConfig(_Section):
    url: str = Field(
        "sqlite:////var/lib/clearway/clearway.sqlite",
        description="SQLAlchemy URL: sqlite:///PATH, postgresql://..., mariadb://...",
    )


class ApiConfig(_Section):
    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8642, ge=0, le=65_535, description="port to listen on; 0: any free one")
    token_file: Path | None = Field(
        None,
        description="file with one 'name:token' a line; a request with such a token may change state. None: the REST "
        "API only reads",
    )


class PreemptorRule(_Section):
    """Which pending jobs are preemptors. All given conditions must hold; at least one must be given."""

    name: str = Field("", description="name of this rule in plans and logs")
    partition: tuple[str, ...] = Field((), description="partitions")
    qos: tuple[str, ...] = Field((), description="qualities of service")
    account: tuple[str, ...] = Field((), description="accounts")
    user: tuple[str, ...] = Field((), description="user names")
    job_name: tuple[str, ...] = Field((), description="job names; * and ? are wildcards")
    comment: bool = Field(default=False, description="the job's Comment must hold clearway:max_delay=...")
    max_delay: Duration = Field(
        600.0, description="how long such a job may wait; the job's own clearway:max_delay=... is preferred"
    )

    @model_validator(mode="after")
    def _has_a_condition(self) -> PreemptorRule:
        if not (self.partition or self.qos or self.account or self.user or self.job_name or self.comment):
            raise ValueError("a rule without any condition would make every pending job a preemptor")
        return self


class CandidatesConfig(_Section):
    """Which running jobs may be preempted, and how."""

    partitions: tuple[str, ...] = Field(
        (), description="only jobs in these partitions may be preempted; empty: jobs in any partition"
    )
    protected_partitions: tuple[str, ...] = Field((), description="jobs in these partitions are never preempted")
    protected_qos: tuple[str, ...] = Field((), description="jobs with these QoS are never preempted")
    protected_accounts: tuple[str, ...] = Field((), description="jobs of these accounts are never preempted")
    protected_users: tuple[str, ...] = Field((), description="jobs of these users are never preempted")
    min_runtime: Duration = Field(
        60.0,
        description="jobs that have run for less than this are never preempted; doubled by each preemption; 0: none",
    )
    spare_before_end: Duration = Field(
        0.0, description="jobs whose time limit ends within this are never preempted; 0: no such rule"
    )
    max_preemptions: int = Field(
        3, ge=0, description="maximum number of preemptions of one job; 0: no job is preempted"
    )
    allow_kill: bool = Field(
        default=True, description="whether jobs may be requeued without a checkpoint, which loses work"
    )
    allow_cancel: bool = Field(
        default=False, description="whether jobs that cannot be requeued may be cancelled for good"
    )
    allow_suspend: bool = Field(
        default=False,
        description="whether jobs may be suspended, on nodes with enough memory for the urgent job as well",
    )


class BudgetConfig(_Section):
    """What preemption may cost within any hour. An eviction that would exceed it waits for approval."""

    jobs_per_hour: int | None = Field(
        None, ge=0, description="maximum jobs preempted in an hour; 0: all evictions wait for approval; None: no limit"
    )
    lost_node_hours_per_hour: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="maximum node-hours lost in an hour; 0: no work may be lost; None: no limit",
    )


class CostsConfig(_Section):
    """The CoSim paper, equation (1): time to checkpoint = max(total size / Ba, largest node's size / Bc)."""

    file_system_mib_s: Positive = Field(10_000.0, description="Ba, aggregate write bandwidth of the file system, MiB/s")
    node_mib_s: Positive = Field(1_000.0, description="Bc, write bandwidth of one node, MiB/s")
    app_memory_fraction: float = Field(
        0.4,
        gt=0,
        le=1,
        description="share of a job's memory that an application checkpoint holds, where its size is not known",
    )
    checkpoint_overhead: Duration = Field(
        2.0, description="time added to each checkpoint for signal, flush and answer; 0: none"
    )
    restart_weight: float = Field(
        1.0,
        ge=0,
        le=1_000,
        description="weight of the restart time in the cost of a job's return, which is its nodes x (restart_weight x "
        "time to restart + queueing_weight x time in the queue). Of plans that lose the same work, the "
        "one with the lowest return cost is made. 0: not counted",
    )
    queueing_weight: float = Field(
        1.0, ge=0, le=1_000, description="weight of the time in the queue, see restart_weight; 0: not counted"
    )


class LearningConfig(_Section):
    """How the next checkpoint of an application is predicted from its earlier ones under the same checkpointer."""

    quantile: float = Field(
        0.9, gt=0, le=1, description="a checkpoint is expected to take this quantile of the earlier durations"
    )
    min_samples: int = Field(
        5,
        ge=1,
        description="with fewer checkpoints of an application, the longest of them is expected; with fewer "
        "checkpoints of a checkpointer, the model of [costs] counts for applications without any",
    )
    failures: int = Field(
        2, ge=1, description="failed or late checkpoints in a row after which an application is not asked any more"
    )
    forgive_after: Duration = Field(
        7 * 86_400.0, description="such an application is asked again when its last failure is this old; 0: at once"
    )


class PlanningConfig(_Section):
    planner: str = Field("eviction-dp", description="name of a registered planner")
    steps: int = Field(
        60, ge=1, le=3_600, description="points on the trade-off curve; durations are rounded up to whole steps"
    )
    end_confidence: float | None = Field(
        None,
        gt=0.5,
        lt=1,
        description="a running job is expected to end in time where earlier jobs of its user and name make that at "
        "least this likely; None: time limits alone count",
    )
    checkpoints: Literal["serial", "shared"] = Field(
        "serial",
        description="serial: checkpoints are written one after another, as in the CoSim paper. shared: all "
        "checkpoints of a plan are written at once, because small jobs do not fill the file system; each "
        "is in time however the bandwidth is shared, and execution.concurrent_checkpoints does not apply "
        "to them. Drains with a deadline share where they must. Several urgent jobs in one cycle, other "
        "drains and moves still write one after another",
    )
    explanation_time: Duration = Field(
        30.0,
        description="computing time for explaining a plan, in the pauses between cycles; what is not found in time "
        "stays unknown; 0: plans are not explained",
    )


class ExecutionConfig(_Section):
    kill_allowance: Duration = Field(
        10.0,
        description="time from requeue to empty nodes: Slurm's KillWait, epilog, and start of the preemptor; 0: none",
    )
    late_checkpoint: Literal["kill", "wait"] = Field(
        "wait",
        description="a checkpoint that would be late. kill: the job is requeued without it. wait: the eviction is "
        "planned anew without the job, or the urgent job waits",
    )
    concurrent_checkpoints: int = Field(
        1, ge=1, description="maximum checkpoints on the file system at a time, over all evictions under way"
    )
    checkpoint_bandwidth_mib_s: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="maximum bandwidth that all checkpoints together may use, MiB/s; None: costs.file_system_mib_s",
    )
    approval_time: Duration = Field(
        60.0, description="approve mode: part of the delay that is left for an operator to confirm a plan; 0: none"
    )
    placement_grace: Duration = Field(
        900.0, description="time from the deadline to the end of the placement (Slurm reservation) in any case; 0: none"
    )
    retry_after: Duration = Field(
        5.0, description="a command without visible effect is given again after this time; 0: in every cycle"
    )
    give_up_after: int = Field(
        5, ge=1, description="maximum attempts of a command; after the last one it counts as failed"
    )
    landing_patience: PositiveDuration = Field(
        150.0, description="a moved job that has not started on its new node within this time may start on any node"
    )
    watch_return: Duration = Field(
        86_400.0, description="how long the return of preempted jobs is watched; 0: not at all"
    )


class EternalConfig(_Section):
    """Jobs without a meaningful end. They run where nothing else does, and leave for every other job."""

    partitions: tuple[str, ...] = Field((), description="partitions of eternal jobs; empty: there are none")
    max_delay: PositiveDuration = Field(
        300.0, description="how long an ordinary job may wait while eternal jobs are saved"
    )
    patience: Duration = Field(
        15.0, description="how long an ordinary job waits for Slurm before eternal jobs make room; 0: not at all"
    )
    at_once: int = Field(4, ge=1, description="maximum ordinary jobs that room is made for at a time")
    min_runtime: Duration = Field(
        60.0,
        description="eternal jobs that have run for less than this are never preempted; 0: no minimum. "
        "candidates.min_runtime and candidates.max_preemptions do not apply to eternal jobs",
    )


class DrainConfig(_Section):
    """Emptying nodes on request (``clearway drain``): which users may ask, and how long a drain waits."""

    operators: tuple[str, ...] = Field(
        (),
        description="users and REST tokens that may drain nodes, besides root and Slurm's operators and administrators",
    )
    owners: bool = Field(default=False, description="whether users may drain nodes on which every job is their own")
    patience: PositiveDuration = Field(
        900.0, description="drains without a deadline: how much longer than expected checkpoints may take"
    )


class _MovesConfig(_Section):
    enabled: bool = Field(
        default=False, description="whether the daemon moves jobs without being asked, as far as daemon.mode allows"
    )
    period: PositiveDuration = Field(600.0, description="time between two searches for moves, when enabled")
    jobs_per_hour: int = Field(
        10, ge=0, description="maximum jobs moved for this in an hour, requested moves included; 0: none"
    )
    worth: float = Field(
        2.0, ge=1, allow_inf_nan=False, description="minimum ratio of a move's gain to its cost, both in node-seconds"
    )
    min_gain: float = Field(
        0.5, ge=0, allow_inf_nan=False, description="minimum gain of all moves together, node-hours; 0: no minimum"
    )


class CompactionConfig(_MovesConfig):
    """Moving jobs off the emptiest nodes, so that whole nodes become empty (the Slurm+DMTCP paper, Algorithm 1)."""

    partitions: tuple[str, ...] = Field((), description="only nodes of these partitions; empty: nodes of any partition")
    power_down: bool = Field(default=False, description="whether emptied nodes are powered down (Slurm's POWER_DOWN)")


class PromotionConfig(_MovesConfig):
    """Moving jobs onto better nodes, and off scarce ones that they do not need."""

    order: tuple[str, ...] = Field(
        (),
        description="feature=NAME or partition=NAME, best nodes first, unnamed nodes last; empty: by Slurm's node "
        "weight",
    )
    scarce: tuple[str, ...] = Field((), description="feature=NAME or partition=NAME of nodes that are scarce")

    @field_validator("order", "scarce")
    @classmethod
    def _are_selectors(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for each in given:
            kind, _, name = each.partition("=")
            if kind not in ("feature", "partition") or not name:
                raise ValueError(f"{each!r} is neither feature=NAME nor partition=NAME")
        return given


class Config(_Section):
    daemon: DaemonConfig = DaemonConfig()
    slurm: SlurmConfig = SlurmConfig()
    store: StoreConfig = StoreConfig()
    api: ApiConfig = ApiConfig()
    preemptors: tuple[PreemptorRule, ...] = ()
    candidates: CandidatesConfig = CandidatesConfig()
    budget: BudgetConfig = BudgetConfig()
    costs: CostsConfig = CostsConfig()
    learning: LearningConfig = LearningConfig()
    planning: PlanningConfig = PlanningConfig()
    execution: ExecutionConfig = ExecutionConfig()
    drain: DrainConfig = DrainConfig()
    eternal: EternalConfig = EternalConfig()
    compaction: CompactionConfig = CompactionConfig()
    promotion: PromotionConfig = PromotionConfig()


def parse_config(text: str, origin: str) -> Config:
    """A configuration from TOML text; ``origin`` names it in errors.

    Raises:
        ConfigError: one line with the offending key.
    """
    try:
        return Config.model_validate(tomllib.loads(text))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(_printable(str(part)) for part in first["loc"]) or "(top level)"
        what = "unknown key" if first["type"] == "extra_forbidden" else first["msg"].removeprefix("Value error, ")
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise ConfigError(f"{origin}: {key}: {_printable(what)}{more}") from None
    except RecursionError:
        raise ConfigError(f"{origin}: not valid TOML: nested too deeply") from None
    except ValueError as error:  # not TOML, or a number of more than 4,300 digits
        raise ConfigError(f"{origin}: not valid TOML: {_printable(str(error))}") from None


def _printable(text: str) -> str:
    """One line, whatever a file may hold."""
    return text if text.isprintable() else ascii(text)


def load_config(path: Path) -> Config:
    """Read and check a configuration file.

    Raises:
        ConfigError: when it cannot be read or used.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a null byte in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(f"{path}: cannot be read: {reason}") from None
    return parse_config(text, str(path))
