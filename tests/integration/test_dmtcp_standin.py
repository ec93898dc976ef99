"""The DMTCP driver with stand-ins for what real ones were seen to do wrong."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from clearway_checkpoint.dmtcp import Dmtcp
from tests.integration.test_dmtcp import Run

STAND_IN = """\
#!/bin/sh
state=$CLEARWAY_STATE work=$CLEARWAY_DIR/dmtcp
image() {{ mkdir -p "$work/images"; echo image >"$work/images/ckpt_$1.dmtcp$2"; }}
script() {{ printf '%s\\n' "${{*:-ckpt_a.dmtcp ckpt_b.dmtcp}}" >"$work/dmtcp_restart_script.sh"; }}
word=; for each in "$@"; do word=$each; done
case $word in
    -s) echo "  NUM_PEERS=$(cat "$state/peers" 2>/dev/null || echo 2)"; echo "  RUNNING=yes"
        [ ! -e "$state/gone" ] || exit 2 ;;
    -l) s=$(cat "$state/state" 2>/dev/null || echo CHECKPOINTED)
        for p in a b; do echo "1, $p[1:0]@h, 1-$p, $s, "; done ;;
    -bc) {fault} ;;
esac
exit 0
"""
# As DMTCP 4.2.0 writes it: in red, with the place in its sources and a backtrace.
WORDS = r"""printf "\033[0;31m[2026, 4, 4, Error] at a.cpp:57; REASON='JASSERT(x) failed; "\
"Message: no memory    sh: Terminating...\n    1 _Z in\n\033[0m" >"$state/dmtcp/words"
"""
LATE = "(sleep 1; image a; image b; script) >/dev/null 2>&1 & "


@pytest.fixture
def faulty(tmp_path: Path) -> Callable[..., Run]:
    def make(fault: str, limit_s: int = 120) -> Run:
        tools = tmp_path / "bin"
        tools.mkdir()
        (tools / "dmtcp_command").write_text(STAND_IN.format(fault=fault))
        (tools / "dmtcp_command").chmod(0o755)
        run = Run(tmp_path / "run", f"{tools}:{os.environ['PATH']}")
        run.env["CLEARWAY_DMTCP_LIMIT_S"] = str(limit_s)
        run.driver = Dmtcp(run.env)
        (run.folder / "state" / "dmtcp").mkdir()
        (run.folder / "state" / "dmtcp" / "port").write_text("1")
        (run.folder / "dir" / "dmtcp" / "images").mkdir(parents=True)
        return run

    return make


def test_request_that_returns_early_is_waited_for(faulty: Callable[..., Run]) -> None:
    run = faulty(LATE)
    generation = run.generation(1)
    saved = run.driver.checkpoint(generation, 1)
    assert saved.ok, saved.reason
    assert {p.name for p in generation.glob("ckpt_*")} == {"ckpt_a.dmtcp", "ckpt_b.dmtcp"}
    assert run.driver.verify(generation).ok


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("exit 0", "not complete within 3 s"),  # success claimed, nothing done
        ("image a; script", "not complete within"),
        ("image a; script ckpt_a.dmtcp", "DMTCP saved only 1 of its 2 processes"),
        ('echo RUNNING >"$state/state"; image a; image b; script', "not all of its processes could be held"),
        (WORDS + "image a; script ckpt_a.dmtcp", "let the program save itself; DMTCP said: no memory"),
        ("image a; image b .temp; script", "not complete within"),  # killed in mid-write
        ("image a; image b", "not complete within"),  # no restart script: DMTCP had not finished
        ('rm "$state/dmtcp/port"', "coordinator is gone"),
        ('echo 0 >"$state/peers"; image a .temp', "the program has ended"),  # disk full
        ("sleep 60", "not complete within"),
    ],
)
def test_no_fault_ends_as_saved(faulty: Callable[..., Run], fault: str, reason: str) -> None:
    run = faulty(fault, 3 if "within" in reason else 120)
    generation = run.generation(1)
    saved = run.driver.checkpoint(generation, 1)
    assert not saved.ok
    assert reason in saved.reason
    assert not run.driver.verify(generation).ok


def test_images_of_an_earlier_attempt_do_not_count(faulty: Callable[..., Run]) -> None:
    run = faulty("exit 0", 3)
    work = run.folder / "dir" / "dmtcp"
    for name in ("images/ckpt_a.dmtcp", "images/ckpt_b.dmtcp"):
        (work / name).write_text("old")
    (work / "dmtcp_restart_script.sh").write_text("ckpt_a.dmtcp ckpt_b.dmtcp")
    assert not run.driver.checkpoint(run.generation(1), 1).ok


def test_too_little_space_is_seen_before_anything_is_written(faulty: Callable[..., Run]) -> None:
    run = faulty('touch "$state/asked"; ' + LATE)
    df = run.folder.parent / "bin" / "df"
    df.write_text("#!/bin/sh\necho head\necho disk 1000 999 1 100% /\n")
    df.chmod(0o755)
    command = df.with_name("dmtcp_command")
    command.write_text(
        command.read_text().replace("case $word in", f"case $word in\n -l) echo '1, x[4:{os.getpid()}]@h' ;;")
    )
    saved = run.driver.checkpoint(run.generation(1), 1)
    assert not saved.ok
    assert "MiB are wanted" in saved.reason
    assert not (run.folder / "state" / "asked").exists()
