"""Running Slurm's commands: limits, environment, and what their errors mean."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clearway.model.errors import LeaseLostError, SlurmRefusedError, SlurmTimeoutError, SlurmUnavailableError
from clearway.slurm.cli import CliBackend
from clearway.slurm.process import Commands, error_from
from tests.unit.slurm.fences import TestFence


def command(folder: Path, script: str, name: str = "squeue") -> Commands:
    """Commands in whose folder this one is a shell script."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return Commands(timeout_s=60, bin_dir=str(folder))


def test_output(tmp_path: Path) -> None:
    commands = command(tmp_path, r"""printf '%s|' "$@"; printf '\377'""")
    assert commands.run(["squeue", "a b", "$(c)", ""]) == "a b|$(c)||\ufffd"


def test_output_in_pieces_is_the_same_text(tmp_path: Path) -> None:
    """A character of several bytes may lie on the border of two pieces."""
    commands = command(tmp_path, r"""seq 1 300000 | sed "s/\$/ $(printf '\303\251\377')/"; echo told >&2""")
    pieces: list[str] = []
    commands.run_in_pieces(["squeue"], pieces.append)
    assert len(pieces) > 1
    assert "".join(pieces) == "".join(f"{number} \u00e9\ufffd\n" for number in range(1, 300_001))


def test_pieces_end_in_the_error_of_the_command(tmp_path: Path) -> None:
    commands = command(tmp_path, "echo some; echo 'squeue: error: Invalid job id specified' >&2; exit 1")
    with pytest.raises(SlurmRefusedError, match="Invalid job id specified"):
        commands.run_in_pieces(["squeue"], len)


def test_a_command_that_has_closed_its_output_is_waited_for(tmp_path: Path) -> None:
    commands = command(tmp_path, f"exec >&- 2>&-; sleep 1; echo ran >{tmp_path}/ran")
    assert commands.run(["squeue"]) == ""
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUEUE_SORT", "x")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    monkeypatch.setenv("SLURM_CONF", "/outer")
    monkeypatch.setenv("SLURM_JWT", "token")
    told = command(tmp_path, "/usr/bin/env").run(["squeue"], env={"SQUEUE_FORMAT2": "f"}).splitlines()
    assert {"LC_ALL=C", "TZ=UTC", "SLURM_TIME_FORMAT=standard", "SLURM_BITSTR_LEN=0"} <= set(told)
    assert {"SLURM_CONF=/outer", "SLURM_JWT=token", "SQUEUE_FORMAT2=f"} <= set(told)
    assert not [line for line in told if line.startswith("SQUEUE_SORT")]
    commands = Commands(bin_dir=str(tmp_path), slurm_conf="/ours", env={"TZ": "Europe/Berlin"})
    told = commands.run(["squeue"]).splitlines()
    assert {"SLURM_CONF=/ours", "TZ=Europe/Berlin"} <= set(told)


