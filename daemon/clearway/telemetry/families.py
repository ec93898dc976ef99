"""Every metric: its name (after ``clearway_``), its meaning, its labels and buckets; and one way to change any.

A counter's series must be seen at 0 before it rises: else Prometheus misses its first increase. So labels are given
with the values that are known beforehand; the values of a label without any come later.
"""

from collections import Counter as Tally
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import product

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from clearway.config.configuration import Mode
from clearway.execution.job_lifecycle import Command
from clearway.model import errors
from clearway.model.claims import Restart
from clearway.model.notice import Channel
from clearway.model.operations import EvictionState, PreemptionState
from clearway.model.orders import MoveKind, TurnState
from clearway.model.plan import ObstacleCode
from clearway.model.problem import Action
from clearway.model.report import Subject
from clearway.preemption.explanation import RULES

PREEMPTING = tuple(action for action in Action if action is not Action.END)
RECORDS = ("job", "node", "reservation")
# By the error that ended the cycle, the first that fits.
FAILURES = {
    errors.SlurmTimeoutError: "slurm_timeout",
    errors.SlurmUnavailableError: "slurm_unavailable",
    errors.SlurmRefusedError: "slurm_refused",
    errors.StoreError: "store",
    BaseException: "internal",
}
CUTS = {errors.LeaseLostError: "lease_lost", errors.SnapshotTooOldError: "snapshot_too_old", BaseException: "other"}
_RULES = tuple(rule.name for rule in RULES)


def _table(text: str) -> dict[str, str]:
    """Lines ``name: meaning``; a line that goes on is indented."""
    lines = text.strip().replace("\n    ", " ").splitlines()
    return {name: meaning for name, _, meaning in (line.partition(": ") for line in lines)}


