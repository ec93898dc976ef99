"""The launcher and the daemon read and write the same Comments, and what is said in one run counts in that run."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
from pathlib import Path

import pytest

from clearway.model.claims import ClaimError, SaveState, parse_claims
from tests.integration.bench import LAUNCHER, SHELLS, Bench, poll
from tests.integration.test_deploy import PIECES

OURS = "run=3,checkpoint=signal,signal=USR1,to=batch,app=program"
# As the launcher's text says: what it writes itself, and so replaces.
REPLACED = re.compile(
    "(run|checkpoint|checkpointer|app|signal|to|interval|state|asked|last|took|size_mib|generation|restart|restart_s)="
)
TELL_ALL = """
eval "$(sed -n '/^tell() {/,/^}/p; /^set_comment() {/,/^}/p' "$1")"
tries=5
slurm() { "$@"; }
squeue() { cat "$each"; }
scontrol() { for word; do case $word in Comment=*) printf '%s\\n' "${word#Comment=}" >"$each.new" ;; esac; done; }
job=7 direct=yes
for each in "$2"/*.old; do tell "$3"; done
"""


@pytest.mark.parametrize("shell", SHELLS)
def test_the_launcher_reads_comments_as_the_daemon_does(shell: str, tmp_path: Path) -> None:
    """Otherwise its answer could undo the user's words, or make the Comment one that cannot be read."""
    drawn = random.Random(11)
    pieces = [piece for piece in PIECES if piece not in "\r\n"] + [
        "state=saved",
        "run=2",
        "last=1770000000",
        "\\n",
        "*",
    ]
    comments = ["".join(drawn.choices(pieces, k=drawn.randint(1, 7))).encode() for _ in range(120)]
    comments += [b"", b"(null)", b"caf\xe9 clearway:max_delay=5m", b"-n clearway:took=3s,requeues=self"]
    for number, comment in enumerate(comments):
        (tmp_path / f"{number:04}.old").write_bytes(comment + b"\n")
    env = {**os.environ, "LC_ALL": "C.UTF-8"}
    command = [shell, "-uc", TELL_ALL, "sh", str(LAUNCHER), str(tmp_path), OURS]
    subprocess.run(command, check=True, env=env, timeout=300)
    counted = 0
    for number, raw in enumerate(comments):
        comment = "" if raw == b"(null)" else raw.decode("latin-1")
        words = [word for word in re.split("[ \t\v\f]+", comment) if word]
        claimed = ",".join(word.removeprefix("clearway:") for word in words if word.startswith("clearway:"))
        kept = [pair for pair in claimed.split(",") if pair and not REPLACED.match(pair)]
        rest = [word for word in words if not word.startswith("clearway:")]
        said = (tmp_path / f"{number:04}.old.new").read_bytes().decode("latin-1").removesuffix("\n")
        assert said == " ".join([*rest, "clearway:" + ",".join([*kept, OURS])]), repr(raw)
        try:
            before, after = parse_claims(f"clearway:{','.join(kept)}") if kept else None, parse_claims(said)
        except ClaimError:
            continue
        assert after is not None
        assert (after.run, after.app, after.state) == (3, "program", None)
        assert after.max_delay_s == (before.max_delay_s if before else None), repr(raw)
        counted += after.max_delay_s is not None
    assert counted > 0


@pytest.mark.parametrize(("by_slurm", "run"), [("2", 2), ("", 1)])
def test_a_claim_names_its_run(bench: Bench, by_slurm: str, run: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Slurm's own count: a job that was submitted within a job inherits the variable."""
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    squeue = bench.folder / "squeue"
    squeue.write_text(squeue.read_text().replace('"${SLURM_RESTART_COUNT:-0}"', f"'{by_slurm}'"))
    step = bench.start("--checkpoint-file", f"{bench.folder}/ck", program="trap : USR1; sleep 2; exit 5")
    poll(lambda: "checkpoint=signal" in bench.comment)
    assert bench.claims().run == run
    assert step.wait(timeout=60) == 5
    plain = bench.start("--checkpointer", "none", program="exit 5")
    assert plain.wait(timeout=60) == 5
    assert bench.claims().run == run


SAVES = """
    trap 'echo saved > "$FOLDER/ck.new"; mv "$FOLDER/ck.new" "$FOLDER/ck"' USR1
    touch "$FOLDER/ready"
    while [ ! -e "$FOLDER/stop" ]; do sleep 0.05; done
    exit 42
"""


@pytest.mark.parametrize("how", ["exit 1", "exit 0"])
def test_a_comment_that_cannot_be_read_is_not_taken_for_an_empty_one(bench: Bench, how: str) -> None:
    """The user's own words would be overwritten, among them how long the job may be delayed."""
    squeue = bench.folder / "squeue"
    deaf = 'echo >> "$FOLDER/looks"; [ $(wc -l < "$FOLDER/looks") -gt 2 ] || '
    squeue.write_text(squeue.read_text().replace("*) cat", f"*%k*) {deaf}{how}; cat"))
    step = bench.start("--checkpoint-file", f"{bench.folder}/ck", program="trap : USR1; sleep 2; exit 5")
    poll(lambda: "checkpoint=signal" in bench.comment)
    assert bench.comment.startswith("my own words clearway:max_delay=5m,")
    assert step.wait(timeout=60) == 5


@pytest.mark.parametrize("hold", ["60", "0"])
@pytest.mark.fault(
    "The answer of a job to a request was lost where Slurm did not take it at that moment.", found_by="real cluster"
)
def test_an_answer_that_could_not_be_told_is_told_later(bench: Bench, hold: str) -> None:
    """Whoever asked waits for it: also when the program goes on meanwhile."""
    scontrol = bench.folder / "scontrol"
    deaf = '[ ! -e "$FOLDER/deaf" ] || { echo >> "$FOLDER/tries"; exit 1; }'
    refuses = f'#!/bin/sh\ncase "$*" in *state=saved*) {deaf} ;; esac\n'
    scontrol.write_text(scontrol.read_text().replace("#!/bin/sh\n", refuses))
    (bench.folder / "deaf").touch()
    step = bench.start("--hold", hold, "--checkpoint-file", f"{bench.folder}/ck", program=SAVES)
    pid = bench.launcher_pid()
    poll(lambda: "checkpoint=signal" in bench.comment and (bench.folder / "ready").exists())
    os.kill(pid, signal.SIGUSR1)
    tries = bench.folder / "tries"
    poll(lambda: tries.exists() and tries.read_text().count("\n") > 5, limit_s=30)
    (bench.folder / "deaf").unlink()
    poll(lambda: bench.claims().state is SaveState.SAVED)
    (bench.folder / "stop").touch()
    if hold == "60":
        os.kill(pid, signal.SIGTERM)  # the program is still held
        os.killpg(step.pid, signal.SIGKILL)
        step.wait(timeout=60)
    else:
        assert step.wait(timeout=60) == 42
