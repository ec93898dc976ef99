"""The loop, the REST threads and other processes use one database at the same time."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from clearway.model.requests import Answer
from clearway.store.repository import Store
from tests.builders import after, eviction, plan, urgent_job

OTHER_PROCESS = """
import sys
from datetime import UTC, datetime
from clearway.store.repository import Store
store = Store(sys.argv[1])
for number in range(int(sys.argv[2])):
    store.add_request("approve", 1, f"cli-{number}", datetime.now(UTC))
store.close()
"""
THREADS, REQUESTS = 3, 15  # a writer that waits longer than the busy timeout gives up
LIMIT_S = 240.0


def test_requests_come_in_while_the_loop_saves(open_store: Callable[[], Store], database_url: str) -> None:
    store = open_store()
    saved = store.create_eviction(eviction(plan(urgent_job(nodes=10))))
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER_PROCESS, database_url, str(REQUESTS)], stderr=subprocess.PIPE, text=True
    )
    done = threading.Event()

    def ask(thread: int) -> None:
        for number in range(REQUESTS):
            store.add_request("cancel", saved.eviction_id, f"thread-{thread}-{number}", after(number))
            assert store.eviction(saved.eviction_id).eviction_id == saved.eviction_id

    def look() -> int:
        """A reader sees an eviction as one save left it, never half of the next."""
        looks = 0
        while not done.is_set():
            seen = store.eviction(saved.eviction_id)
            assert {each.attempts for each in seen.preemptions} == {int(seen.outcome or 0)}
            looks += 1
        return looks

    handled: list[str] = []
    try:
        with ThreadPoolExecutor(THREADS + 1) as pool:
            looking = pool.submit(look)
            asking = [pool.submit(ask, thread) for thread in range(THREADS)]
            count, end = 0, time.monotonic() + LIMIT_S  # the other process may be slow to start
            while len(handled) < (THREADS + 1) * REQUESTS and time.monotonic() < end:
                count += 1
                step = store.begin_step(saved.eviction_id, None, "attach", after(count))
                moved = tuple(replace(each, attempts=count) for each in saved.preemptions)
                saved = replace(saved, preemptions=moved, outcome=str(count))
                store.save_eviction(saved)
                store.finish_step(step, after(count), "ok")
                for request in store.pending_requests():
                    store.finish_request(request.request_id, after(count), Answer(sentence="ok"))
                    handled.append(request.actor)
            done.set()
            for each in asking:
                each.result(timeout=LIMIT_S)
            assert looking.result(timeout=LIMIT_S) > 0
        _, errors = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, errors
    finally:
        done.set()
        process.kill()
        process.wait()
    assert len(handled) == len(set(handled)) == (THREADS + 1) * REQUESTS
    assert open_store().eviction(saved.eviction_id) == saved


def test_a_second_store_of_a_process_takes_no_lock_from_the_first(tmp_path: Path) -> None:
    """POSIX drops a process's locks on a file when it closes any descriptor of it.

    Without them another process takes itself for the last one, and removes the log that this one writes to.
    """
    file = tmp_path / "clearway.sqlite"
    first = Store(f"sqlite:///{file}")
    first.create_eviction(eviction())
    second = Store(f"sqlite:///{file}")
    command = [sys.executable, "-c", OTHER_PROCESS, f"sqlite:///{file}", "1"]
    subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_S)
    assert file.with_name(file.name + "-wal").exists()
    assert len(first.pending_requests()) == len(second.pending_requests()) == 1
    first.close()
    second.close()