# The registry adds ``_total`` to their names.
_COUNTERS = _table("""
cycles: Cycles that succeeded.
cycle_failures: Cycles that failed, by cause.
handling_failures: Jobs, requests, operations and parts of cycles that made Clearway fail; the cycles went on without
    them.
cycles_cut: Cycles that ended before their work was done: the lease was lost, or what was seen of the cluster too old.
slurm_queries: Queries to Slurm that snapshots of the cluster took.
slurm_steps: Commands given to Slurm, by kind and result.
rest_refusals: REST requests that were answered 429 because their lane was full, or their caller had its part, by lane.
refused_logins: REST requests with a token that is not good (token), a role that does not suffice (role), or a user
    named by what is not the proxy (proxy).
skipped_records: Records that could not be read; one that stays unreadable counts once.
evictions_planned: Evictions planned.
evictions: Evictions that have ended, by result.
preemptor_starts: Preemptors that started with Clearway's help.
deadlines_missed: Evictions whose preemptor started after its deadline, or that failed.
nodes_emptied: Nodes that drains have emptied.
promises: Promises of nodes: kept, kept late, or not kept; cancelled ones do not count.
moved_jobs: Jobs that compaction and promotion have moved, and that run again.
move_gain_node_seconds: Node-seconds that moves were expected to gain; only of those carried out to the end.
compacted_nodes: Nodes that compaction has moved all jobs off.
rolling_drain_skipped_nodes: Nodes that rolling drains could not empty; nodes that an operator left out do not count.
preemptions: Jobs that have left because of Clearway.
lost_work_node_seconds: Node-seconds of work that preemption lost, by action.
caused_preemptions: Jobs that had to leave, by rule, account and partition of the job that they left for; rule drain,
    promise, compaction or promotion: for no job.
caused_lost_work_node_seconds: Node-seconds of work lost by jobs that had to leave, by what they left for.
suffered_preemptions: Jobs that had to leave, by their own account and partition.
suffered_lost_work_node_seconds: Node-seconds of work lost by jobs that had to leave, by their own account and
    partition.
saved_work_node_seconds: Node-seconds of work that checkpoints saved: what a kill would have lost, less what was lost.
rule_lost_work_node_seconds: Node-seconds that plans expected to lose (rule clearway), and that simple rules would have
    lost instead.
rule_infeasible: Plans for which a simple rule would not have freed the nodes in time; they add nothing to its loss.
checkpoints: Checkpoints that were asked for, by what became of them.
restarts: Runs that went on from a checkpoint: from the newest (ok), the one before (fallback), or none (scratch).
messages_sent: Messages to owners and operators that were sent, by channel; one may tell of several things.
messages_failed: Attempts to send such a message that failed, by channel; they are repeated.
notices_given_up: Things that owners or operators were not told by this channel, and will not be.
""")
_GAUGES = _table("""
notices_waiting: Things that owners or operators are still to be told, by channel; 0: none.
notices_oldest_timestamp_seconds: Unix time from which on the oldest of them waits, by channel; 0: none waits.
last_cycle_timestamp_seconds: Unix time of the last cycle that succeeded; 0: none has yet.
unreadable_records: Records in the newest snapshot that could not be read; nothing is done to them. 0: all were read.
database_bytes: Size of the database, bytes; 0: not known yet.
database_limit_bytes: Size from which on no proposals are stored in observe mode, bytes.
quarantined: Subjects that are passed over because Clearway failed at them when last tried; 0: none is.
unreadable_claims: Jobs in the newest snapshot whose Comment begins with clearway: but cannot be read; it counts as
    none.
paused: 1 while an operator has paused the daemon, else 0.
stopped: 1 while no job is made to leave because nodes were lost after others had (clearway resume), else 0.
halted: 1 while no command is given to Slurm (clearway halt, or the file daemon.halt_file), else 0.
only_observes: 1 while Clearway begins nothing because it does not know the release of Slurm, else 0.
standby: 1 while another daemon holds the lease on the database, or this one could not renew it, else 0.
clock_doubted: 1 while nothing is done because the wall clock was set, or other clocks disagree, else 0.
lease_epoch: Number of the takeover that made this daemon the one that acts; 0: another daemon holds the lease.
mode: 1 for the configured daemon.mode, 0 for the others.
paused_users: Users whose urgent jobs are left to Slurm for a while (left_alone), or need approval (asked_about; one
    that stands for all users counts as one); 0: none.
waiting_preemptors: Preemptors that wait; 0: none waits.
waiting_preemptors_without_eviction: Preemptors that wait and for which nothing is planned; 0: there is a plan for each.
urgent_jobs_left_to_slurm: Urgent jobs that wait and that no plan is made for, by what they ask for or wait for; 0:
    none.
waiting_preemptors_overdue: Preemptors that wait beyond their deadline; 0: none does.
open_evictions: Evictions in each open state.
open_preemptions: Preemptees of evictions under way, in each open state.
open_rolling_drains: Rolling drains that have not ended; 0: none is under way.
rolling_drain_nodes: Nodes of open rolling drains, by the state of their turn.
rolling_drain_standstill_seconds: Seconds since a node's turn last changed, in the open rolling drain where that is
    longest; 0: none open.
budget_jobs: Jobs preempted in the last hour (used), and how many may be (limit; absent: no limit).
budget_lost_node_seconds: Node-seconds of work lost in the last hour (used), and how many may be (limit; absent: no
    limit).
""")
_HISTOGRAMS = _table("""
cycle_duration_seconds: Duration of a cycle that succeeded.
planner_duration_seconds: Seconds that it took to plan an eviction and to store it.
time_to_start_seconds: Seconds from the plan of an eviction to the start of its preemptor.
time_to_empty_seconds: Seconds from the beginning of a drain until its nodes were empty.
start_margin_seconds: Seconds from a preemptor's start to its deadline; negative: it started after the deadline.
checkpoint_duration_seconds: Seconds from asking a job to save itself to its checkpoint.
checkpoint_prediction_error_seconds: Seconds that a checkpoint took beyond those predicted; negative: it took less.
checkpoint_seconds_ratio: Seconds that a checkpoint took, over those predicted; 1: exactly as predicted.
""")
_LANES = ("monitor", "metrics", "operators", "logins", "reading", "what_if", "listening")  # of ``api.lanes``
_LABELS: dict[str, dict[str, Iterable[str]]] = {
    "cycle_failures": {"kind": FAILURES.values()},
    "handling_failures": {"kind": Subject},
    "quarantined": {"kind": [subject for subject in Subject if subject is not Subject.REQUEST]},
    "cycles_cut": {"kind": CUTS.values()},
    "paused_users": {"kind": ("left_alone", "asked_about")},
    "slurm_steps": {"kind": Command, "result": ("ok", "refused", "error", "held")},
    "rest_refusals": {"lane": _LANES},
    "refused_logins": {"reason": ("token", "role", "proxy")},
    "skipped_records": {"kind": RECORDS},
    "unreadable_records": {"kind": RECORDS},
    "messages_sent": {"channel": Channel},
    "messages_failed": {"channel": Channel},
    "notices_given_up": {"channel": Channel},
    "notices_waiting": {"channel": Channel},
    "notices_oldest_timestamp_seconds": {"channel": Channel},
    "mode": {"mode": ()},
    "urgent_jobs_left_to_slurm": {"reason": ObstacleCode},
    "evictions_planned": {"mode": Mode},
    "evictions": {"result": [state for state in EvictionState if state.terminal]},
    "open_evictions": {"state": [state for state in EvictionState if not state.terminal]},
    "open_preemptions": {"state": [state for state in PreemptionState if not state.terminal]},
    "preemptor_starts": {"result": ("in_time", "late")},
    "promises": {"result": ("kept", "late", "not_kept")},
    "moved_jobs": {"kind": MoveKind},
    "move_gain_node_seconds": {"kind": MoveKind},
    "rolling_drain_nodes": {"state": TurnState},
    "preemptions": {"action": (), "partition": ()},
    "caused_preemptions": {"rule": (), "account": (), "partition": ()},
    "caused_lost_work_node_seconds": {"rule": (), "account": (), "partition": ()},
    "suffered_preemptions": {"account": (), "partition": ()},
    "suffered_lost_work_node_seconds": {"account": (), "partition": ()},
    "lost_work_node_seconds": {"action": PREEMPTING},
    "budget_jobs": {"kind": ("used",)},
    "budget_lost_node_seconds": {"kind": ("used",)},
    "rule_lost_work_node_seconds": {"rule": ("clearway", *_RULES)},
    "rule_infeasible": {"rule": _RULES},
    "checkpoints": {"checkpointer": (), "outcome": ()},
    "restarts": {"restart": Restart},
}
_WAITS = (1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 3_600)  # seconds, as the next two
_MARGINS = (-3_600, -600, -120, -60, -30, -10, 0, 10, 30, 60, 120, 600, 3_600)
_BUCKETS: dict[str, Sequence[float]] = {
    "cycle_duration_seconds": (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2.5, 5, 10, 30),
    "planner_duration_seconds": (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
    "start_margin_seconds": _MARGINS,
    "checkpoint_prediction_error_seconds": _MARGINS,
    "checkpoint_seconds_ratio": (0.1, 0.25, 0.5, 0.75, 0.9, 1, 1.1, 1.25, 1.5, 2, 4, 10),
}


class Families:
    """All metrics, in one registry. Values of labels are given in the order of the table."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counters = {name: Counter(*_described(name, text), registry=registry) for name, text in _COUNTERS.items()}
        self._gauges = {name: Gauge(*_described(name, text), registry=registry) for name, text in _GAUGES.items()}
        self._histograms = {
            name: Histogram(*_described(name, text), buckets=_BUCKETS.get(name, _WAITS), registry=registry)
            for name, text in _HISTOGRAMS.items()
        }
        for name, labels in _LABELS.items():
            for values in product(*labels.values()):
                (self._counters.get(name) or self._gauges[name]).labels(*values)

    def add(self, counter: str, amount: float = 1, *labels: str) -> None:
        """An amount of 0 shows the series."""
        found = self._counters[counter]
        (found.labels(*labels) if labels else found).inc(amount)

    def set(self, gauge: str, value: float | None, *labels: str) -> None:
        """None: the series is absent."""
        found = self._gauges[gauge]
        if value is not None:
            (found.labels(*labels) if labels else found).set(value)
        else:
            with suppress(KeyError):  # it was absent
                found.remove(*labels)

    def set_tally(self, gauge: str, found: Iterable[str]) -> None:
        """How often each known value of its one label is found."""
        tally, (known,) = Tally(found), _LABELS[gauge].values()
        for value in known:
            self.set(gauge, tally[value], value)

    def observe(self, histogram: str, value: float) -> None:
        self._histograms[histogram].observe(value)


def _described(name: str, text: str) -> tuple[str, str, Iterable[str]]:
    return f"clearway_{name}", text, _LABELS.get(name, ())
