"""The daemon's end of the pyslurm worker, with small workers that misbehave."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clearway.model.errors import LeaseLostError, SlurmRefusedError, SlurmTimeoutError, SlurmUnavailableError
from clearway.slurm.pyslurm import MAX_WAIT_S, WorkerProcess
from tests.unit.slurm.fences import TestFence

ANSWERS = """
    import json, os, struct, sys, time

    def read():
        head = sys.stdin.buffer.read(4)
        if len(head) < 4:
            sys.exit(0)
        return json.loads(sys.stdin.buffer.read(struct.unpack(">I", head)[0]))

    def reply(value):
        data = json.dumps(value).encode()
        sys.stdout.buffer.write(struct.pack(">I", len(data)) + data)
        sys.stdout.buffer.flush()

    while True:
        request = read()
        call, args = request["call"], request["args"]
        if call == "hello":
            reply({"ok": {"pyslurm": "0"}})
        elif call == "echo":
            reply({"ok": args})
        elif call == "fail":
            reply({"error": args})
        elif call == "crash":
            os.abort()
        elif call == "hang":
            time.sleep(60)
        elif call == "noise":
            sys.stdout.buffer.write(b"\\0\\0\\0\\3abc")
            sys.stdout.buffer.flush()
        elif call == "half":
            sys.stdout.buffer.write(b"\\0\\0\\0\\x7f{")
            sys.stdout.buffer.flush()
            sys.exit(3)
        elif call == "endless":
            sys.stdout.buffer.write(b"\\xff\\xff\\xff\\xff")
            sys.stdout.buffer.flush()
