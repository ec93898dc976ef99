"""The rows of the dashboard about work, moves, failures, the daemon itself and what it learns."""

from __future__ import annotations

from building import HANGS, NOTHING, SILENT, Lines, Number, Panel, Rows, counted, fresh, of, quantile

_PLAIN = ((None, "red"), (0, "blue"))
_ANSWERING = (
    f"{of('clearway_build_info')} * on (cluster, instance) group_left (name) {of('clearway_backend_info')}"
    f" * on (cluster, instance) group_left (mode) ({of('clearway_mode')} == 1)"
)


def _share(metric: str) -> str:
    """Used share of a limit; where there is no limit, there is no share."""
    used, limit = of(metric, kind="used"), of(metric, kind="limit")
    return f"max({used} / ignoring(kind) ({limit} > 0))"


WORK: tuple[Panel, ...] = (
    Number(
        title="Lost node-hours",
        text="Node-hours of work that preemption lost in the time range. 0: nothing was lost.",
        queries=((f"sum(increase({of('clearway_lost_work_node_seconds_total')}[$__range])) / 3600", ""),),
        empty=NOTHING,
        decimals=2,
        steps=_PLAIN,
        width=6,
    ),
    Number(
        title="Saved node-hours",
        text="Node-hours of work that checkpoints saved in the time range: the loss of requeueing without a "
        "checkpoint, less the actual loss. 0: nothing was saved.",
        queries=((f"sum(increase({of('clearway_saved_work_node_seconds_total')}[$__range])) / 3600", ""),),
        empty=NOTHING,
        decimals=2,
        steps=_PLAIN,
        width=6,
    ),
    Number(
        title="Jobs preempted in the last hour",
        text="Number of jobs, as the budget counts them. 0: none.",
        queries=((f"sum({fresh(of('clearway_budget_jobs', kind='used'))})", ""),),
        empty=HANGS,
        steps=_PLAIN,
        width=6,
    ),
    Number(
        title="Work lost in the last hour",
        text="Node-hours of work lost, as the budget counts them. 0: nothing was lost.",
        queries=((f"sum({fresh(of('clearway_budget_lost_node_seconds', kind='used'))}) / 3600", ""),),
        empty=HANGS,
        decimals=2,
        steps=_PLAIN,
        width=6,
    ),
    Lines(
        title="Lost and saved node-hours",
        text="Node-hours of work that preemption lost in each interval, by action, and that checkpoints saved. 0: "
        "nothing was lost or saved.",
        queries=(
            (f"{counted('clearway_lost_work_node_seconds_total', by='action')} / 3600", "lost: {{action}}"),
            (f"{counted('clearway_saved_work_node_seconds_total')} / 3600", "saved"),
        ),
        empty=SILENT,
        bars=True,
    ),
    Lines(
        title="Preempted jobs, by action and partition",
        text="Number of jobs that had to leave in each interval, by action and by the partition where they ran. 0: "
        "none.",
        queries=((counted("clearway_preemptions_total", by="action, partition"), "{{action}} {{partition}}"),),
        empty=SILENT,
        bars=True,
        stacked=True,
    ),
    Lines(
        title="Checkpoint time",
        text="Seconds from asking a job to save itself to its checkpoint, and their difference from the prediction. "
        "0: at once, or exactly as predicted; below 0: sooner than predicted.",
        queries=(
            (quantile(0.5, "clearway_checkpoint_duration_seconds"), "duration, median"),
            (quantile(0.95, "clearway_checkpoint_duration_seconds"), "duration, 95 %"),
            (quantile(0.5, "clearway_checkpoint_prediction_error_seconds"), "difference, median"),
        ),
        empty=NOTHING,
        unit="s",
    ),
    Lines(
        title="Budget used",
        text="Share of the hourly limits on preempted jobs and on lost work. 0: unused. No line: no limit.",
        queries=((_share("clearway_budget_jobs"), "jobs"), (_share("clearway_budget_lost_node_seconds"), "lost work")),
        empty="No limit is set, or no daemon answers",
        unit="percentunit",
    ),
    Lines(
        title="Planned loss compared with simple rules",
        text="Node-hours that the plans of the time range lose (clearway), and that the plans of simple rules would "
        "have lost instead. 0: nothing. Explanations follow shortly after the plans.",
        queries=(
            (
                f"sum by (rule) (increase({of('clearway_rule_lost_work_node_seconds_total')}[$__range])) / 3600",
                "{{rule}}",
            ),
        ),
        empty=NOTHING,
        width=24,
    ),
)
MOVES: tuple[Panel, ...] = (
    Lines(
        title="Moved jobs",
        text="Number of jobs moved in each interval by compaction and promotion, and of nodes that compaction "
        "emptied. 0: none.",
        queries=(
            (counted("clearway_moved_jobs_total", by="kind"), "{{kind}}"),
            (counted("clearway_compacted_nodes_total"), "nodes emptied"),
        ),
        empty=SILENT,
        bars=True,
        stacked=True,
        link="drains Drains and moves",
    ),
    Lines(
        title="Expected gain of moves",
        text="Node-hours that the moves completed in each interval were expected to gain. 0: none was completed.",
        queries=((f"{counted('clearway_move_gain_node_seconds_total', by='kind')} / 3600", "{{kind}}"),),
        empty=SILENT,
        bars=True,
        stacked=True,
    ),
    Lines(
        title="Rolling drains: nodes by state",
        text="Number of nodes in open rolling drains. Away: the node is empty and not back yet. 0: no such node.",
        queries=((f"sum by (state) ({of('clearway_rolling_drain_nodes')})", "{{state}}"),),
        empty=SILENT,
        stacked=True,
        link="drains Drains and moves",
    ),
    Lines(
        title="Rolling drains: standstill",
        text="Seconds since a node's turn last changed, in the open rolling drain where that is longest. 0: no "
        "rolling drain is open.",
        queries=((f"max({of('clearway_rolling_drain_standstill_seconds')})", "longest standstill"),),
        empty=SILENT,
        unit="s",
        width=6,
    ),
    Lines(
        title="Rolling drains: skipped nodes",
        text="Number of nodes that rolling drains could not empty in each interval. 0: none.",
        queries=((counted("clearway_rolling_drain_skipped_nodes_total"), "skipped"),),
        empty=SILENT,
        bars=True,
        width=6,
    ),
)
FAILURES: tuple[Panel, ...] = (
    Lines(
        title="Failed cycles by cause",
        text="Number of cycles that failed in each interval, or ended early. 0: none. In a cycle that fails nothing "
        "is done.",
        queries=(
            (counted("clearway_cycle_failures_total", by="kind"), "failed: {{kind}}"),
            (counted("clearway_cycles_cut_total", by="kind"), "ended early: {{kind}}"),
        ),
        empty=SILENT,
        bars=True,
        stacked=True,
        width=6,
    ),
    Lines(
        title="Failed Slurm commands",
        text="Number of commands in each interval that Slurm refused or did not answer in time. 0: none.",
        queries=(
            (counted("clearway_slurm_steps_total", "kind, result", result="~refused|error"), "{{kind}} {{result}}"),
        ),
        empty=SILENT,
        bars=True,
        stacked=True,
        width=6,
    ),
    Lines(
        title="What cannot be read or handled",
        text="Number of Slurm records and job Comments that cannot be read, and of subjects that Clearway fails at. "
        "It does not act on them. 0: none.",
        queries=(
            (f"sum by (kind) ({of('clearway_unreadable_records')})", "{{kind}} records"),
            (f"sum({of('clearway_unreadable_claims')})", "Comments"),
            (f"sum by (kind) ({of('clearway_quarantined')})", "fails at: {{kind}}"),
        ),
        empty=SILENT,
        width=6,
    ),
    Lines(
        title="Notices that wait",
        text="Number of things that owners and operators are still to be told, by channel, and of those given up in "
        "each interval. 0: none.",
        queries=(
            (f"sum by (channel) ({of('clearway_notices_waiting')})", "{{channel}}"),
            (counted("clearway_notices_given_up_total", by="channel"), "given up: {{channel}}"),
        ),
        empty=SILENT,
        width=6,
    ),
)
LOOP: tuple[Panel, ...] = (
    Lines(
        title="Cycle time",
        text="Seconds that a cycle takes. 0: it takes no time.",
        queries=(
            (quantile(0.5, "clearway_cycle_duration_seconds"), "median"),
            (quantile(0.99, "clearway_cycle_duration_seconds"), "99 %"),
        ),
        empty=SILENT,
        unit="s",
        width=8,
    ),
    Lines(
        title="Age of the last cycle",
        text="Seconds since a daemon last finished a cycle, also while none answers. 0: just now.",
        queries=((f"time() - max(max_over_time({of('clearway_last_cycle_timestamp_seconds')}[1d]) > 0)", "age"),),
        empty="No cycle within a day",
        unit="s",
        width=8,
    ),
    Lines(
        title="Cycles and queries",
        text="Times per second that a cycle succeeds, and that a snapshot asks Slurm. 0: never.",
        queries=(
            (f"sum(rate({of('clearway_cycles_total')}[$__rate_interval]))", "cycles"),
            (f"sum(rate({of('clearway_slurm_queries_total')}[$__rate_interval]))", "queries"),
        ),
        empty=SILENT,
        unit="ops",
        width=8,
    ),
    Lines(
        title="Planning time",
        text="Seconds from the problem to the stored plan. 0: it takes no time.",
        queries=(
            (quantile(0.5, "clearway_planner_duration_seconds"), "median"),
            (quantile(0.99, "clearway_planner_duration_seconds"), "99 %"),
        ),
        empty=NOTHING,
        unit="s",
        width=8,
    ),
    Lines(
        title="Memory",
        text="Bytes of memory that each daemon uses; 640 MiB are an alert. 0 is never seen.",
        queries=((f"max by (instance) ({of('process_resident_memory_bytes', job='clearway')})", "{{instance}}"),),
        empty=SILENT,
        unit="bytes",
        width=8,
    ),
    Lines(
        title="Processor time and restarts",
        text="Number of processors that the daemons use, and of restarts of the process that talks to Slurm. 0: none.",
        queries=(
            (f"sum(rate({of('process_cpu_seconds_total', job='clearway')}[$__rate_interval]))", "processors"),
            (counted("clearway_backend_restarts_total"), "restarts"),
        ),
        empty=SILENT,
        width=8,
    ),
    Rows(
        title="Daemons that answer",
        text="Version, backend and mode of each daemon that answers. No unit, and no number: 0 rows mean that none "
        "does.",
        queries=((_ANSWERING, ""),),
        empty=SILENT,
        names=(
            *(("Time", ""), ("Value", ""), ("__name__", ""), ("job", "")),
            *(("cluster", "cluster"), ("instance", "instance"), ("version", "version"), ("python", "Python")),
            *(("name", "backend"), ("mode", "mode")),
        ),
        width=24,
        height=5,
    ),
)
LEARNING: tuple[Panel, ...] = (
    Lines(
        title="Checkpoint time, actual over predicted",
        text="Ratio of the actual to the predicted seconds of a checkpoint. 1: as predicted; above 1: longer. 0: at "
        "once.",
        queries=(
            (quantile(0.5, "clearway_checkpoint_seconds_ratio"), "median"),
            (quantile(0.95, "clearway_checkpoint_seconds_ratio"), "95 %"),
        ),
        empty=NOTHING,
        link="calibration Calibration",
    ),
    Lines(
        title="Checkpoints and restarts by outcome",
        text="Number of checkpoints in each interval (saved, failed, late, or ended: the job was over first), and of "
        "restarts from the newest checkpoint (ok), the one before (fallback), or the start (scratch). 0: none.",
        queries=(
            (counted("clearway_checkpoints_total", by="checkpointer, outcome"), "{{checkpointer}} {{outcome}}"),
            (counted("clearway_restarts_total", by="restart"), "restart {{restart}}"),
        ),
        empty=SILENT,
        bars=True,
        link="calibration Calibration",
    ),
)
