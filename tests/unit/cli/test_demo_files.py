"""What the demo leaves for a second terminal: a configuration and a token that the daemon itself would take."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from clearway.api.logins import Tokens
from clearway.cli.demo import DemoFiles, run
from clearway.config.configuration import Mode, load_config
from clearway.model.clock import ScaledClock
from clearway.model.errors import ConfigError
from tests.builders import NOW


def test_a_shell_that_reads_the_file_finds_the_demo(tmp_path: Path) -> None:
    files = DemoFiles(tmp_path, 0, Mode.APPROVE)
    env = files.write("http://127.0.0.1:4711")
    script = f'. {env}; printf "%s\\n" "$CLEARWAY_CONFIG" "$API" "$CLEARWAY_TOKEN"; command -v clearway'
    told = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False).stdout.split()
    assert told[1] == "http://127.0.0.1:4711/api/v1"
    assert Tokens(files.tokens).find(told[2]) is not None
    written = load_config(Path(told[0]))
    assert written.api.port == 4711
    assert written.model_copy(update={"api": files.config.api}) == files.config
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in (env, files.tokens))


@pytest.mark.parametrize(("mode", "once"), [(Mode.OBSERVE, False), (Mode.APPROVE, True)])
def test_a_demo_that_would_not_end_or_not_act_is_refused(mode: Mode, once: bool) -> None:
    with pytest.raises(ConfigError, match="automatic or approve"):
        run(once=once, speed=60.0, port=0, seed=7, mode=mode)


def test_a_clock_that_changes_its_pace_does_not_jump() -> None:
    clock = ScaledClock(NOW, 1_000_000.0)
    before = clock.now()
    clock.run_at(1.0)
    between = clock.now()
    clock.run_at(1_000_000.0)
    assert before <= between <= clock.now()
    assert clock.steady() >= (between - NOW).total_seconds()
