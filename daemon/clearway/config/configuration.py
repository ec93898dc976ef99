"""The configuration file (TOML), checked. Raw dictionaries stop here; unknown keys are refused.

docs/reference/configuration.md is made from these classes.
"""

import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Literal, Self

from pydantic import ValidationError, field_validator, model_validator

from clearway.config.access import AccessConfig, ApiConfig, BudgetConfig, ClientConfig, SlurmConfig
from clearway.config.fields import Count, Finite, Names, Period, Positive, Section, Weight, key, printable, told
from clearway.config.notify import NotifyConfig
from clearway.model.durations import Duration
from clearway.model.errors import ConfigError


class Mode(StrEnum):
    OBSERVE = "observe"
    APPROVE = "approve"
    AUTOMATIC = "automatic"


class DaemonConfig(Section):
    mode: Mode = key(
        Mode.OBSERVE, "observe: plan and record only. approve: an operator confirms each eviction. automatic: act."
    )
    poll_interval: Period = key(2.0, "time between two cycles while no eviction is under way")
    active_interval: Period = key(0.5, "time between two cycles while an eviction is under way")
    stale_after: Period = key(60.0, "/liveness answers 503 when no cycle has succeeded for longer than this")
    lease: Period = key(
        10.0,
        "how long the right to act lasts after its last renewal; then another daemon with the same database may take "
        "over. Half of it is the time limit of each command that changes Slurm. After a takeover from a daemon that "
        "did not stop in order, the new one only watches for the same half",
    )
    snapshot_limit: Period = key(
        30.0, "no command is given to Slurm in a cycle whose view of the cluster is older than this"
    )
    keep_history: Duration = key(
        365 * 86_400.0, "finished evictions older than this are deleted; 0: as soon as they are finished"
    )
    keep_superseded: Duration = key(
        600.0, "proposals that were put aside are deleted when this has passed; 0: as soon as they are put aside"
    )
    database_limit_mib: Count = key(
        10_000,
        "size that the database may grow to, MiB. Above it Clearway stores no proposals in observe mode and deletes "
        "those that were put aside at once; evictions that are carried out are stored all the same",
    )
    halt_file: Path | None = key(
        Path("/var/lib/clearway/halt"),
        "while this file exists, Clearway gives Slurm no command (as after clearway halt); None: no such file",
    )
    wake_file: Path | None = key(
        None,
        "a change of this file ends the pause between two cycles, so that an urgent job is seen at once; "
        "job_submit.lua writes to it; None: no such file",
    )
    log_format: Literal["json", "text"] = key("text", "one line a cycle, as text or as JSON")


class StoreConfig(Section):
    url: str = key(
        "sqlite:////var/lib/clearway/clearway.sqlite", "SQLAlchemy URL: sqlite:///PATH, postgresql://..., mariadb://..."
    )


class PreemptorRule(Section):
    """Which pending jobs are preemptors. All given conditions must hold; a rule needs one of the first four."""

    name: str = key("", "name of this rule in plans and logs")
    partition: Names = key((), "partitions")
    qos: Names = key((), "qualities of service")
    account: Names = key((), "accounts")
    user: Names = key((), "user names")
    job_name: Names = key((), "job names; * and ? are wildcards")
    comment: bool = key(False, "the job's Comment must hold clearway:max_delay=...")
    anybody: bool = key(
        False,
        "whether this rule also holds where Slurm does not check what it rests on, so that every user can make any job "
        "urgent by it; also where job_submit.lua checks it",
    )
    max_delay: Duration = key(600.0, "how long such a job may wait; the job's own clearway:max_delay=... is preferred")
    max_late: Duration = key(
        0.0,
        "where no plan is in time, nodes are freed at the soonest moment after the deadline, if that is at most this "
        "late; 0: such a job is left to Slurm",
    )
    max_kill_loss: Duration | None = key(
        None,
        "jobs are requeued without a checkpoint for it only where their last one, or their start, was at most this "
        "long ago; 0: none is; None: as candidates.allow_kill says",
    )

    @model_validator(mode="after")
    def _has_a_condition_of_slurms(self) -> Self:
        if not (self.partition or self.qos or self.account or self.user or self.anybody):
            raise ValueError(
                "give partition, qos, account or user, whose use Slurm controls: by job_name and comment alone every "
                "user could make any job a preemptor (anybody = true says that this is wanted)"
            )
        return self


