#!/usr/bin/env python3
"""Makes clearway.json, the dashboard: ``.venv/bin/python deploy/grafana/make_dashboard.py``.

What is shown stands in panels_urgent.py and panels_health.py, how it becomes Grafana's JSON in building.py. The tests
compare clearway.json with what this makes, check it against Grafana's schema, and ask each query of a real Prometheus,
with the daemon alive and dead.
"""

from __future__ import annotations

import json
from pathlib import Path

import panels_health as health
import panels_urgent as urgent
from building import Mark, made_of, of, total

TARGET = Path(__file__).parent / "clearway.json"
ROWS = (
    ("Is it alive?", urgent.ALIVE),
    ("Urgent jobs", urgent.URGENT),
    ("Evictions", urgent.EVICTIONS),
    ("Who causes preemptions, and who pays", urgent.WHO),
    ("Work lost and saved", health.WORK),
    ("Moves and rolling drains", health.MOVES),
    ("Failures", health.FAILURES),
    ("The daemon itself", health.LOOP),
    ("Learning", health.LEARNING),
)
MARKS = (
    Mark(
        "Evictions end",
        f"sum by (cluster, result) (increase({of('clearway_evictions_total')}[1m])) > 0",
        "Eviction {{result}}",
        "blue",
    ),
    Mark(
        "Jobs have to leave",
        f"{total('clearway_caused_preemptions_total', 'cluster, rule', '1m')} > 0",
        "Jobs had to leave for {{rule}}",
        "orange",
    ),
    # Grafana marks only what is more than 0.
    Mark("Daemon does not answer", f"({of('up', job='clearway')} == bool 0) > 0", "{{instance}} is down", "red"),
    Mark(
        "Daemon starts",
        f"changes({of('process_start_time_seconds', job='clearway')}[2m]) > 0",
        "{{instance}} was started",
        "green",
    ),
)


def text() -> str:
    """The content of clearway.json."""
    return json.dumps(made_of(ROWS, MARKS), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text())
