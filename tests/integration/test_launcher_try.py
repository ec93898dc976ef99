"""``clearway-run --try``: a run undisturbed, and one saved, ended and restarted; its verdict, and what it leaves."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.integration.bench import SHELLS, Bench, poll, processes_with
from tests.integration.test_launcher_generations import COUNTS, FAKE
from tests.real_dmtcp import dmtcp_folder

# Each takes ten seconds: a short run tries one shell.
TRIED = SHELLS if os.environ.get("CLEARWAY_FULL") else SHELLS[:1]
pytestmark = pytest.mark.parametrize("bench", TRIED, indirect=True)

# What this stand-in of a program remembers is in $FOLDER/count, outside of the folder that it works in.
ENDS = """
    set -- $(cat "$FOLDER/count" 2>/dev/null || echo 0 0)
    n=$1 sum=$2
    BEGINS
    while [ $n -lt 70 ]; do
        n=$((n + 1)) sum=$((sum + n)); echo "$n $sum" >"$FOLDER/count.new"; mv "$FOLDER/count.new" "$FOLDER/count"
        sleep 0.05
    done
    echo $sum >result
    rm -f "$FOLDER/count"
    ENDS
    echo "sum $sum"
"""
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
    monkeypatch.setenv("CLEARWAY_TRY_LIMIT_S", "30")
    (bench.folder / "work").mkdir()


def ends(begins: str = ":", at_its_end: str = ":") -> str:
    return ENDS.replace("BEGINS", begins).replace("ENDS", at_its_end)


def tried(bench: Bench, *options: str, program: str = COUNTS) -> tuple[int, str, str]:
    """Exit status, what it says on one line, and the program's output. Nothing may be left, nor told to Clearway."""
    before = bench.comment
    step = bench.start("--try", *options, program=program, stdout=subprocess.PIPE, cwd=bench.folder / "work")
    printed, said = step.communicate(timeout=240)
    assert bench.comment == before
    assert not list(bench.folder.glob("clearway-run.*"))
    assert not list(bench.folder.rglob(".clearway-try.*"))
    program_of_ours = f"{bench.folder}/program".encode()
    poll(lambda: not any(program_of_ours in read(path / "cmdline") for path in Path("/proc").glob("[0-9]*")))
    assert "setsid" not in said, "a shell tells what was killed"
    return step.returncode, " ".join(said.split()), printed


def fake(bench: Bench, program: str, fault: str = "") -> tuple[int, str, str]:
    (bench.folder / "fault").write_text(fault)
    return tried(bench, "1", "--dir", str(bench.folder), "--checkpointer", "fake", program=program)


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def starts(bench: Bench) -> list[int]:
    return [int(line) for line in (bench.folder / "starts").read_text().split()]


# -- yes -------------------------------------------------------------------------------------------------------


def test_a_program_whose_result_is_that_of_an_undisturbed_run(bench: Bench) -> None:
    """It appends to a file, and reads another by a path that leads out of its folder."""
    work = bench.folder / "work"
    (bench.folder / "beside").write_text("beside\n")
    (work / "log").write_text("old\n")
    (work / "empty folder").mkdir()
    status, said, printed = fake(
        bench, ends(at_its_end='echo ran >>log; cat log ../beside; ls -d */; pwd >"$FOLDER/where"')
    )
    assert status == 0, said
    assert "clearway-run: yes: this program can be saved here, with --checkpointer fake: its exit status (0)" in said
    assert "output and files (2 made or changed) are those of an undisturbed run clearway-run: saved within" in said
    # The program, and the sleep between two of its steps, where it stands in one.
    assert re.search("s: 1 MiB; processes: [12]; restored within", said), said
    assert printed == "old\nran\nbeside\nempty folder/\nsum 2485\n"
    assert sorted(path.name for path in work.iterdir()) == ["empty folder", "log"], "it ran in a copy"
    assert (work / "log").read_text() == "old\n"
    assert (bench.folder / "where").read_text().startswith(f"{bench.folder}/.clearway-try.")


