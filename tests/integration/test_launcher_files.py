"""What counts as a checkpoint of a program that saves itself: files, links and folders, by the clock of their disk."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from clearway.model.claims import SaveState
from tests.integration.bench import Bench, poll

# On the signal it saves as SAVE says, in the folder "disk", and notes that it is complete.
PROGRAM = """
    wanted=
    trap 'wanted=yes' USR1
    mkdir -p "$FOLDER/disk" && cd "$FOLDER/disk" || exit 1
    n=0
    touch "$FOLDER/ready"
    while [ ! -e "$FOLDER/stop" ]; do
        sleep 0.05; n=$((n + 1))
        [ -n "$wanted" ] || continue
        wanted=
        {save}
        echo $n >> "$FOLDER/complete"
    done
"""
FORMS = {  # the file that is named, and how it is saved
    "a file": ("ck", "echo $n > ck.new; mv ck.new ck"),
    "a folder, written in place": (
        "ck",
        'mkdir -p ck; for i in 1 2 3 4; do echo $n > "ck/$i"; sleep 0.5; done; echo > ck/done',
    ),
    "the last file in a folder": (
        "ck/done",
        'mkdir -p ck; for i in 1 2; do echo $n > "ck/$i"; sleep 0.5; done; echo > ck/done',
    ),
    "a folder that is renamed": (
        "ck",
        'mkdir "ck.$n"; echo $n > "ck.$n/a"; sleep 0.5; [ ! -d ck ] || mv ck "old.$n"; mv "ck.$n" ck',
    ),
    "a link to a folder": ("ck", 'mkdir "ck.$n"; echo $n > "ck.$n/a"; sleep 0.5; ln -s "ck.$n" new; mv -T new ck'),
    "a link to a file": ("ck", 'echo $n > "ck.$n"; sleep 0.5; ln -s "ck.$n" new; mv -T new ck'),
    "a file behind a link": ("ck", "mkdir -p far; echo $n > far/new; mv far/new far/ck; [ -L ck ] || ln -s far/ck ck"),
}


def ready(bench: Bench) -> int:
    pid = bench.launcher_pid()
    poll(lambda: "checkpoint=signal" in bench.comment and (bench.folder / "ready").exists(), 30)
    return pid


def ask(bench: Bench, pid: int) -> None:
    time.sleep(1.1)  # the answer names the second in which it was asked: a new one
    asked = int(time.time())
    os.kill(pid, signal.SIGUSR1)
    poll(lambda: (answered := bench.claims().asked) is not None and answered.timestamp() >= asked, 30)
    poll(lambda: bench.claims().state in (SaveState.SAVED, SaveState.FAILED), 60)


@pytest.mark.fault("A checkpoint that was a folder, or a link to one, did not count as a checkpoint.", found_by="trial")
@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_a_checkpoint_counts_once_it_is_complete(bench: Bench, form: str) -> None:
    named, save = FORMS[form]
    options = ("--hold", "0", "--grace", "60", "--checkpoint-file", f"{bench.folder}/disk/{named}")
    step = bench.start(*options, program=PROGRAM.replace("{save}", save))
    pid = ready(bench)
    for times in (1, 2):
        ask(bench, pid)
        assert bench.claims().state is SaveState.SAVED
        assert len((bench.folder / "complete").read_text().split()) == times, "the program has written all of it"
        assert (bench.folder / "disk" / named).exists()
    assert not list(bench.folder.rglob(".clearway-asked*"))
    (bench.folder / "stop").touch()
    _, said = step.communicate(timeout=60)
    assert step.returncode == 0, said


@pytest.mark.fault(
    "Behind a file server whose clock was three seconds early no checkpoint was seen in time.", found_by="trial"
)
def test_a_file_server_whose_clock_is_early(bench: Bench) -> None:
    """Three seconds: a file that was written after the request has a time before it."""
    early = '#!/bin/sh\n/usr/bin/{0} "$@" || exit\nfor each; do case $each in {1}) {2} ;; esac; done\n'
    set_back = '/usr/bin/touch -d "3 seconds ago" "$each"'
    (bench.folder / "touch").write_text(early.format("touch", '"$FOLDER"/disk/*', set_back))
    made = '/usr/bin/touch -d "3 seconds ago" "$made"'
    (bench.folder / "mktemp").write_text(
        '#!/bin/sh\nmade=$(/usr/bin/mktemp "$@") || exit\n'
        f'case $made in "$FOLDER"/disk/*) {made} ;; esac\necho "$made"\n'
    )
    for name in ("touch", "mktemp"):
        (bench.folder / name).chmod(0o755)
    save = 'echo $n > ck.new; touch "$FOLDER/disk/ck.new"; mv ck.new ck'
    options = ("--hold", "0", "--grace", "20", "--checkpoint-file", f"{bench.folder}/disk/ck")
    step = bench.start(*options, program=PROGRAM.replace("{save}", save))
    pid = ready(bench)
    for _ in range(2):
        ask(bench, pid)
        assert bench.claims().state is SaveState.SAVED
    (bench.folder / "stop").touch()
    assert step.wait(timeout=60) == 0


def test_a_folder_in_which_something_goes_on_changing_is_no_checkpoint(bench: Bench) -> None:
    save = 'mkdir -p ck; while [ ! -e "$FOLDER/stop" ]; do echo $n >> ck/log; sleep 0.2; done'
    options = ("--grace", "8", "--checkpoint-file", f"{bench.folder}/disk/ck")
    step = bench.start(*options, program=PROGRAM.replace("{save}", save))
    ask(bench, ready(bench))
    assert bench.claims().state is SaveState.FAILED
    (bench.folder / "stop").touch()
    _, said = step.communicate(timeout=60)
    assert "is a folder in which something goes on changing: name the file in it that is written last" in said


def test_a_folder_that_is_written_at_the_programs_own_pace(bench: Bench) -> None:
    """Each checkpoint counts once, and not before it stands still; a link counts as what it leads to."""
    program = """
        mkdir -p "$FOLDER/disk" && cd "$FOLDER/disk" || exit 1
        touch "$FOLDER/ready"
        for n in 1 2; do
            mkdir -p ck
            for i in 1 2 3 4 5 6; do echo $n > "ck/$i"; sleep 0.5; done
            until [ -e "$FOLDER/next.$n" ]; do sleep 0.1; done
        done
    """
    step = bench.start("--checkpoint-file", f"{bench.folder}/disk/ck", "--interval", "3", program=program)
    bench.launcher_pid()
    for number in (1, 2):
        poll(lambda number=number: bench.claims().generation == number, 60)
        files = [path.read_text().strip() for path in (bench.folder / "disk" / "ck").iterdir()]
        assert files == [str(number)] * 6
        (bench.folder / f"next.{number}").touch()
    assert step.wait(timeout=60) == 0
    assert bench.claims().generation == 2


@pytest.mark.fault(
    "SQUEUE_STATES in a job's environment hid the job from the launcher, and it was requeued unsaved.", found_by="trial"
)
@pytest.mark.parametrize("name", ["SQUEUE_STATES", "SQUEUE_USERS", "SLURM_CLUSTERS"])
def test_what_the_user_set_for_squeue_is_the_programs_alone(bench: Bench, name: str) -> None:
    """It hid the job from the launcher: its Comment could not be set, and the job was requeued unsaved."""
    program = f'echo "${name}" > "$FOLDER/seen.new"; mv "$FOLDER/seen.new" "$FOLDER/seen"\n' + PROGRAM.replace(
        "{save}", FORMS["a file"][1]
    )
    step = bench.start("--checkpoint-file", f"{bench.folder}/disk/ck", program=program, **{name: "CD"})
    ready(bench)
    assert (bench.folder / "seen").read_text() == "CD\n"
    (bench.folder / "stop").touch()
    _, said = step.communicate(timeout=60)
    assert (step.returncode, "cannot set the job's Comment" in said) == (0, False), said


def test_a_program_without_two_dashes_before_it(bench: Bench) -> None:
    step = bench.start("--checkpointer", "none", "echo", "hello", program="exit 0")
    _, said = step.communicate(timeout=60)
    assert step.returncode == 64
    assert said.endswith("-- is missing before the program: clearway-run [options] -- echo ...\n")
    assert not Path(bench.folder / "ready").exists()
