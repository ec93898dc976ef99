"""How long the API takes to answer while 100 connections idle and 50 callers ask for what-if plans without a break.

Run with ``pytest tests/benchmarks/bench_rest.py -s``. The daemon (a process of its own) has a simulated cluster of
2,000 nodes with 1,000 running and 1,000 pending jobs and a cycle ten times a second; the callers are one more process.
Each path is asked in turn on a connection of its own; the longest of all answers counts. The limit holds for a quiet
machine: where the yardstick takes longer than there, an answer may take longer by as much.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import defaultdict
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from clearway.api.logins import digest_of
from tests.benchmarks.yardstick import Pace
from tests.integration.daemon import AUTHORIZED, TOKEN, wait_for
from tests.integration.test_crowds import a_crowd

LIMIT_MS = 500.0
IDLE = 100
CALLERS = 50
ROUNDS = 20
PATIENT_S = 120.0

# Each caller asks on one connection, over and over; its own end prints how often each status came.
_CALLERS = f"""
import collections, sys, threading, httpx
seen, end, begun = collections.Counter(), threading.Event(), threading.Barrier({CALLERS} + 1)
def ask():
    with httpx.Client(base_url=sys.argv[1], timeout={PATIENT_S}) as client:
        client.get("/health")
        begun.wait()
        while not end.is_set():
            seen[client.post("/api/v1/what-if", json={{"nodes": 64, "max_delay": "5m"}}).status_code] += 1
callers = [threading.Thread(target=ask) for _ in range({CALLERS})]
for each in callers: each.start()
begun.wait()
print("asking", flush=True)
sys.stdin.read()
end.set()
for each in callers: each.join()
print(dict(seen))
"""


def awaiting_approval(address: str) -> Any:
    try:
        return httpx.get(f"{address}/api/v1/evictions", timeout=PATIENT_S).json()["items"]
    except httpx.ConnectError:  # its address is told before it listens
        return None


def test_health_metrics_and_operators_are_answered_beside_a_crowd(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ann operator never {digest_of(TOKEN)}\n")
    tokens.chmod(0o600)
    daemon = [sys.executable, "-m", "tests.simulation.load", str(tmp_path / "store.sqlite"), str(tokens)]
    with ExitStack() as ended:
        serving = ended.enter_context(subprocess.Popen(daemon, stdout=subprocess.PIPE, text=True))
        ended.callback(serving.terminate)
        assert serving.stdout is not None
        address = serving.stdout.readline().strip()
        planned = wait_for(partial(awaiting_approval, address))
        approve = f"/api/v1/evictions/{planned[0]['eviction_id']}/approve"
        ended.enter_context(a_crowd(address, IDLE))
        callers = ended.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", _CALLERS, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        )
        assert callers.stdout is not None
        assert callers.stdin is not None
        callers.stdout.readline()
        taken: dict[str, list[float]] = defaultdict(list)
        pace = Pace()
        for _ in range(ROUNDS):
            for path in ("/liveness", "/metrics", approve):
                begin = time.perf_counter()
                answer = (
                    httpx.post(address + path, headers=AUTHORIZED, timeout=PATIENT_S)
                    if path is approve
                    else httpx.get(address + path, timeout=PATIENT_S)
                )
                taken[path].append((time.perf_counter() - begin) * 1_000)
                assert answer.is_success, answer.text
            pace.take()
        callers.stdin.close()
        print("what-if answers by status:", callers.stdout.read().strip())
    table = Table(title=f"Answers, ms, {IDLE} idle connections and {CALLERS} callers of what-if (x{pace.slower:.1f})")
    for heading in ("path", "median", "longest"):
        table.add_column(heading)
    for path, found in taken.items():
        table.add_row(path, f"{sorted(found)[len(found) // 2]:.0f}", f"{max(found):.0f}")
    Console(width=110).print(table)
    late = {path: max(found) for path, found in taken.items() if max(found) > LIMIT_MS * pace.slower}
    assert not late