def test_a_program_that_fails_in_the_same_way(bench: Bench) -> None:
    status, said, _ = fake(bench, ends(at_its_end="exit 9"))
    assert (status, "its exit status (9)" in said) == (0, True), said


def test_a_folder_that_is_large_is_not_copied(bench: Bench) -> None:
    work = bench.folder / "work"
    with (work / "large").open("wb") as file:
        file.truncate(65 << 20)
    status, said, _ = fake(bench, ends())
    assert status == 0, said
    assert "it has more than 10000 files or 64 MiB" in said
    assert "output and files (not compared) are those" in said
    assert (work / "result").read_text() == "2485\n"


# -- no --------------------------------------------------------------------------------------------------------


@pytest.mark.fault("A trial found that a program can be saved which was restored to another result.", found_by="trial")
def test_a_restored_program_with_another_result(bench: Bench) -> None:
    status, said, printed = fake(bench, ends(), "amiss")
    assert status == 1, said
    assert "no: it was saved and came back, but then this is not as in two undisturbed runs: its output, result" in said
    assert f"clearway-run: < sum 2485 clearway-run: > {printed.strip()}" in said


@pytest.mark.fault(
    "A trial ended the program by SIGKILL alone: it did not see its traps remove its files.", found_by="trial"
)
def test_a_program_whose_trap_removes_its_files(bench: Bench) -> None:
    """The stand-in does not keep what comes after its image from being done, so SIGTERM is heard."""
    begins = '[ $n -gt 0 ] || echo mine >mine\ntrap "rm -f mine" EXIT\ntrap "exit 1" TERM'
    status, said, _ = fake(bench, ends(begins, "cat mine || exit 3"))
    assert status == 1, said
    assert "not as in two undisturbed runs: its exit status, its output" in said
    assert "exit status 3 instead of 0" in said


def test_what_differs_each_time_hides_nothing(bench: Bench) -> None:
    status, said, _ = fake(bench, ends(at_its_end="date +%N >when"), "amiss")
    assert status == 1, said
    assert "once more, because this differs: its output, result, when" in said
    assert "not as in two undisturbed runs: its output, result clearway-run:" in said


def test_a_program_that_stands_still_after_its_restart(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARWAY_TRY_LIMIT_S", "4")
    program = COUNTS.replace("while", 'case $n in 0) rm -f "$FOLDER/again" ;; *) exec sleep 300.75 ;; esac\nwhile', 1)
    # What the undisturbed run has counted would be there when the next one begins.
    program = program.replace("n=$(cat", '[ -e "$FOLDER/image" ] || rm -f "$FOLDER/count"\nn=$(cat', 1)
    driver = bench.folder / "drivers" / "fake.sh"
    driver.write_text(driver.read_text().replace("restart)", 'restart)\ntouch "$FOLDER/image"', 1))
    status, said, _ = fake(bench, program)
    assert (status, "no: it has stood still for 4 s after its restart, where undisturbed it computes" in said) == (
        1,
        True,
    )


def test_a_program_that_ends_only_under_the_checkpointer(bench: Bench) -> None:
    status, said, _ = fake(bench, ends(), "dies")
    assert status == 1, said
    assert "no: with the checkpointer it ended before it was saved, and this is not as in two undisturbed runs" in said
    assert "exit status 7 instead of 0" in said


def test_a_program_that_the_checkpointer_ends(bench: Bench) -> None:
    """The program has its own word for "stop", which the stand-in gives when it is to save it."""
    program = ends().replace("while [ $n -lt 70 ]", '[ $n -gt 0 ] || rm -f "$FOLDER/stop"\nwhile [ $n -lt 70 ]')
    program = program.replace("sleep 0.05", 'sleep 0.05; [ ! -e "$FOLDER/stop" ] || { rm "$FOLDER/count"; exit 9; }')
    status, said, _ = fake(bench, program, "fatal")
    assert status == 1, said
    assert "no: it ended when it was to be saved (" in said
    assert "exit status 9 instead of 0" in said


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("unfit", "no: this program cannot be saved here: the program is static"),
        ("unable", "no: it cannot be saved here: it has a device open"),
        ("truncated", "no: it cannot be saved here: not whole"),
        ("killed", "no: it cannot be saved here: no answer to checkpoint within 4 s"),
        ("hang", "no: it cannot be saved here: no answer to checkpoint within 4 s"),
    ],
)
def test_what_goes_wrong_is_found_out(bench: Bench, monkeypatch: pytest.MonkeyPatch, fault: str, told: str) -> None:
    monkeypatch.setenv("CLEARWAY_TRY_LIMIT_S", "3")
    (bench.folder / "fault").write_text(fault)
    status, said, _ = tried(bench, "1", "--grace", "3", "--dir", str(bench.folder), "--checkpointer", "fake")
    assert (status, told in said) == (1, True), said


