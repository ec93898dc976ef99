"""How long the page takes to show 10,000 nodes with 2,000 jobs that leave, and to show a change of them.

Run with ``pytest tests/benchmarks/bench_page.py -s``. The page is the daemon's own; in the browser the answer of
``/api/v1/now`` is replaced by a large one, which every change turns into another. The limits hold for a quiet machine:
where the yardstick takes longer than there, the page may take longer by as much.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.benchmarks.yardstick import Pace
from tests.integration.daemon import PATIENT_S, running_here, wait_for
from tests.integration.web.browser import visiting
from tests.integration.web.conftest import browser

__all__ = ["browser"]

NODES, JOBS, ROUNDS = 10_000, 2_000, 5
SHOWN_MS, CHANGED_MS = 1_000.0, 100.0

_REPLACED = """
const answers = %s, asked = window.fetch;
let n = 0;
window.fetch = (path, ...more) => String(path).endsWith("v1/now")
    ? Promise.resolve(new Response(answers[n++ %% 2], {headers: {"Content-Type": "application/json"}}))
    : asked(path, ...more);
"""
_SHOWN = """() => new Promise((done) => {
    const look = () => document.querySelector(".legend") && document.querySelector("canvas").height > 200
        ? requestAnimationFrame(() => done(performance.now())) : requestAnimationFrame(look);
    look();
})"""
_CHANGED = """async () => {
    const {live} = await import(new URL("static/ui.js", document.baseURI).href);
    const before = document.querySelector(".legend").innerText, began = performance.now();
    live.dispatchEvent(new Event("changed"));
    return await new Promise((done) => {
        const look = () => document.querySelector(".legend").innerText !== before
            ? requestAnimationFrame(() => done(performance.now() - began)) : setTimeout(look, 1);
        look();
    });
}"""


def large(now: dict[str, Any]) -> Iterator[str]:
    operation = now["operations"][0]
    job = operation["jobs"][0]
    jobs = [job | {"job_id": str(n), "display_id": str(n), "name": f"job-{n}"} for n in range(JOBS)]
    for free in (1_000, 1_500):
        states = "f" * free + "b" * (NODES - free)
        uses = "-" * free + "l" * JOBS + "-" * (NODES - free - JOBS)
        nodes = {"names": f"c[00001-{NODES:05}]", "states": states, "uses": uses}
        yield json.dumps(now | {"nodes": nodes, "operations": [operation | {"state": "preempting", "jobs": jobs}]})


def test_a_large_cluster_is_shown_at_once(browser: Any, tmp_path: Path) -> None:
    pytest.importorskip("playwright")
    with running_here(tmp_path, "approve") as (simulated, address):
        simulated.submit_urgent(2)
        url = f"{address}/api/v1/now"
        wait_for(lambda: httpx.get(url, timeout=PATIENT_S).json().get("operations"))
        answers = json.dumps(list(large(httpx.get(url, timeout=PATIENT_S).json())))
        shown, changed, pace = [], [], Pace()
        for _ in range(ROUNDS):
            with visiting(browser, address) as visitor:
                visitor.context.add_init_script(_REPLACED % answers)
                visitor.page.goto(f"{address}/#/now")
                shown.append(visitor.page.evaluate(_SHOWN))
                changed += [visitor.page.evaluate(_CHANGED) for _ in range(ROUNDS)]
                assert visitor.complaints == []
            pace.take()
    middle = sorted(changed)[len(changed) // 2]
    told = f"slowest {max(shown):.0f} ms; a change {middle:.0f} ms, slowest {max(changed):.0f} ms"
    print(f"{NODES} nodes, {JOBS} jobs: shown within {min(shown):.0f} ms, {told} (x{pace.slower:.1f})")
    assert max(shown) < SHOWN_MS * pace.slower
    assert middle < CHANGED_MS * pace.slower
