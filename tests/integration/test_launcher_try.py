"""``clearway-run --try``: the program is run, saved, killed and restarted; what it says, and what it leaves behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from tests.integration.bench import Bench, poll, processes_with
from tests.integration.test_launcher_generations import COUNTS, FAKE
from tests.real_dmtcp import dmtcp_folder

SAVES_ITSELF = """
    n=$(cat "$FOLDER/ck" 2>/dev/null || echo 0)
    trap 'echo $n > "$FOLDER/ck.new"; mv "$FOLDER/ck.new" "$FOLDER/ck"' USR1
    echo "$n" >> "$FOLDER/starts"
    while :; do n=$((n + 1)); sleep 0.05; done
"""


@pytest.fixture(autouse=True)
def _drivers(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    drivers = bench.folder / "drivers"
    drivers.mkdir()
    shutil.copy(FAKE, drivers / "fake.sh")
    shutil.copy(Path(__file__).parents[2] / "plugins/clearway_checkpoint/application.sh", drivers)
    monkeypatch.setenv("CLEARWAY_CHECKPOINTERS", str(drivers))
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)


def tried(bench: Bench, *options: str, program: str = COUNTS) -> tuple[int, str]:
    """Exit status, and what it says on one line. Nothing may be left, and nothing told to Clearway."""
    before = bench.comment
    step = bench.start("--try", *options, program=program)
    _, said = step.communicate(timeout=240)
    assert bench.comment == before
    assert not list(bench.folder.glob("clearway-run.*"))
    assert not list(bench.folder.rglob(".clearway-try.*"))
    program_of_ours = f"{bench.folder}/program".encode()
    poll(lambda: not any(program_of_ours in read(path / "cmdline") for path in Path("/proc").glob("[0-9]*")))
    assert "setsid" not in said, "a shell tells what was killed"
    return step.returncode, " ".join(said.split())


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def starts(bench: Bench) -> list[int]:
    return [int(line) for line in (bench.folder / "starts").read_text().split()]


def test_a_program_that_can_be_saved(bench: Bench) -> None:
    status, said = tried(bench, "1", "--dir", str(bench.folder), "--checkpointer", "fake")
    assert status == 0, said
    assert "can be saved here, with --checkpointer fake: clearway-run: saved within" in said
    # The program, and the sleep between two of its steps, where it stands in one.
    assert re.search("s: 1 MiB; processes: [12] clearway-run: restored within", said), said
    first, second = starts(bench)
    assert first == 0 < second, "it went on from what was saved"


def test_a_program_that_saves_itself(bench: Bench) -> None:
    status, said = tried(bench, "1", "--checkpoint-file", f"{bench.folder}/ck", program=SAVES_ITSELF)
    assert status == 0, said
    assert "with --checkpointer application" in said
    assert "its own output says" in said
    first, second = starts(bench)
    assert first == 0 < second


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("unfit", "this program cannot be saved here: the program is static"),
        ("truncated", "it cannot be saved here: not whole"),
        ("killed", "it cannot be saved here: no answer to checkpoint within 4 s"),
        ("hang", "it cannot be saved here: no answer to checkpoint within 4 s"),
    ],
)
def test_what_goes_wrong_is_found_out(bench: Bench, fault: str, told: str) -> None:
    (bench.folder / "fault").write_text(fault)
    status, said = tried(bench, "1", "--grace", "3", "--dir", str(bench.folder), "--checkpointer", "fake")
    assert (status, told in said) == (1, True), said


def test_a_restart_that_fails_is_found_out(bench: Bench) -> None:
    (bench.folder / "refuse-000001").touch()
    status, said = tried(bench, "1", "--dir", str(bench.folder), "--checkpointer", "fake")
    assert status == 1
    assert "was saved within" in said
    assert "a log is missing" in said


def test_a_program_that_ends_too_soon(bench: Bench) -> None:
    status, said = tried(bench, "9", "--checkpoint-file", f"{bench.folder}/ck", program="exit 3")
    assert status == 1
    assert "s, with status 3: give it more to do, or --try fewer seconds" in said


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--checkpointer", "none"), "--try needs a checkpointer other than none"),
        (("5s", "--checkpointer", "fake"), "--try must be whole seconds, not 5s"),
        (("--checkpointer", "fake", "--dir", "/nonexistent"), "no temporary folder in /nonexistent"),
    ],
)
def test_bad_options(bench: Bench, options: tuple[str, ...], told: str) -> None:
    status, said = tried(bench, *options)
    assert (status, said.endswith(told)) == (64, True), said


def test_what_has_a_session_of_its_own_is_ended_too(bench: Bench) -> None:
    """A killed program's children are nobody's: they were looked for too late, and stayed stopped for ever."""
    program = f'[ "${{1:-}}" != child ] || exec sleep 300.75\nsetsid "$0" child &\n{SAVES_ITSELF}'
    status, said = tried(bench, "1", "--checkpoint-file", f"{bench.folder}/ck", program=program)
    assert status == 0, said
    poll(lambda: not processes_with(f"FOLDER={bench.folder}".encode()))


def test_it_can_be_ended(bench: Bench) -> None:
    step = bench.start("--try", "300", "--checkpoint-file", f"{bench.folder}/ck", program=SAVES_ITSELF)
    poll((bench.folder / "starts").exists)
    os.kill(bench.launcher_pid(), signal.SIGTERM)
    _, said = step.communicate(timeout=60)
    assert (step.returncode, "ended by a signal" in said) == (1, True), said
    assert not list(bench.folder.glob("clearway-run.*"))


def test_under_the_real_dmtcp(bench: Bench) -> None:
    dmtcp_folder()
    shutil.copy(Path(__file__).parents[2] / "plugins/clearway_checkpoint/dmtcp.sh", bench.folder / "drivers")
    program = "while :; do sleep 1; done"
    status, said = tried(bench, "2", "--dir", str(bench.folder), "--checkpointer", "dmtcp", program=program)
    assert status == 0, said
    assert "it ran for 2 s more, then it was ended here" in said