class CandidatesConfig(Section):
    """Which running jobs may be preempted, and how."""

    partitions: Names = key((), "only jobs in these partitions may be preempted; empty: jobs in any partition")
    protected_partitions: Names = key((), "jobs in these partitions are never preempted")
    protected_qos: Names = key((), "jobs with these QoS are never preempted")
    protected_accounts: Names = key((), "jobs of these accounts are never preempted")
    protected_users: Names = key((), "jobs of these users are never preempted")
    min_runtime: Duration = key(
        60.0, "jobs that have run for less than this are never preempted; doubled by each preemption; 0: none"
    )
    spare_before_end: Duration = key(0.0, "jobs whose time limit ends within this are never preempted; 0: no such rule")
    max_preemptions: int = key(3, "maximum number of preemptions of one job; 0: no job is preempted", ge=0)
    allow_kill: bool = key(True, "whether jobs may be requeued without a checkpoint, which loses work")
    allow_cancel: bool = key(False, "whether jobs that cannot be requeued, or would not return, may be lost for good")
    allow_suspend: bool = key(
        False, "whether jobs may be suspended, on nodes with enough memory for the urgent job as well"
    )


class CostsConfig(Section):
    """The CoSim paper, equation (1): time to checkpoint = max(total size / Ba, largest node's size / Bc)."""

    file_system_mib_s: Positive = key(10_000.0, "Ba, aggregate write bandwidth of the file system, MiB/s")
    node_mib_s: Positive = key(1_000.0, "Bc, write bandwidth of one node, MiB/s")
    app_memory_fraction: float = key(
        0.4, "share of a job's memory that an application checkpoint holds, where its size is not known", gt=0, le=1
    )
    checkpoint_overhead: Duration = key(2.0, "time added to each checkpoint for signal, flush and answer; 0: none")
    restart_weight: Weight = key(
        1.0,
        "weight of the restart time in the cost of a job's return, which is its nodes x (restart_weight x time to "
        "restart + queueing_weight x time in the queue). Of plans that lose the same work, the one with the lowest "
        "return cost is made. 0: not counted",
    )
    queueing_weight: Weight = key(1.0, "weight of the time in the queue, see restart_weight; 0: not counted")


class LearningConfig(Section):
    """How the next checkpoint of an application is predicted from its earlier ones under the same checkpointer."""

    quantile: float = key(
        0.9,
        "the probability with which the next checkpoint of an application takes no longer than expected",
        gt=0,
        le=1,
    )
    margin: Duration = key(
        1.0, "time added to what is expected so. clearway calibration says how many checkpoints took no longer; 0: none"
    )
    min_samples: Count = key(
        5, "with fewer checkpoints of a checkpointer, the model of [costs] counts for applications without any"
    )
    failures: Count = key(2, "failed or late checkpoints in a row after which an application is not asked any more")
    forgive_after: Duration = key(
        7 * 86_400.0, "such an application is asked again when its last failure is this old; 0: at once"
    )


class PlanningConfig(Section):
    planner: str = key("eviction-dp", "name of a registered planner")
    steps: int = key(
        3_600,
        "deadlines that are told apart. Where a delay has more seconds, durations are rounded up to as few seconds as "
        "that takes, and the plan says what that may cost at most",
        ge=1,
        le=3_600,
    )
    time_per_cycle: Period = key(
        1.0,
        "computing time for plans in one cycle. Urgent jobs that it does not suffice for have their turn in one of the "
        "next cycles, each user in turn. A single plan is never interrupted",
    )
    end_confidence: float | None = key(
        None,
        "a running job is expected to end in time where earlier jobs of its user and name make that at least this "
        "likely; None: time limits alone count",
        gt=0.5,
        lt=1,
    )
    checkpoints: Literal["serial", "shared"] = key(
        "serial",
        "serial: checkpoints are written one after another, as in the CoSim paper. shared: all checkpoints of a plan "
        "are written at once, because small jobs do not fill the file system; each is in time however the bandwidth "
        "is shared, and execution.concurrent_checkpoints does not apply to them. Drains with a deadline share where "
        "they must. Several urgent jobs in one cycle, other drains and moves still write one after another",
    )
    explanation_time: Duration = key(
        30.0,
        "computing time for explaining a plan, in the pauses between cycles; what is not found in time stays unknown; "
        "0: plans are not explained",
    )


