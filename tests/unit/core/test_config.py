"""The configuration file: what is wrong is told in one line that names the file and the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from clearway.config.configuration import Config, Mode, load_config, parse_config
from clearway.model.errors import ConfigError

EXAMPLE = Path(__file__).parents[3] / "deploy" / "clearway.toml"
RULE = '[[preemptors]]\npartition = ["urgent"]\n'


def test_an_empty_file_only_observes_and_finds_nobody_urgent() -> None:
    config = parse_config("", "empty")
    assert config == Config()
    assert config.daemon.mode is Mode.OBSERVE
    assert config.preemptors == ()


def test_values_are_read() -> None:
    config = parse_config(
        RULE + 'name = "beam"\nmax_delay = "1h30m"\n[daemon]\nmode = "approve"\npoll_interval = 0.5\n'
        "[budget]\njobs_per_hour = 0\n[candidates]\nmin_runtime = 0\n",
        "file",
    )
    assert config.preemptors[0].partition == ("urgent",)
    assert config.preemptors[0].max_delay == 5_400
    assert config.daemon.mode is Mode.APPROVE
    assert config.daemon.poll_interval == 0.5
    assert config.budget.jobs_per_hour == 0


@pytest.mark.parametrize(
    ("text", "key"),
    [
        pytest.param("[daemon]\nmod = 'observe'", "daemon.mod: unknown key", id="unknown key"),
        pytest.param("[damon]", "damon: unknown key", id="unknown section"),
        pytest.param("daemon = 5", "daemon: ", id="a section that is a number"),
        pytest.param("[daemon]\nmode = 'auto'", "daemon.mode: ", id="unknown mode"),
        pytest.param("[daemon]\npoll_interval = 'often'", "daemon.poll_interval: must be a duration", id="a word"),
        pytest.param("[daemon]\npoll_interval = -1", "daemon.poll_interval: a duration lies", id="negative"),
        pytest.param("[daemon]\npoll_interval = 0", "daemon.poll_interval: ", id="no pause between cycles"),
        pytest.param("[daemon]\nactive_interval = 0", "daemon.active_interval: ", id="no pause at work"),
        pytest.param("[daemon]\nstale_after = 0", "daemon.stale_after: ", id="always stale"),
        pytest.param("[slurm]\ntimeout = 0", "slurm.timeout: ", id="no time to answer"),
        pytest.param("[daemon]\npoll_interval = nan", "daemon.poll_interval: a duration lies", id="NaN"),
        pytest.param("[daemon]\npoll_interval = inf", "daemon.poll_interval: a duration lies", id="infinity"),
        pytest.param(f"[daemon]\npoll_interval = 1{'0' * 400}", "daemon.poll_interval: a duration lies", id="huge"),
        pytest.param(f"[daemon]\npoll_interval = 1{'0' * 5_000}", "not valid TOML", id="more digits than Python reads"),
        pytest.param("[daemon]\npoll_interval = true", "daemon.poll_interval: must be a duration", id="true"),
        pytest.param("[daemon]\npoll_interval = 1979-05-27", "daemon.poll_interval: must be a duration", id="a date"),
        pytest.param("[daemon]\nlog_format = 'xml'", "daemon.log_format: ", id="unknown format"),
        pytest.param("[slurm]\nbackend = 'simulated'", "slurm.backend: ", id="no real backend"),
        pytest.param("[store]\nurl = 5", "store.url: ", id="a number as text"),
        pytest.param("[api]\nport = 65536", "api.port: ", id="no such port"),
        pytest.param("[api]\nport = 'http'", "api.port: ", id="a port by name"),
        pytest.param(f"[api]\nport = {10**30}", "api.port: ", id="a huge port"),
        pytest.param("[[preemptors]]", "preemptors.0: give partition, qos, account or user", id="a rule for every job"),
        pytest.param(
            "[[preemptors]]\nname = 'x'", "preemptors.0: give partition, qos, account or user", id="only a name"
        ),
        pytest.param(
            "[[preemptors]]\njob_name = ['live-*']\ncomment = true",
            "preemptors.0: give partition, qos, account or user",
            id="only what users write themselves",
        ),
        pytest.param("[[preemptors]]\npartition = 'urgent'", "preemptors.0.partition: ", id="text for a list"),
        pytest.param("[[preemptors]]\nqos = [1]", "preemptors.0.qos.0: ", id="a number in a list"),
        pytest.param(RULE + "max_delay = ''", "preemptors.0.max_delay: must be a duration", id="no duration"),
        pytest.param(RULE + "[[preemptors]]\nqosses = ['x']", "preemptors.1.qosses: unknown key", id="second rule"),
        pytest.param("preemptors = 'all'", "preemptors: ", id="rules that are text"),
        pytest.param("[preemptors]\npartition = ['x']", "preemptors: ", id="one rule as a table"),
        pytest.param("[candidates]\nmax_preemptions = -1", "candidates.max_preemptions: ", id="negative count"),
        pytest.param("[candidates]\nallow_kill = 'sometimes'", "candidates.allow_kill: ", id="no truth value"),
        pytest.param("[budget]\njobs_per_hour = 1.5", "budget.jobs_per_hour: ", id="half a job"),
        pytest.param("[budget]\nlost_node_hours_per_hour = nan", "budget.lost_node_hours_per_hour: ", id="NaN budget"),
        pytest.param("[budget]\nlost_node_hours_per_hour = -1", "budget.lost_node_hours_per_hour: ", id="below 0"),
        pytest.param("[costs]\nfile_system_mib_s = 0", "costs.file_system_mib_s: ", id="no bandwidth"),
        pytest.param("[costs]\nnode_mib_s = inf", "costs.node_mib_s: ", id="infinite bandwidth"),
        pytest.param("[costs]\napp_memory_fraction = 1.5", "costs.app_memory_fraction: ", id="more than all memory"),
        pytest.param("[costs]\napp_memory_fraction = nan", "costs.app_memory_fraction: ", id="NaN fraction"),
        pytest.param("[planning]\nsteps = 0", "planning.steps: ", id="no steps"),
        pytest.param("[planning]\nsteps = 4000", "planning.steps: ", id="too many steps"),
        pytest.param("[execution]\nlate_checkpoint = 'hope'", "execution.late_checkpoint: ", id="unknown choice"),
        pytest.param("[execution]\nconcurrent_checkpoints = 0", "execution.concurrent_checkpoints: ", id="none at all"),
        pytest.param("[execution]\ngive_up_after = 0", "execution.give_up_after: ", id="gives up at once"),
        pytest.param("[daemon\nmode = 1", "not valid TOML", id="not TOML"),
        pytest.param("[daemon]\nmode = 'observe'\nmode = 'approve'", "not valid TOML", id="a key twice"),
        pytest.param("x = " + "[" * 5_000, "not valid TOML: nested too deeply", id="nested too deeply"),
        pytest.param('"a\\nb" = 1', "unknown key", id="a line break in a key"),
        pytest.param('"\\u001B[31m" = 1', "unknown key", id="a terminal escape in a key"),
        pytest.param("\x00", "not valid TOML", id="a null byte"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(text: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "site.toml")
    message = str(caught.value)
    assert message.startswith("site.toml: ")
    assert key in message
    assert message.isprintable()
    assert len(message) < 400


def test_what_is_wrong_is_told_in_words() -> None:
    """It said "Input should be a valid tuple"."""
    wrong = """
    [daemon]
    mode = "auto"
    pol_interval = 3
    [[preemptors]]
    partition = "urgent"
    qos = [1]
    [api]
    port = "8642x"
    host = 7
    [candidates]
    allow_kill = "sometimes"
    max_preemptions = -1
    """
    with pytest.raises(ConfigError) as caught:
        parse_config(wrong, "f")
    assert caught.value.faults == (
        "f: daemon.mode: must be 'observe', 'approve' or 'automatic', not 'auto'",
        "f: daemon.pol_interval: unknown key; is poll_interval meant?",
        "f: api.host: must be text in quotes, not 7",
        "f: api.port: must be a whole number, not '8642x'",
        'f: preemptors.0.partition: must be a list: ["urgent"]',
        "f: preemptors.0.qos.0: must be text in quotes, not 1",
        "f: candidates.max_preemptions: must be at least 0, not -1",
        "f: candidates.allow_kill: must be true or false, not 'sometimes'",
    )
    with pytest.raises(ConfigError, match=r"^f: preemptors: write \[\[preemptors\]\], in two brackets"):
        parse_config('[preemptors]\npartition = ["urgent"]', "f")


def test_the_first_of_several_errors_is_named_and_the_others_counted() -> None:
    with pytest.raises(ConfigError, match=r"^f: daemon\.mode: .* \(and 2 more\)$"):
        parse_config("[daemon]\nmode = 'x'\n[api]\nport = -1\n[planning]\nsteps = 0", "f")


@pytest.mark.parametrize("path", [Path("absent.toml"), Path(), Path("null\0byte")], ids=["absent", "folder", "null"])
def test_a_file_that_cannot_be_read(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path / path)


def test_a_binary_file(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\x7fELF\xff\xfe\x00")
    with pytest.raises(ConfigError, match="binary: cannot be read"):
        load_config(tmp_path / "binary")


@pytest.mark.skipif(not EXAMPLE.exists(), reason="no example configuration here")
def test_the_example_is_good() -> None:
    assert load_config(EXAMPLE).preemptors