def test_a_restart_that_fails_is_found_out(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARWAY_TRY_LIMIT_S", "3")
    (bench.folder / "refuse-000001").touch()
    status, said, _ = fake(bench, COUNTS)
    assert status == 1
    assert "no: it was saved, but did not come back: a log is missing" in said


# -- not known -------------------------------------------------------------------------------------------------


def test_a_program_that_may_not_always_be_saved(bench: Bench) -> None:
    status, said, _ = fake(bench, ends(), "crowded")
    assert (status, "not known: it was saved, and ended as undisturbed, but" in said) == (2, True), said
    assert "it starts many programs" in said


def test_a_program_whose_undisturbed_runs_differ(bench: Bench) -> None:
    status, said, _ = fake(bench, ends(at_its_end="date +%N >when"))
    assert status == 2, said
    assert "not known: this differs between two undisturbed runs, too: when" in said


def test_the_order_of_lines_may_be_anothers_doing(bench: Bench) -> None:
    """Several processes may write a file: they are in step until they are saved."""
    ending = "printf 'a\\nb\\n' >order; [ $began = 0 ] || printf 'b\\na\\n' >order"
    status, said, _ = fake(bench, ends("began=$n", ending))
    assert status == 2, said
    assert "not known: it was saved and came back, but then the lines of this are in another order" in said
    assert "two undisturbed runs: order" in said


@pytest.mark.parametrize(
    ("program", "told"),
    [(COUNTS, "computes"), ('echo 1 >"$FOLDER/count"; exec sleep 300.75', "waits, as it does undisturbed")],
)
def test_a_program_without_an_end(bench: Bench, monkeypatch: pytest.MonkeyPatch, program: str, told: str) -> None:
    monkeypatch.setenv("CLEARWAY_TRY_LIMIT_S", "4")
    status, said, _ = fake(bench, program)
    assert status == 2, said
    assert f"not known: it was saved, came back and {told}. It does not end within 4 s, so its result was not" in said
    assert re.search("saved within .* s: 1 MiB; processes: [12]; restored within", said), said


def test_a_program_that_ends_too_soon(bench: Bench) -> None:
    status, said, _ = tried(bench, "9", "--checkpoint-file", f"{bench.folder}/ck", program="exit 3")
    assert status == 2
    assert "not known: the program ended after" in said
    assert "s, with status 3: give it more to do, or --try fewer seconds" in said


# -- programs that save themselves -----------------------------------------------------------------------------


def test_a_program_that_saves_itself(bench: Bench) -> None:
    program = SAVES_ITSELF.replace("while :", "while [ $n -lt 70 ]").replace("$FOLDER/ck", "ck")
    status, said, _ = tried(bench, "1", "--checkpoint-file", "ck", program=f"{program}\necho 70")
    assert status == 0, said
    assert "with --checkpointer application" in said
    assert "its own output says" in said
    undisturbed, first, second = starts(bench)
    assert undisturbed == first == 0 < second


def test_a_program_that_tells_of_its_restart(bench: Bench) -> None:
    program = f"{SAVES_ITSELF.replace('while :', 'echo from $n; while [ $n -lt 70 ]')}\n"
    status, said, printed = tried(bench, "1", "--checkpoint-file", f"{bench.folder}/ck", program=program)
    assert status == 2, said
    assert "it saved itself and ended with status 0, as undisturbed; look yourself at what differs: its output" in said
    assert printed == f"from 0\nfrom {starts(bench)[2]}\n"


@pytest.mark.parametrize("own", ["", "17"])
def test_its_own_checkpoint_is_put_back_for_each_run(bench: Bench, own: str) -> None:
    """Where it is by an absolute path; here the undisturbed run leaves one as well."""
    checkpoint = bench.folder / "work" / "ck"
    if own:
        checkpoint.write_text(own)
    program = SAVES_ITSELF.replace("$FOLDER/ck", "ck").replace("while :", "while [ $n -lt 70 ]") + "\necho 70 >ck\n"
    status, said, _ = tried(bench, "1", "--checkpoint-file", str(checkpoint), program=program)
    assert status == 0, said
    assert "its files are not compared: --checkpoint-file is in it" in said
    undisturbed, first, second = starts(bench)
    assert undisturbed == first == int(own or 0) < second
    assert checkpoint.read_text() == "70\n"


# -- the trial itself ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--checkpointer", "none"), "--try needs a checkpointer other than none"),
        (("5s", "--checkpointer", "fake"), "--try must be whole seconds, not 5s"),
        (("--checkpointer", "fake", "--dir", "/nonexistent"), "no temporary folder in /nonexistent"),
    ],
)
def test_bad_options(bench: Bench, options: tuple[str, ...], told: str) -> None:
    status, said, _ = tried(bench, *options)
    assert (status, said.endswith(told)) == (64, True), said