def test_a_hanging_command_and_its_children_are_ended(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    commands = command(tmp_path, f"sleep 300 & echo $! >{pids}; wait")
    started = time.monotonic()
    for timeout_s in (1, 5, 25):  # a busy machine may not even have started the child within the first
        with pytest.raises(SlurmTimeoutError, match=rf"squeue did not answer within {timeout_s} s"):
            Commands(timeout_s=timeout_s, bin_dir=commands.bin_dir).run(["squeue"])
        if pids.exists() and pids.read_text().strip():
            break
    assert time.monotonic() - started < 200
    deadline = time.monotonic() + 60
    while runs(int(pids.read_text())):
        assert time.monotonic() < deadline, "the child of the command still runs"
        time.sleep(0.01)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:  # it has ended since
        return False


def test_a_change_takes_no_longer_than_the_fence_allows(tmp_path: Path) -> None:
    """Reading may take its whole time."""
    commands = command(tmp_path, "sleep 1; echo done", "scontrol")
    with pytest.raises(SlurmTimeoutError, match=r"did not answer within 0\.2 s"):
        replace(commands, fence=TestFence(0.2)).change(["scontrol"])
    assert replace(commands, fence=TestFence(0.2)).run(["scontrol"]) == "done\n"


def test_without_the_lease_no_change_is_begun(tmp_path: Path) -> None:
    commands = command(tmp_path, f"echo ran >{tmp_path}/ran", "scontrol")
    with pytest.raises(LeaseLostError):
        replace(commands, fence=TestFence(None)).change(["scontrol"])
    assert not (tmp_path / "ran").exists()


def test_the_lease_is_kept_while_an_answer_is_waited_for(tmp_path: Path) -> None:
    """And a call whose lease is lost ends with its process."""
    pid = tmp_path / "pid"
    commands = command(tmp_path, f"echo $$ >{pid}.new; mv {pid}.new {pid}; exec sleep 300")
    fence = TestFence(60.0, keeps=2)
    with pytest.raises(LeaseLostError):
        replace(commands, fence=fence).run(["squeue"])
    assert fence.kept == 3
    assert not pid.exists() or not runs(int(pid.read_text()))


def test_a_missing_command(tmp_path: Path) -> None:
    with pytest.raises(SlurmUnavailableError, match="not installed or not on the PATH"):
        Commands(bin_dir=str(tmp_path)).run(["squeue"])
    (tmp_path / "squeue").write_text("")
    with pytest.raises(SlurmUnavailableError, match="cannot be started"):
        Commands(bin_dir=str(tmp_path)).run(["squeue"])


def test_an_error_is_told_in_slurms_words(tmp_path: Path) -> None:
    commands = command(tmp_path, "echo 'scontrol: error: No way' >&2; echo 'rest' >&2; exit 1", "scontrol")
    with pytest.raises(SlurmRefusedError, match=r"^scontrol: No way; rest$"):
        commands.run(["scontrol"])
    commands = command(tmp_path, "kill -9 $$")
    with pytest.raises(SlurmUnavailableError, match="ended by signal 9"):
        commands.run(["squeue"])
    commands = command(tmp_path, "echo 'squeue: error: Invalid job format specification: Foo' >&2")
    with pytest.raises(SlurmUnavailableError, match="Foo"):
        commands.run(["squeue"])


# Measured on 22.05.8 and 26.05.5: slurmctld stopped, killed, missing configuration, refusals.
@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("slurm_load_jobs error: Socket timed out on send/recv operation", SlurmTimeoutError),
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", SlurmUnavailableError),
        ("Unexpected message received for job 17", SlurmUnavailableError),
        ("s_p_parse_file: cannot stat file /nonexistent: No such file or directory", SlurmUnavailableError),
        ("fatal: Could not establish a configuration source", SlurmUnavailableError),
        ("Protocol authentication error", SlurmUnavailableError),
        ("2_[3-4]: Resource temporarily unavailable", SlurmUnavailableError),
        ("Requested operation is presently disabled for job 13", SlurmRefusedError),
        ("Invalid job id specified for job 9999", SlurmRefusedError),
        ("Access/permission denied for job 17", SlurmRefusedError),
        ("Error creating the reservation: Invalid user id", SlurmRefusedError),
        ("", SlurmRefusedError),
    ],
)
def test_what_a_message_means(message: str, error: type[Exception]) -> None:
    assert type(error_from("scontrol", message, 1)) is error


def test_available(tmp_path: Path) -> None:
    backend = CliBackend(now=lambda: datetime.now(UTC), bin_dir=str(tmp_path), timeout_s=60)
    reason = backend.available()
    assert reason is not None
    assert "not installed" in reason
    command(
        tmp_path, 'case $1 in --version) echo "slurm 22.05.8";; *) echo "Invalid job id specified" >&2; exit 1; esac'
    )
    command(tmp_path, "echo NodeName=n1", "scontrol")
    assert backend.available() is None
    command(tmp_path, "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1", "scontrol")
    assert backend.available() == "scontrol: Unable to contact slurm controller (connect failure)"
    command(tmp_path, "echo nonsense")
    assert "nonsense" in (backend.available() or "")