"""


class StandingClock:
    """Moved by the test alone: however long the machine takes, no wait is over before."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Callable[..., WorkerProcess]]:
    made: list[WorkerProcess] = []

    def make(
        source: str = ANSWERS, *, timeout_s: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> WorkerProcess:
        script = tmp_path / f"worker{len(made)}.py"
        script.write_text(textwrap.dedent(source))
        command = (sys.executable, str(script))
        made.append(WorkerProcess(slurm_conf=None, timeout_s=timeout_s, command=command, monotonic=clock))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_one_process_answers_many_calls(worker: Callable[..., WorkerProcess]) -> None:
    process = worker()

    assert process.call("echo", text="ä\n", number=7) == {"text": "ä\n", "number": 7}
    first = process.pid
    assert process.call("echo") == {}
    assert process.pid == first
    assert process.restarts == 0
    assert process.versions == {"pyslurm": "0"}


def test_an_answer_of_many_megabytes(worker: Callable[..., WorkerProcess]) -> None:
    text = "x" * 5_000_000
    assert worker().call("echo", text=text) == {"text": text}


@pytest.mark.parametrize(
    ("call", "why"),
    [("crash", "signal 6"), ("half", "exit status 3"), ("noise", "ended in noise"), ("endless", "ended in endless")],
)
def test_a_broken_worker_is_replaced(worker: Callable[..., WorkerProcess], call: str, why: str) -> None:
    process = worker()
    process.call("echo")

    with pytest.raises(SlurmUnavailableError, match=why):
        process.call(call)

    assert process.pid is None
    assert process.call("echo", again=True) == {"again": True}
    assert process.restarts == 1


def test_a_change_takes_no_longer_than_the_fence_allows(worker: Callable[..., WorkerProcess]) -> None:
    process = worker()
    process.call("echo")
    process.fence = TestFence(0.2)
    with pytest.raises(SlurmTimeoutError, match=r"hang did not answer within 0\.2 s"):
        process.change("hang")
    process.fence = TestFence(60.0)
    process.change("echo")
    process.fence = TestFence(None)
    with pytest.raises(LeaseLostError):
        process.change("echo")


def test_a_call_whose_lease_is_lost_ends_and_its_answer_is_no_other_calls(worker: Callable[..., WorkerProcess]) -> None:
    process = worker()
    process.call("echo")
    process.fence = TestFence(60.0, keeps=1)
    with pytest.raises(LeaseLostError):
        process.call("hang")
    assert process.pid is None
    process.fence = TestFence(60.0)
    assert process.call("echo", again=True) == {"again": True}


def test_a_hanging_call_ends_in_time(worker: Callable[..., WorkerProcess]) -> None:
    process = worker()
    process.call("echo")
    process._timeout_s = 1.0  # of this call alone: to start may take a busy machine longer

    with pytest.raises(SlurmTimeoutError, match="hang did not answer within 1 s"):
        process.call("hang")

    assert process.pid is None
    process._timeout_s = 60.0
    assert process.call("echo") == {}


def test_failures_in_a_row_wait_longer_and_longer(worker: Callable[..., WorkerProcess]) -> None:
    clock = StandingClock()
    process = worker("raise SystemExit(7)", clock=clock)
    waits = []
    for _ in range(9):
        with pytest.raises(SlurmUnavailableError, match="exit status 7"):
            process.call("echo")
        waits.append(process._not_before - clock())
        clock.now_s = process._not_before

    assert waits == [0, 1, 2, 4, 8, 16, 32, 60, MAX_WAIT_S]
    assert process.restarts == 8


def test_within_the_wait_a_call_fails_at_once_and_says_why(worker: Callable[..., WorkerProcess]) -> None:
    process = worker("raise SystemExit(7)", clock=StandingClock())
    for _ in range(4):
        with pytest.raises(SlurmUnavailableError, match="exit status 7"):
            process.call("echo")

    with pytest.raises(SlurmUnavailableError, match=r"exit status 7\); next try in \d s"):
        process.call("echo")


def test_success_forgets_earlier_failures(worker: Callable[..., WorkerProcess]) -> None:
    process = worker()
    for _ in range(3):
        with pytest.raises(SlurmUnavailableError):
            process.call("crash")
        assert process.call("echo") == {}
    assert process.restarts == 3


@pytest.mark.parametrize(
    ("errno", "kind"),
    [
        (2017, SlurmRefusedError),
        (2002, SlurmRefusedError),
        (-1, SlurmRefusedError),
        (1800, SlurmUnavailableError),
        (2027, SlurmUnavailableError),
        (6000, SlurmUnavailableError),
        (111, SlurmUnavailableError),
        (5004, SlurmTimeoutError),
    ],
)
def test_slurms_numbers_become_typed_errors(
    worker: Callable[..., WorkerProcess], errno: int, kind: type[Exception]
) -> None:
    process = worker()

    with pytest.raises(kind, match="pyslurm: fail: words") as caught:
        process.call("fail", kind="slurm", errno=errno, text="words")

    assert type(caught.value) is kind or kind is SlurmRefusedError
    assert process.pid is not None  # a no of Slurm is no fault of the worker


def test_a_program_that_does_not_exist() -> None:
    process = WorkerProcess(slurm_conf=None, timeout_s=5, command=("/nonexistent/python",))
    with pytest.raises(SlurmUnavailableError, match="cannot be started"):
        process.call("echo")


def test_without_pyslurm_the_real_worker_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyslurm.py").write_text("raise ImportError('No module named pyslurm')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = WorkerProcess(slurm_conf=None, timeout_s=60)

    with pytest.raises(SlurmUnavailableError, match="pyslurm cannot be imported: No module named pyslurm"):
        process.call("snapshot")

    assert process.pid is None


@pytest.mark.fault(
    "The process of pyslurm took Python modules from the folder that the daemon was started in.", found_by="attack"
)
def test_no_module_is_taken_from_the_folder_that_the_daemon_was_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "struct.py").write_text("raise SystemExit(97)\n")
    monkeypatch.chdir(tmp_path)
    worker = WorkerProcess(slurm_conf=str(tmp_path / "none"), timeout_s=60)
    try:
        with pytest.raises(SlurmUnavailableError) as error:
            worker.call("hello", conf=None)
    finally:
        worker.close()
    assert "97" not in str(error.value)