class ExecutionConfig(Section):
    kill_allowance: Duration = key(
        10.0,
        "time from requeue to empty nodes: Slurm's KillWait, epilog, and start of the preemptor. Where most jobs that "
        "left lately took longer, plans allow for that; 0: only for that",
    )
    node_boot: Duration = key(
        0.0,
        "time within which a node that power saving has switched off runs a job; at most Slurm's ResumeTimeout, which "
        "is often much longer; 0: ResumeTimeout",
    )
    late_checkpoint: Literal["kill", "wait"] = key(
        "wait",
        "a checkpoint that would be late. kill: the job is requeued without it, and plans count that as what they may "
        "cost. wait: the eviction is planned anew without the job; where that is not possible one such job is "
        "requeued, or the urgent job waits",
    )
    concurrent_checkpoints: Count = key(
        1,
        "maximum checkpoints on the file system at a time, over all evictions under way. One that takes longer than "
        "expected does not count any more",
    )
    checkpoint_bandwidth_mib_s: float | None = key(
        None,
        "maximum bandwidth that all checkpoints together may use, MiB/s; None: costs.file_system_mib_s",
        gt=0,
        allow_inf_nan=False,
    )
    approval_time: Duration = key(
        60.0, "approve mode: part of the delay that is left for an operator to confirm a plan; 0: none"
    )
    placement_grace: Duration = key(
        900.0, "time from the deadline to the end of the placement (Slurm reservation) in any case; 0: none"
    )
    retry_after: Duration = key(
        5.0, "a command without visible effect is given again after this time; 0: in every cycle"
    )
    give_up_after: Count = key(5, "maximum attempts of a command; after the last one it counts as failed")
    landing_patience: Period = key(
        150.0, "a moved job that has not started on its new node within this time may start on any node"
    )
    watch_return: Duration = key(86_400.0, "how long the return of preempted jobs is watched; 0: not at all")


class EternalConfig(Section):
    """Jobs without a meaningful end. They run where nothing else does, and leave for every other job."""

    partitions: Names = key((), "partitions of eternal jobs; empty: there are none")
    max_delay: Period = key(300.0, "how long an ordinary job may wait while eternal jobs are saved")
    patience: Duration = key(
        15.0, "how long an ordinary job waits for Slurm before eternal jobs make room; 0: not at all"
    )
    at_once: Count = key(4, "maximum ordinary jobs that room is made for at a time")
    min_runtime: Duration = key(
        60.0,
        "eternal jobs that have run for less than this are never preempted; 0: no minimum. candidates.min_runtime and "
        "candidates.max_preemptions do not apply to eternal jobs",
    )


class DrainConfig(Section):
    """Emptying nodes on request (``clearway drain``): which users may ask, and how long a drain waits."""

    operators: Names = key(
        (), "users and REST tokens that may drain nodes, besides root and Slurm's operators and administrators"
    )
    owners: bool = key(False, "whether users may drain nodes on which every job is their own")
    patience: Period = key(900.0, "drains without a deadline: how much longer than expected checkpoints may take")


class PromisesConfig(Section):
    """Nodes that are promised for a time to come (``clearway promise``)."""

    hold: Duration = key(
        7_200.0,
        "how long before a promised time its nodes are chosen and reserved: from then on no job starts on them that "
        "would have to leave; 0: at the time itself",
    )
    spare: Duration = key(
        60.0,
        "how much earlier than their checkpoints need jobs are asked to save themselves for a promised time; 0: no "
        "earlier",
    )
    calendar: Path | None = key(
        None,
        "iCalendar file whose events are promises; nobody but root or the daemon's user may write it or its folders; "
        "unset: none",
    )
    calendar_ahead: Period = key(
        60 * 86_400.0, "how far ahead events of the calendar become promises, at most 366 days", le=366 * 86_400
    )


