"""``clearway job`` and ``clearway preview``, beside a daemon on a simulated cluster."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from clearway import client
from clearway.cli import job, render, sbatch
from clearway.cli.asker import api_token
from clearway.config.access import ClientConfig
from clearway.model.errors import RequestError
from clearway.simulation.jobs import Program
from tests.simulation.world import SAVES
from tests.unit.api.conftest import TOKEN, ApiWorld, make_api
from tests.unit.api.test_jobs import LONG
from tests.unit.cli.running import clearway, one_line
from tests.unit.cli.test_over_rest import Unclosed

__all__ = ["make_api"]


@pytest.fixture
def api(make_api: Any, monkeypatch: pytest.MonkeyPatch) -> ApiWorld:
    """The application answers what the command sends, without a socket."""
    made: ApiWorld = make_api()

    monkeypatch.setattr(client, "_connected", lambda *_: Unclosed(made.client))
    monkeypatch.setenv("CLEARWAY_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("PATH", "/nonexistent")
    return made


def words(text: str) -> str:
    """Without the line breaks of a narrow terminal."""
    return " ".join(text.split())


def test_what_a_running_job_would_lose(api: ApiWorld) -> None:
    job_id = api.submit(LONG, on=("n1",), ran_s=7_200, user="ann", comment=f"{SAVES},took=30s")
    api.tick()
    shown = words(clearway("job", job_id).stdout)
    for text in (
        f"Job {job_id} of ann: running on n1.",
        "If an urgent job came now: it would be requeued once it has saved itself",
        "it would lose 2.0 node-hours",
        "The job saves itself within",
        "nothing to do with it so far",
    ):
        assert text in shown, shown
    found = json.loads(clearway("job", job_id, "-o", "json").stdout)
    assert found == api.client.get(f"/api/v1/jobs/{job_id}").json(), "the schema of REST"


def test_the_story_of_a_preempted_job(api: ApiWorld) -> None:
    jobs = api.fill()
    urgent = api.urgent(2, work_s=60)
    api.tick()
    waits = words(clearway("job", urgent).stdout)
    assert "It is an urgent job, by rule 1. It should run by" in waits
    assert f"its nodes for urgent job {urgent} of ursula" in words(clearway("job", jobs[0]).stdout)
    api.run_until(lambda: bool(api.store.evictions()) and api.settled())
    shown = words(clearway("job", jobs[0]).stdout)
    assert "\\n" not in shown
    assert shown.count("without it") <= 1
    for text in (
        "eviction",
        "preemptee",
        f"{urgent} ursula",
        "requeue without checkpoint, returned",
        "was started again at",
    ):
        assert text in shown, shown
    assert "preemptor" in clearway("job", urgent).stdout


def test_a_job_is_tested_by_its_owner(api: ApiWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARWAY_TOKEN", TOKEN)
    saving = Program(work_s=100_000, save_s=3.0)
    good = api.submit(saving, on=("n1",), ran_s=600, user="ann", comment=SAVES)
    silent = api.submit(LONG, on=("n2",), ran_s=600, user="ann")
    api.tick()

    def cycling(found: Any, limit_s: float = 0.0) -> Any:
        del limit_s
        while (answer := found()) is None:
            api.tick()
        return answer

    monkeypatch.setattr(render, "wait_for", cycling)
    result = clearway("test-preemption", good)
    assert result.exit_code == 0
    assert f"Job {good} saved itself in" in words(result.stdout)
    assert "Tested 2026-" in clearway("job", good).stdout
    again = clearway("test-preemption", good)
    assert (again.exit_code, "ask again in" in one_line(again.stderr)) == (1, True)
    api.clock.advance(700)
    printed = clearway("test-preemption", good, "-o", "json").stdout
    told = json.loads(printed[printed.index("{") :])  # the daemon of the test logs beside it
    assert (told["end"], told["job_id"]) == ("saved", good)
    refused = clearway("test-preemption", silent)
    assert refused.exit_code == 1
    assert "does not say that it can be saved" in refused.stderr


def test_a_token_that_ends_and_a_daemon_that_is_restarted_end_no_wait() -> None:
    """A token of Slurm's own lasts a minute, and a job may save itself for longer."""
    answers = iter([401, 503, 404])
    handle = httpx.MockTransport(lambda _: httpx.Response(next(answers), json={"detail": "no"}))
    with client.Client("http://x", http=httpx.Client(base_url="http://x", transport=handle)) as daemon:
        assert job._handled(daemon, 1) is None
        assert job._handled(daemon, 1) is None
        with pytest.raises(client.ApiError):
            job._handled(daemon, 1)