def test_what_has_a_session_of_its_own_is_ended_too(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed program's children are nobody's: they were looked for too late, and stayed stopped for ever."""
    monkeypatch.setenv("CLEARWAY_TRY_LIMIT_S", "3")
    program = f'[ "${{1:-}}" != child ] || exec sleep 300.75\nsetsid "$0" child &\n{SAVES_ITSELF}'
    status, said, _ = tried(bench, "1", "--checkpoint-file", f"{bench.folder}/ck", program=program)
    assert status == 2, said
    poll(lambda: not processes_with(f"FOLDER={bench.folder}".encode()))


def test_it_can_be_ended(bench: Bench) -> None:
    step = bench.start(
        "--try", "300", "--checkpoint-file", f"{bench.folder}/ck", program=SAVES_ITSELF, cwd=bench.folder / "work"
    )
    poll((bench.folder / "starts").exists)
    os.kill(bench.launcher_pid(), signal.SIGTERM)
    _, said = step.communicate(timeout=60)
    assert (step.returncode, "not known: ended by a signal" in said) == (2, True), said
    assert not list(bench.folder.glob("clearway-run.*"))
    assert not list(bench.folder.rglob(".clearway-try.*"))


def test_under_the_real_dmtcp(bench: Bench) -> None:
    dmtcp_folder()
    for name in ("dmtcp.sh", "dmtcp_hold.c"):
        shutil.copy(Path(__file__).parents[2] / "plugins/clearway_checkpoint" / name, bench.folder / "drivers")
    program = "for n in 1 2 3 4 5 6 7; do echo $n >>log; sleep 1; done; cat log"
    status, said, _ = tried(bench, "2", "--dir", str(bench.folder), "--checkpointer", "dmtcp", program=program)
    assert status == 0, said
    assert "output and files (1 made or changed) are those of an undisturbed run" in said