class _MovesConfig(Section):
    enabled: bool = key(False, "whether the daemon moves jobs without being asked, as far as daemon.mode allows")
    period: Period = key(600.0, "time between two searches for moves, when enabled")
    jobs_per_hour: int = key(10, "maximum jobs moved for this in an hour, requested moves included; 0: none", ge=0)
    worth: Finite = key(2.0, "minimum ratio of a move's gain to its cost, both in node-seconds", ge=1)
    min_gain: Finite = key(0.5, "minimum gain of all moves together, node-hours; 0: no minimum", ge=0)


class CompactionConfig(_MovesConfig):
    """Moving jobs off the emptiest nodes, so that whole nodes become empty (the Slurm+DMTCP paper, Algorithm 1)."""

    partitions: Names = key((), "only nodes of these partitions; empty: nodes of any partition")
    power_down: bool = key(False, "whether emptied nodes are powered down (Slurm's POWER_DOWN)")


class PromotionConfig(_MovesConfig):
    """Moving jobs onto better nodes, and off scarce ones that they do not need."""

    order: Names = key(
        (), "feature=NAME or partition=NAME, best nodes first, unnamed nodes last; empty: by Slurm's node weight"
    )
    scarce: Names = key((), "feature=NAME or partition=NAME of nodes that are scarce")

    @field_validator("order", "scarce")
    @classmethod
    def _are_selectors(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for each in given:
            kind, _, name = each.partition("=")
            if kind not in ("feature", "partition") or not name:
                raise ValueError(f"{each!r} is neither feature=NAME nor partition=NAME")
        return given


class Config(Section):
    daemon: DaemonConfig = DaemonConfig()
    slurm: SlurmConfig = SlurmConfig()
    store: StoreConfig = StoreConfig()
    api: ApiConfig = ApiConfig()
    client: ClientConfig = ClientConfig()
    access: AccessConfig = AccessConfig()
    preemptors: tuple[PreemptorRule, ...] = ()
    candidates: CandidatesConfig = CandidatesConfig()
    budget: BudgetConfig = BudgetConfig()
    costs: CostsConfig = CostsConfig()
    learning: LearningConfig = LearningConfig()
    planning: PlanningConfig = PlanningConfig()
    execution: ExecutionConfig = ExecutionConfig()
    drain: DrainConfig = DrainConfig()
    promises: PromisesConfig = PromisesConfig()
    eternal: EternalConfig = EternalConfig()
    compaction: CompactionConfig = CompactionConfig()
    promotion: PromotionConfig = PromotionConfig()
    notify: NotifyConfig = NotifyConfig()


def observing(config: Config) -> Config:
    """The same configuration in observe mode."""
    return config.model_copy(update={"daemon": config.daemon.model_copy(update={"mode": Mode.OBSERVE})})


def parse_config(text: str, origin: str) -> Config:
    """From TOML text; ``origin`` names it. Raises ``ConfigError``: one line with the key; its ``faults`` are all."""
    try:
        return Config.model_validate(tomllib.loads(text))
    except ValidationError as error:
        found = tuple(f"{origin}: {told(each, Config)}" for each in error.errors())
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise ConfigError(found[0] + more, found) from None
    except RecursionError:
        raise ConfigError(f"{origin}: not valid TOML: nested too deeply") from None
    except ValueError as error:  # not TOML, or a number of more than 4,300 digits
        raise ConfigError(f"{origin}: not valid TOML: {printable(str(error))}") from None


def load_config(path: Path) -> Config:
    """Read and check a configuration file. Raises ``ConfigError``: when it cannot be read or used."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a null byte in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(f"{path}: cannot be read: {reason}") from None
    return parse_config(text, str(path))