def test_an_id_that_is_none_and_one_that_is_not_known(api: ApiWorld) -> None:
    api.tick()
    wrong = clearway("job", "drain")
    assert (wrong.exit_code, one_line(wrong.stderr)) == (
        2, "clearway: 'drain' is no job id: give a number, 123_4 or 123+1",
    )  # fmt: skip
    unknown = clearway("job", "12_3")
    assert unknown.exit_code == 1
    assert "knows nothing of job 12_3" in one_line(unknown.stderr)


def test_no_daemon_and_no_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLEARWAY_URL", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    nowhere = clearway("job", "1", "--config", tmp_path / "none.toml")
    assert nowhere.exit_code == 2
    assert "set CLEARWAY_URL" in one_line(nowhere.stderr)
    monkeypatch.setenv("CLEARWAY_URL", "http://127.0.0.1:1")
    assert "http://127.0.0.1:1 does not answer" in one_line(clearway("job", "1").stderr)


def test_the_daemon_is_found_by_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLEARWAY_URL", raising=False)
    monkeypatch.setenv("CLEARWAY_TOKEN", "x")
    site = tmp_path / "site.toml"
    for api, told in (
        ('host = "0.0.0.0"\nport = 1', "http://127.0.0.1:1 does not answer"),
        ('host = "::"\nport = 1', "http://[::1]:1 does not answer"),
        (f'socket = "{tmp_path}/none"', f"unix:{tmp_path}/none does not answer"),
    ):
        site.write_text(f"[api]\n{api}\n")
        assert told in one_line(clearway("job", "1", "--config", site).stderr)
    given = clearway("job", "1", "--config", site, "--api", "http://127.0.0.1:2")
    assert "http://127.0.0.1:2 does not answer" in one_line(given.stderr)


@pytest.mark.parametrize(
    ("prints", "found"), [("echo SLURM_JWT=of-slurm", "of-slurm"), ("exit 1", ""), ("printf '\\377'", "")]
)
def test_a_token_that_slurm_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prints: str, found: str) -> None:
    for variable in ("CLEARWAY_TOKEN", "CLEARWAY_TOKEN_FILE", "SLURM_JWT"):
        monkeypatch.delenv(variable, raising=False)
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f'#!/bin/sh\n[ "$*" = "token lifespan=60" ] || exit 2\n{prints}\n')
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert api_token(ClientConfig()) == found
    monkeypatch.setenv("SLURM_JWT", "of-the-session")
    assert api_token(ClientConfig()) == "of-the-session"


# -- preview ------------------------------------------------------------------------------------------------------

SCRIPT = """#!/bin/sh
#SBATCH --nodes=2   # both
#SBATCH -p urgent --time=1:00:00 --output=out.txt

#SBATCH --mail-type ALL
srun ./solve
#SBATCH --nodes=7
"""


def script(folder: Path, text: str = SCRIPT) -> Path:
    path = folder / "job.sh"
    path.write_text(text)
    return path


def test_a_script_is_previewed(api: ApiWorld, tmp_path: Path) -> None:
    api.fill()
    api.tick()
    path = script(tmp_path)
    shown = words(clearway("preview", "--script", path).stdout)
    for text in (
        "It would be urgent, by rule 1.",
        "It may wait 1m00s.",
        "It would start on n[1-2] at about",
        "2 jobs would leave",
        "requeue without checkpoint",
        "Not looked at, for no plan depends on it: --output, --mail-type.",
    ):
        assert text in shown, shown
    three = json.loads(clearway("preview", "--script", path, "-o", "json", "--", "-N3").stdout)
    assert three["plan"]["nodes_needed"] == 3, "arguments come before the script's lines"
    listed = words(clearway("preview", "--script", path, "--", "-w", "n3").stdout)
    assert "Not looked at, though the plan depends on it: --nodelist." in listed
    anywhere = clearway("preview", "--script", script(tmp_path, "#!/bin/sh\n"))
    assert "if it is submitted to a partition of that rule" in words(anywhere.stdout)
    path = script(tmp_path)
    ordinary = clearway("preview", "--script", path, "--partition=batch")
    assert "no rule makes such a job urgent" in words(ordinary.stdout)
    assert api.store.pending_requests() == ()


