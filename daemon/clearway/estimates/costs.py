"""What it costs to let a job go: lost work and checkpoint time. Pure.

Model: the CoSim paper, section III-B. Killing loses nodes x time since the last checkpoint; a checkpoint takes
equation (1), the aggregate or the slowest node's bandwidth; an application that saves at its own pace has to be
waited for as well. What was measured (``clearway.estimates.learning``) comes before what the model says.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from clearway.config.configuration import CostsConfig
from clearway.estimates.learning import History, key_of
from clearway.model.claims import CheckpointHow, Claims, SaveState, last_checkpoint
from clearway.model.cluster import Job
from clearway.model.problem import Action, Option

NO_HISTORY = History()

# Slurm looks at time limits about twice a minute, so a job ends up to this much after its limit.
TIME_LIMIT_SLACK_S = 30.0

# What a job that names no checkpointer is saved by; the daemon adds those that are installed.
BY_ITSELF: Mapping[str, Action] = {"application": Action.APP_CHECKPOINT}


def checkpoint_time_s(nodes: int, size_per_node_mib: float, costs: CostsConfig) -> float:
    """The CoSim paper, equation (1): max(total size / Ba, largest node's size / Bc), in seconds."""
    return max(nodes * size_per_node_mib / costs.file_system_mib_s, size_per_node_mib / costs.node_mib_s)


def saved_at(job: Job, claims: Claims | None, now: datetime) -> datetime:
    """When this run was saved last, else when it began."""
    return last_checkpoint(claims, job.start_time or job.submit_time, now)


def unsaved_s(job: Job, saved: datetime, now: datetime) -> float:
    """Seconds that this run has computed since then. When it stood suspended is not told: before that, if it can be."""
    before_s = (saved - (job.start_time or saved)).total_seconds()
    return max(0.0, (now - saved).total_seconds() - max(0.0, job.stood_s - before_s))


def lost_work_node_s(job: Job, claims: Claims | None, now: datetime, later_s: float = 0.0) -> float:
    """Node-seconds that a kill so much later than now would lose; whole milliseconds, so that sums are exact."""
    return max(1, job.num_nodes) * round(unsaved_s(job, saved_at(job, claims, now), now) + later_s, 3)


def model_size_mib(
    job: Job, claims: Claims, costs: CostsConfig, node_memory_mib: int = 0, *, whole: bool = False
) -> float:
    """MiB of a checkpoint on all nodes: as the job says, else a share of its memory; 0 when that is unknown too.

    ``node_memory_mib`` stands in for a job's unknown memory. ``whole``: checkpointers that do not know write all of it.
    """
    if claims.size_mib is not None:
        return claims.size_mib
    return max(1, job.num_nodes) * (job.memory_mib or node_memory_mib) * (1.0 if whole else costs.app_memory_fraction)


def write_time_s(
    job: Job, claims: Claims, costs: CostsConfig, node_memory_mib: int, history: History, *, whole: bool = False
) -> float:
    """Seconds from asking a job that saves on a signal to its complete checkpoint.

    By the history of its user, application and checkpointer. What the job says itself counts where it is longer:
    neither may make a checkpoint look quicker than it is known to be. Without either, the median of its checkpointer;
    without that, the model.
    """
    learned = history.estimate(*key_of(job, claims), job.num_nodes)
    if claims.unanswered_s is not None:  # nothing is known before that, but what it took earlier
        own_s = claims.unanswered_s if learned is None or not learned.own else learned.checkpoint_s
        return min(own_s, claims.unanswered_s)
    told_s = None if claims.took_s is None else claims.took_s + costs.checkpoint_overhead
    if learned is not None and learned.own:
        # Own pace: what was measured is the writing alone, for when the application begins is not known.
        paced = claims.checkpoint is CheckpointHow.INTERVAL
        return max(learned.checkpoint_s + (costs.checkpoint_overhead if paced else 0.0), told_s or 0.0)
    if told_s is not None:
        return told_s
    if learned is not None and claims.size_mib is None:
        return learned.checkpoint_s
    size_mib = model_size_mib(job, claims, costs, node_memory_mib, whole=whole)
    return checkpoint_time_s(job.num_nodes, size_mib / max(1, job.num_nodes), costs) + costs.checkpoint_overhead


def app_checkpoint_s(
    job: Job, claims: Claims | None, now: datetime, write_s: float, history: History = NO_HISTORY, later_s: float = 0.0
) -> float | None:
    """Seconds until the application has saved itself; None when it never said that it can, or has kept failing.

    Includes the wait for the application (the CoSim paper: ta = tckpt + delay): none for one that saves on a signal.
    ``write_s``: see ``write_time_s``. ``later_s``: what the application saves before this has passed comes too soon.
    """
    if claims is None or claims.checkpoint in (None, CheckpointHow.NONE) or claims.state is SaveState.FAILED:
        return None
    if not history.trusted(*key_of(job, claims), now):
        return None
    if claims.checkpoint is CheckpointHow.SIGNAL:
        return write_s
    if not claims.interval_s:
        return None
    passed_s = (now - saved_at(job, claims, now)).total_seconds()
    return math.ceil((passed_s + later_s) / claims.interval_s) * claims.interval_s - passed_s + write_s


def end_ready_s(job: Job, now: datetime, kill_allowance_s: float) -> float | None:
    """Seconds until the job's own time limit has certainly emptied its nodes; None without a limit."""
    end = job.ends_by
    return None if end is None else max(0.0, (end - now).total_seconds()) + TIME_LIMIT_SLACK_S + kill_allowance_s


def return_node_s(job: Job, restart_s: float, costs: CostsConfig, history: History) -> int:
    """What the return of a preempted job costs: nodes x time until it computes again, in whole node-seconds."""
    nodes = max(1, job.num_nodes)
    return round(nodes * (costs.queueing_weight * history.queueing_s(nodes) + costs.restart_weight * restart_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class CostBasis:
    """What the costs of jobs are worked out from."""

    now: datetime
    costs: CostsConfig
    history: History = NO_HISTORY
    actions: Mapping[str, Action] = field(default_factory=lambda: BY_ITSELF)
    shared_mib_s: float | None = None  # that checkpoints share; None: they are written one after another
    later_s: float = 0.0  # that may pass before the plan begins
    kill_later_s: float = 0.0  # ... and until a command is given that ends the job


def preemption_options(
    job: Job, claims: Claims | None, by: CostBasis, node_memory_mib: int = 0, *, kill: bool, requeueable: bool
) -> tuple[Option, ...]:
    """The ways in which a job can be preempted; ``requeueable`` False leaves only the kill, where that is allowed."""
    options: list[Option] = []
    action = checkpoint_action(claims, by.actions)
    write_s = restart_s = 0.0
    if claims is not None and action is not None:
        whole = action is Action.SYS_CHECKPOINT
        write_s = write_time_s(job, claims, by.costs, node_memory_mib, by.history, whole=whole)
        learned_s = by.history.restart_s(*key_of(job, claims), job.num_nodes)
        restart_s = write_s if learned_s is None else learned_s  # reading takes about as long as writing
    if kill:
        # Without a checkpoint in this run it begins as this run did, which is part of what it loses.
        again_s = restart_s if saved_at(job, claims, by.now) > (job.start_time or job.submit_time) else 0.0
        back = return_node_s(job, again_s, by.costs, by.history)
        lost_node_s = lost_work_node_s(job, claims, by.now, by.kill_later_s)
        options.append(Option(Action.KILL, lost_node_s, return_node_s=back))
    seconds = app_checkpoint_s(job, claims, by.now, write_s, by.history, by.later_s)
    if requeueable and action is not None and seconds is not None:
        writes_s, share_s, ready_s = min(write_s, _most_write_s(job, claims, by.costs, node_memory_mib)), None, 0.0
        if by.shared_mib_s is not None:
            share_s = round(writes_s * min(1.0, checkpoint_rate_mib_s(job, claims, by.costs) / by.shared_mib_s), 3)
        elif writes_s < seconds and claims is not None and claims.unanswered_s is not None:
            seconds, ready_s = writes_s, seconds  # the others write meanwhile
        back = return_node_s(job, restart_s, by.costs, by.history)
        options.append(Option(action, 0.0, round(seconds, 3), round(ready_s, 3), back, share_s))
    return tuple(options)


def _most_write_s(job: Job, claims: Claims | None, costs: CostsConfig, node_memory_mib: int) -> float:
    """Of the time until it is saved, how much it can be writing: one that does not answer is given time, not data."""
    if claims is None or claims.unanswered_s is None:
        return math.inf
    size_mib = model_size_mib(job, claims, costs, node_memory_mib) / max(1, job.num_nodes)
    return checkpoint_time_s(max(1, job.num_nodes), size_mib, costs) + costs.checkpoint_overhead


def checkpoint_action(claims: Claims | None, actions: Mapping[str, Action]) -> Action | None:
    """Which action a checkpoint of this job is; None when it claims none, or names an unknown checkpointer."""
    if claims is None or claims.checkpoint in (None, CheckpointHow.NONE):
        return None
    action = actions.get(claims.checkpointer)
    return action if action in (Action.APP_CHECKPOINT, Action.SYS_CHECKPOINT) else None


def why_no_checkpoint(claims: Claims | None, actions: Mapping[str, Action]) -> str:
    """Why a job cannot be saved, as a sentence without its end; empty where it can, or never said anything."""
    if claims is None:
        return ""
    if claims.checkpoint is CheckpointHow.NONE:
        return "it says that it cannot be checkpointed"
    if claims.checkpoint is None and claims.run is not None:
        return "what it says of its checkpoints is from an earlier run"
    if claims.checkpoint is not None and checkpoint_action(claims, actions) is None:
        return f"its checkpointer {claims.checkpointer} is not one that the daemon knows"
    return "its last checkpoint failed" if claims.state is SaveState.FAILED else ""


def checkpoint_rate_mib_s(job: Job, claims: Claims | None, costs: CostsConfig) -> float:
    """Bandwidth that a checkpoint takes: as it went last time, else size / time by equation (1), whatever the size."""
    if claims is not None and claims.size_mib and claims.took_s:
        return claims.size_mib / claims.took_s
    return min(max(1, job.num_nodes) * costs.node_mib_s, costs.file_system_mib_s)


def suspend_option(
    job: Job, nodes: Sequence[tuple[int, Sequence[int]]], preemptor_memory_mib: int
) -> tuple[Option, ...]:
    """Suspending the job in memory, where that is possible: nothing is lost, nothing goes to the file system.

    ``nodes`` are the job's: memory of each in MiB, and that of every job on it. All of them count, because all may
    stay there suspended; a memory of 0 is unknown, and then no sum is known.
    """
    fits = all(all(on_node) and memory_mib >= preemptor_memory_mib + sum(on_node) for memory_mib, on_node in nodes)
    possible = nodes and fits and job.memory_mib > 0 and preemptor_memory_mib > 0
    return (Option(Action.SUSPEND),) if possible else ()
