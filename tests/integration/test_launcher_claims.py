"""The launcher and the daemon read and write the same Comments, and what is said in one run counts in that run."""

from __future__ import annotations

import os
import random
import re
import subprocess
from pathlib import Path

import pytest

from clearway.model.claims import ClaimError, parse_claims
from tests.integration.bench import LAUNCHER, SHELLS, Bench, poll
from tests.integration.test_deploy import PIECES

OURS = "run=3,checkpoint=signal,signal=USR1,to=batch,app=program"
# As the launcher's text says: what it writes itself, and so replaces.
REPLACED = re.compile(
    "(run|checkpoint|checkpointer|app|signal|to|interval|state|asked|last|took|size_mib|generation|restart|restart_s)="
)
TELL_ALL = """
eval "$(sed -n '/^tell() {/,/^}/p' "$1")"
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
    step = bench.start("--checkpoint-file", f"{bench.folder}/ck", program="sleep 0.5; exit 5")
    poll(lambda: "checkpoint=signal" in bench.comment)
    assert bench.claims().run == run
    assert step.wait(timeout=60) == 5
    plain = bench.start("--checkpointer", "none", program="exit 5")
    assert plain.wait(timeout=60) == 5
    assert bench.claims().run == run