@pytest.mark.parametrize(
    ("lines", "arguments", "told"),
    [
        ("#SBATCH --nodes=two", [], "job.sh:2: --nodes=two: must be a whole number of at least 1"),
        ("#SBATCH --mem=lots", [], "job.sh:2: --mem=lots: must be a size such as 4000M or 16G"),
        ("\n#SBATCH --time=soon", [], "job.sh:3: --time=soon: it is 'soon', not a duration"),
        ("#SBATCH -p a,b", [], "job.sh:2: --partition=a,b: a plan is made for one partition: name one with"),
        ("#SBATCH --array=1-9", [], "job.sh:2: --array=1-9: an array of tasks: a preview is for single jobs alone"),
        ("#SBATCH --gres=fpga:1", [], "job.sh:2: --gres=fpga:1: of generic resources only GPUs can be planned for"),
        ("#SBATCH hetjob", [], "job.sh:2: a heterogeneous job: a preview is for single jobs alone"),
        ("#SBATCH --comment='open", [], "job.sh:2: No closing quotation"),
        ("#SBATCH --nodes", [], "job.sh:2: --nodes: a value is missing"),
        ("#SBATCH -L matlab", [], "job.sh:2: --licenses=matlab: it is not known whether"),
        ("#SBATCH --hold", [], "job.sh:2: --hold: the job would wait for more than nodes"),
        ("#SBATCH -N2 -G4", [], "GPUs per job or per task on several nodes"),
        ("", ["-N", "0"], "argument: --nodes=0: must be a whole number of at least 1"),
        ("", ["other.sh"], "argument: 'other.sh': options begin with -; name the script by --script"),
    ],
)
def test_bad_input_is_one_line_with_its_place(tmp_path: Path, lines: str, arguments: list[str], told: str) -> None:
    result = clearway("preview", "--script", script(tmp_path, f"#!/bin/sh\n{lines}\ntrue\n"), "--", *arguments)
    assert result.exit_code == 2
    assert told in one_line(result.stderr)


def test_a_script_that_is_none(tmp_path: Path) -> None:
    assert "begins with #!" in one_line(clearway("preview", "--script", script(tmp_path, "true\n")).stderr)
    assert "cannot be read" in one_line(clearway("preview", "--script", tmp_path / "none.sh").stderr)


@pytest.mark.parametrize(
    ("options", "body"),
    [
        ("", {"nodes": 1, "tasks": 1}),
        ("-N4", {"nodes": 4, "tasks": 4}),
        ("--nodes=2-4", {"nodes": 2, "tasks": 2}),
        ("-n 64", {"tasks": 64}),
        ("-n64 --ntasks-per-node=16", {"nodes": 4, "tasks": 64}),
        ("-N2 --ntasks-per-node=8 -c 2", {"nodes": 2, "tasks": 16, "cpus_per_task": 2}),
        ("--mem=4G", {"nodes": 1, "tasks": 1, "memory_mib": 4_096}),
        ("--mem=0", {"nodes": 1, "tasks": 1, "memory_mib": 0, "exclusive": True}),
        ("-N2 -n8 -c2 --mem-per-cpu=500", {"nodes": 2, "tasks": 8, "cpus_per_task": 2, "memory_mib": 4_000}),
        ("--gres=gpu:a100:2,gpu:1", {"nodes": 1, "tasks": 1, "gpus": {"a100": 2, "": 1}}),
        ("-N1 -G8", {"nodes": 1, "tasks": 1, "gpus": {"": 8}}),
        ("-N1 -n4 --gpus-per-task=v100:1", {"nodes": 1, "tasks": 4, "gpus": {"v100": 4}}),
        ("--exclusive -C 'a&b' -q high -A phys", {"nodes": 1, "tasks": 1, "exclusive": True, "constraint": "a&b",
                                                   "qos": "high", "account": "phys"}),
        ("--exclusive=user", {"nodes": 1, "tasks": 1, "exclusive": False}),
        ("-N1 -N3", {"nodes": 3, "tasks": 3}),
    ],
)  # fmt: skip
def test_what_options_ask_for(options: str, body: dict[str, Any]) -> None:
    assert sbatch.question(f"#!/bin/sh\n#SBATCH {options}\n", "job.sh", [])[0] == body


def test_what_a_script_says_after_a_command_is_not_read() -> None:
    asked, passed_over = sbatch.question(
        "#!/bin/sh\n# a\ntrue\n#SBATCH --nodes=two\n", "job.sh", ["-o", "x", "-o", "y"]
    )
    assert (asked["nodes"], passed_over) == (1, ["-o"])
    with pytest.raises(RequestError, match=r"job\.sh:1"):
        sbatch.question("", "job.sh", [])
