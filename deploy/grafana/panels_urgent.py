"""The rows of the dashboard about life and death, urgent jobs, and who causes and pays for preemptions."""

from __future__ import annotations

from building import HANGS, NOTHING, SILENT, Lines, Number, Panel, Rows, counted, fresh, of, quantile, total
from grafana_foundation_sdk.models.common import BigValueTextMode

_MISSED = f"sum(increase({of('clearway_deadlines_missed_total')}[$__range]))"
_HOLDS = (("halted", 4), ("stopped", 2), ("paused", 1))
_MODE = (
    f"{of('clearway_mode', mode='observe')} == 1 or 2 * {of('clearway_mode', mode='approve')} == 2 "
    f"or 3 * {of('clearway_mode', mode='automatic')} == 3"
)
ACTING = "~placing|preempting|starting|started|returning|cancelling"

ALIVE: tuple[Panel, ...] = (
    Number(
        title="Daemons",
        text="Whether each daemon answers Prometheus. No unit: 1 (up) it answers. 0 (DOWN): it does not.",
        queries=((of("up", job="clearway"), "{{instance}}"),),
        empty="Prometheus watches no daemon",
        steps=((None, "red"), (1, "green")),
        words=((0, "DOWN", "red"), (1, "up", "green")),
        shows=BigValueTextMode.VALUE_AND_NAME,
        link="now Now",
    ),
    Number(
        title="Daemon that acts",
        text="Address of the daemon that holds the lease (the leader). No unit: 1 (acts). 0 is never shown; without an "
        "address no daemon acts, so no room is made for urgent jobs.",
        queries=((fresh(f"({of('clearway_lease_epoch')} > bool 0) == 1"), "{{instance}}"),),
        empty="no daemon acts",
        steps=((None, "red"), (1, "green")),
        words=((1, "acts", "green"),),
        shows=BigValueTextMode.VALUE_AND_NAME,
    ),
    Number(
        title="Mode",
        text="Configured mode (daemon.mode); where two daemons differ, the one that does more. No unit: 1 (observe) "
        "only proposes, 2 (approve) asks an operator, 3 (automatic) acts. 0 is never shown.",
        queries=((f"max({_MODE})", ""),),
        empty=f"unknown: {SILENT}",
        steps=((None, "red"), (1, "blue")),
        words=((1, "observe", "blue"), (2, "approve", "blue"), (3, "automatic", "blue")),
    ),
    Number(
        title="Commands to Slurm",
        text="Whether Clearway gives Slurm commands. No unit: 0 (given) as usual, 1 (paused) no new plans, 2 and 3 "
        "(STOPPED) none, as nodes were lost after jobs had left them, 4 and more (HALTED) no command at all.",
        queries=((" + ".join(f"{size} * max({fresh(of(f'clearway_{what}'))})" for what, size in _HOLDS), ""),),
        empty=HANGS,
        steps=((None, "red"), (0, "green"), (1, "orange"), (2, "red")),
        words=(
            (0, "given", "green"),
            (1, "paused", "orange"),
            *((number, "STOPPED", "red") for number in (2, 3)),
            *((number, "HALTED", "red") for number in (4, 5, 6, 7)),
        ),
        link="now Now",
    ),
    Number(
        title="Since the last cycle",
        text="Seconds since a daemon last finished a cycle, also while none answers. 0: just now. Above 120 it is "
        "too long: no room is made for urgent jobs.",
        queries=((f"time() - max(max_over_time({of('clearway_last_cycle_timestamp_seconds')}[1d]) > 0)", ""),),
        empty="no cycle within a day",
        unit="s",
        decimals=0,
        steps=((None, "red"), (0, "green"), (30, "orange"), (120, "red")),
    ),
    Number(
        title="Alerts",
        text="Number of alerts that fire or are about to, by name. 0, or empty: none is, provided that Prometheus "
        "has loaded clearway.rules.yml.",
        queries=((f"count by (alertname, severity) ({of('ALERTS', alertname='~Clearway.+')})", "{{alertname}}"),),
        empty="no alert (if the rules are loaded)",
        steps=((None, "text"), (1, "red")),
        shows=BigValueTextMode.VALUE_AND_NAME,
    ),
)
URGENT: tuple[Panel, ...] = (
    Number(
        title="Urgent jobs that wait",
        text="Number of waiting jobs that a rule makes urgent, and of ordinary jobs that eternal jobs make room for. "
        "0: no such job waits.",
        queries=((f"sum({fresh(of('clearway_waiting_preemptors'))})", ""),),
        empty=HANGS,
        steps=((None, "red"), (0, "green"), (1, "yellow")),
        link="now Waiting jobs",
    ),
    Number(
        title="Past their deadline",
        text="Number of waiting urgent jobs whose deadline has passed. 0: none.",
        queries=((f"sum({fresh(of('clearway_waiting_preemptors_overdue'))})", ""),),
        empty=HANGS,
        steps=((None, "red"), (0, "green"), (1, "red")),
        link="now Waiting jobs",
    ),
    Number(
        title="Wait for approval",
        text="Number of evictions that an operator must approve before they are carried out. 0: none.",
        queries=((f"sum({fresh(of('clearway_open_evictions', state='awaiting_approval'))})", ""),),
        empty=HANGS,
        steps=((None, "red"), (0, "green"), (1, "orange")),
        link="evictions Evictions",
    ),
    Number(
        title="Proposed",
        text="Number of evictions that Clearway would carry out if it were not in observe mode. 0: none.",
        queries=((f"sum({fresh(of('clearway_open_evictions', state='proposed'))})", ""),),
        empty=HANGS,
        steps=((None, "red"), (0, "green"), (1, "blue")),
        link="evictions Evictions",
    ),
    Number(
        title="Under way",
        text="Number of evictions, drains and moves being carried out, until the preempted jobs run again. 0: none.",
        queries=((f"sum({fresh(of('clearway_open_evictions', state=ACTING))})", ""),),
        empty=HANGS,
        steps=((None, "red"), (0, "green"), (1, "blue")),
        link="evictions Evictions",
    ),
    Number(
        title="Deadlines missed",
        text="Number of evictions in the time range whose urgent job started too late or not at all. 0: none. "
        "Nothing is shown while no daemon answers.",
        # Only while a daemon answers: that none was missed is no good news from a dead one.
        queries=((f"{_MISSED} and on () max({of('up', job='clearway')}) == 1", ""),),
        empty=SILENT,
        decimals=0,
        steps=((None, "red"), (0, "green"), (0.5, "red")),
        link="evictions Evictions",
    ),
)
EVICTIONS: tuple[Panel, ...] = (
    Lines(
        title="Open evictions by state",
        text="Number of evictions, drains and moves that have not ended. Proposed and awaiting_approval: only "
        "planned. 0: none is open.",
        queries=((f"sum by (state) ({of('clearway_open_evictions')})", "{{state}}"),),
        empty=SILENT,
        stacked=True,
        link="evictions Evictions",
    ),
    Lines(
        title="Ended evictions by result",
        text="Number of evictions, drains and moves that ended in each interval. 0: none ended.",
        queries=((counted("clearway_evictions_total", by="result"), "{{result}}"),),
        empty=SILENT,
        bars=True,
        stacked=True,
        link="evictions Evictions",
    ),
    Lines(
        title="Time to start",
        text="Seconds from the plan of an eviction to the start of its urgent job. 0: it started at once.",
        queries=(
            (quantile(0.5, "clearway_time_to_start_seconds"), "median"),
            (quantile(0.95, "clearway_time_to_start_seconds"), "95 %"),
        ),
        empty=NOTHING,
        unit="s",
    ),
    Lines(
        title="Margin to the deadline",
        text="Seconds from the start of an urgent job to its deadline. 0: it started at its deadline; below 0: too "
        "late.",
        queries=(
            (quantile(0.05, "clearway_start_margin_seconds"), "worst 5 %"),
            (quantile(0.5, "clearway_start_margin_seconds"), "median"),
        ),
        empty=NOTHING,
        unit="s",
    ),
    Lines(
        title="Urgent jobs started",
        text="Number of urgent jobs that started in each interval on nodes that Clearway freed, in time or late. 0: "
        "none.",
        queries=((counted("clearway_preemptor_starts_total", by="result"), "{{result}}"),),
        empty=SILENT,
        bars=True,
        stacked=True,
    ),
    Lines(
        title="Preempted jobs by state",
        text="Number of jobs that are leaving or have left, until they run again, by state. 0: none.",
        queries=((f"sum by (state) ({of('clearway_open_preemptions')})", "{{state}}"),),
        empty=SILENT,
        stacked=True,
        link="now Now",
    ),
)
_HIDDEN = (("Time", ""),)
WHO: tuple[Panel, ...] = (
    Rows(
        title="Who causes preemptions",
        text="Number of jobs that had to leave in the time range, and node-hours of their work that were lost, by "
        "rule, account and partition of the job that they left for. Accounts are named where "
        "access.account_metrics = true. 0, or no row: no job had to leave.",
        queries=(
            (total("clearway_caused_preemptions_total", "rule, account, partition"), ""),
            (f"{total('clearway_caused_lost_work_node_seconds_total', 'rule, account, partition')} / 3600", ""),
        ),
        empty=NOTHING,
        names=(
            *_HIDDEN,
            ("rule", "rule"),
            ("account", "account"),
            ("partition", "partition"),
            ("Value #A", "jobs that had to leave"),
            ("Value #B", "node-hours lost"),
        ),
    ),
    Rows(
        title="Who pays for them",
        text="Number of jobs that had to leave in the time range, and node-hours of their work that were lost, by "
        "their own account and partition. Accounts are named where access.account_metrics = true. 0, or no row: "
        "no job had to leave.",
        queries=(
            (total("clearway_suffered_preemptions_total", "account, partition"), ""),
            (f"{total('clearway_suffered_lost_work_node_seconds_total', 'account, partition')} / 3600", ""),
        ),
        empty=NOTHING,
        names=(
            *_HIDDEN,
            ("account", "account"),
            ("partition", "partition"),
            ("Value #A", "jobs that had to leave"),
            ("Value #B", "node-hours lost"),
        ),
    ),
    Lines(
        title="Jobs that had to leave, by rule",
        text="Number of jobs that had to leave in each interval, by the rule that made another job urgent; drain, "
        "compaction and promotion are no rules. 0, or no bar: none.",
        queries=((total("clearway_caused_preemptions_total", "rule", "$__rate_interval"), "{{rule}}"),),
        empty=NOTHING,
        bars=True,
        stacked=True,
    ),
    Lines(
        title="Node-hours lost, by the account that pays",
        text="Node-hours of work lost in each interval, by account of the jobs that had to leave: the ten largest. "
        "0, or no bar: nothing was lost.",
        queries=(
            (
                "topk(10, "
                + total("clearway_suffered_lost_work_node_seconds_total", "account", "$__rate_interval")
                + ") / 3600",
                "{{account}}",
            ),
        ),
        empty=NOTHING,
        bars=True,
        stacked=True,
    ),
)
