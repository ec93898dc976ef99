"""What is installed beside the daemon: the systemd unit and the job submit script, checked by their own tools."""

from __future__ import annotations

import configparser
import random
import re
import subprocess
from pathlib import Path

import pytest

from clearway.model.claims import ClaimError, parse_claims
from tests.integration.prometheus import require

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "systemd" / "clearway.service"
SCRIPT = DEPLOY.parent / "plugins" / "slurm" / "job_submit.lua"
WORST_EXPOSURE = 14  # tenths, of the file alone; of the unit that runs it is 12 (tests/package)

# Calls the script as slurmctld does: arguments partition, qos, comment (- for none), then those of a later change.
HARNESS = """
slurm = {SUCCESS = 0, ERROR = -1}
function slurm.log_user(...) print("says " .. string.format(...)) end
assert(dofile(arg[1]) == slurm.SUCCESS)
local function given(n) if arg[n] ~= nil and arg[n] ~= "-" then return arg[n] end end
local job = {partition = given(2), qos = given(3), comment = given(4)}
local rc
if arg[5] == nil then
   rc = slurm_job_submit(job, {}, 1000)
else
   rc = slurm_job_modify({comment = given(5)}, job, {}, tonumber(arg[6] or "1000"))
end
print("rc " .. rc)
print("comment " .. tostring(job.comment))
"""


def unit() -> dict[str, str]:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # systemd's keys differ by case
    parser.read(UNIT)
    return dict(parser["Service"])


def test_the_unit_is_what_the_daemon_expects() -> None:
    service = unit()
    assert service["Type"] == "notify"
    assert service["User"] == "clearway", "never root"
    assert "kill -HUP" in service["ExecReload"]
    assert service["ExecStart"].endswith("clearway serve --config /etc/clearway/clearway.toml")
    assert service["WatchdogSec"]


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    require("systemd-analyze")
    copy = tmp_path / "clearway.service"
    copy.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", UNIT.read_text(), flags=re.MULTILINE))
    verified = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
    complaints = [line for line in verified.stderr.splitlines() if "clearway.service" in line]
    assert verified.returncode == 0, verified.stderr
    assert complaints == []
    security = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={WORST_EXPOSURE}", str(copy)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert security.returncode == 0, security.stdout[-2_000:]


def submit(*arguments: str) -> dict[str, str]:
    require("lua5.4")
    done = subprocess.run(
        ["lua5.4", "-", str(SCRIPT), *arguments], input=HARNESS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return {line.partition(" ")[0]: line.partition(" ")[2] for line in done.stdout.splitlines()}


@pytest.mark.parametrize(
    ("partition", "qos", "comment", "becomes"),
    [
        ("urgent", "-", "-", "clearway:max_delay=10m"),
        ("urgent", "-", "", "clearway:max_delay=10m"),
        ("batch,urgent", "-", "my run", "my run clearway:max_delay=10m"),
        ("-", "urgent", "clearway:checkpoint=signal", "clearway:checkpoint=signal clearway:max_delay=10m"),
        ("urgent", "-", "clearway:max_delay=90", "clearway:max_delay=90"),
        ("urgent", "-", "x clearway:checkpoint=signal,max_delay=1h30m y", None),
        ("batch", "-", "-", "nil"),
        ("-", "-", "clearway:checkpoint=signal", None),
        ("urgently", "not-urgent", "-", "nil"),
        ("batch", "-", "notclearway:max_delay=5m", None),
    ],
)
def test_the_script_lets_jobs_pass(partition: str, qos: str, comment: str, becomes: str | None) -> None:
    said = submit(partition, qos, comment)
    assert said["rc"] == "0", said
    assert said["comment"] == (comment if becomes is None else becomes)


@pytest.mark.parametrize(
    ("partition", "comment", "words"),
    [
        ("batch", "clearway:max_delay=5m", "for urgent jobs"),
        ("-", "a clearway:signal=USR1 clearway:max_delay=5m", "for urgent jobs"),
        ("urgent", "clearway:max_delay=", "must be a duration"),
        ("urgent", "clearway:max_delay=soon", "must be a duration"),
        ("urgent", "clearway:max_delay=5x", "must be a duration"),
        ("urgent", "clearway:max_delay=1m1h", "must be a duration"),
        ("urgent", "clearway:max_delay=-5", "must be a duration"),
        ("urgent", "clearway:max_delay=2d", "24 hours at most"),
    ],
)
def test_the_script_refuses(partition: str, comment: str, words: str) -> None:
    said = submit(partition, "-", comment)
    assert said["rc"] == "-1"
    assert words in said["says"]


@pytest.mark.parametrize(
    ("partition", "before", "after", "uid", "rc"),
    [
        ("batch", "-", "clearway:state=saved,last=1770000000", "1000", "0"),
        ("batch", "-", "clearway:max_delay=1m", "1000", "-1"),
        ("batch", "-", "clearway:max_delay=1m", "0", "0"),
        ("urgent", "clearway:max_delay=10m", "clearway:max_delay=1m", "1000", "0"),
        ("urgent", "clearway:max_delay=10m", "clearway:max_delay=9d", "1000", "-1"),
        ("urgent", "-", "-", "1000", "0"),
    ],
)
def test_the_script_judges_changes(partition: str, before: str, after: str, uid: str, rc: str) -> None:
    assert submit(partition, "-", before, after, uid)["rc"] == rc


# Submits jobs as slurmctld does: each line of the file is a script, its Comment, SBATCH_SIGNAL (- for none), requeue,
# in hexadecimal.
MARKS = """
slurm = {SUCCESS = 0, ERROR = -1, log_user = function() end}
dofile(arg[1])
for line in io.lines(arg[2]) do
   local texts = {}
   for hex in line:gmatch("%S+") do
      texts[#texts + 1] = hex:gsub("..", function(byte) return string.char(tonumber(byte, 16)) end)
   end
   local script, comment, environment, requeue = table.unpack(texts)
   local job = {script = script ~= "-" and script or nil, comment = comment ~= "-" and comment or nil,
                environment = {SBATCH_SIGNAL = environment ~= "-" and environment or nil}, requeue = tonumber(requeue),
                partition = comment == "urgent" and "urgent" or "batch"}
   assert(slurm_job_submit(job, {}, 1000) == slurm.SUCCESS)
   print(job.comment or "nothing")
end
"""
NO_VAL = "65534"  # where neither --requeue nor --no-requeue was given


def marks(tmp_path: Path, jobs: list[tuple[str, str, str, str]]) -> list[str]:
    require("lua5.4")
    listed = tmp_path / "jobs"
    listed.write_text("".join(" ".join(text.encode().hex() for text in job) + "\n" for job in jobs))
    asked = ["lua5.4", "-", str(SCRIPT), str(listed)]
    return subprocess.run(asked, input=MARKS, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("#SBATCH --signal=B:USR1@120", "USR1 batch 120"),
        ("#SBATCH --signal=USR2@90", "USR2 steps 90"),
        ("#SBATCH --signal=SIGUSR1@90", "USR1 steps 90"),
        ("#SBATCH --signal B:TERM@30", "TERM batch 30"),
        ("#SBATCH --signal=B:10", "USR1 batch 60"),
        ("#SBATCH --signal=sigterm@5", "TERM steps 5"),
        ("#SBATCH --signal=RB:USR1@60", "USR1 batch 60"),
        ("#SBATCH --signal='B:USR1@60'", "USR1 batch 60"),
        ("#SBATCH -N1 --signal=INT@60 --time=5 # a word", "INT steps 60"),
        ("#SBATCH\t--signal=HUP@65535", "HUP steps 65535"),
        ("#SBATCH --signal=USR1@10\n\n# a word\n  \n#SBATCH --signal=B:USR2@20", "USR2 batch 20"),
        ("#SBATCH --signal=USR1@65536", ""),
        ("#SBATCH --signal=USR1@999999999999999999999", ""),
        ("#SBATCH --signal=USR1@0", ""),
        ("#SBATCH --signal=USR1@-5", ""),
        ("#SBATCH --signal=KILL@5", ""),
        ("#SBATCH --signal=", ""),
        ("#SBATCH --signal", ""),
        ("#SBATCH --signal=B:", ""),
        ("#SBATCH --signal=USR1,clearway:grace=1@5", ""),
        ("#SBATCH # --signal=USR1@5", ""),
        ("##SBATCH --signal=USR1@5", ""),
        ('#SBATCH --comment="use --signal=USR1@5"', ""),
        ("echo\n#SBATCH --signal=USR1@5", ""),
        ("#SBATCH --signal=B:USR2@300\nexec clearway-run -- ./solver", ""),
    ],
)
def test_a_job_with_signal_and_requeue_is_marked(tmp_path: Path, lines: str, expected: str) -> None:
    script = f"#!/bin/bash\n{lines}\nsrun ./train\n"
    asked, without, refused, no_batch = marks(
        tmp_path, [(script, "-", "-", "1"), (script, "-", "-", NO_VAL), (script, "-", "-", "0"), ("-", "-", "-", "1")]
    )
    name, to, grace = expected.split() if expected else ("", "", "")
    mark = f"clearway:checkpoint=signal,signal={name},to={to},grace={grace}"
    assert asked == (mark if expected else "nothing")
    assert (without, refused, no_batch) == ("nothing",) * 3, "only with --requeue, and only batch jobs"
    if expected:
        claims = parse_claims(asked)
        assert claims is not None
        assert (claims.signal, claims.to, claims.unanswered_s) == (name, to, float(grace)), "as the daemon reads it"


def test_what_a_user_says_of_checkpoints_comes_before_the_mark(tmp_path: Path) -> None:
    script, mark = "#!/bin/sh\n#SBATCH --signal=USR1@9\n", "clearway:checkpoint=signal,signal=USR1,to=steps,grace=9"
    assert marks(
        tmp_path,
        [
            (script, "my run", "-", "1"),
            (script, "clearway:app=solver", "-", "1"),
            (script, "clearway:checkpoint=none", "-", "1"),
            (script, "x" * 1_000, "-", "1"),
            (script, "urgent", "-", "1"),
            (script, "-", "B:12@7", "1"),
            ("#!/bin/sh\n", "-", "B:12@7", "1"),
        ],
    ) == [
        f"my run {mark}",
        f"clearway:app=solver {mark}",
        "clearway:checkpoint=none",
        "x" * 1_000,
        "urgent clearway:max_delay=10m",
        "clearway:checkpoint=signal,signal=USR2,to=batch,grace=7",
        "clearway:checkpoint=signal,signal=USR2,to=batch,grace=7",
    ], "sbatch's environment comes before its script"


@pytest.mark.fault("A script of a megabyte of blanks after a quote could hold slurmctld for hours.", found_by="attack")
@pytest.mark.parametrize(
    "line",
    [
        '"' + " " * 1_000_000,
        "' \"" * 300_000,
        "--signal=" + "9" * 1_000_000 + "!",
        "--signal=" + "B:" * 500_000,
        " " * 10**6,
    ],
)
def test_no_script_keeps_slurmctld_busy(tmp_path: Path, line: str) -> None:
    require("lua5.4")
    script = f"#!/bin/sh\n#SBATCH {line}\n{' ' * 1_000_000}\n#SBATCH --signal=USR1@5\ntrue\n"
    listed = tmp_path / "jobs"
    jobs = ((script, "-", environment, "1") for environment in ("9" * 100_000 + "!", "-"))
    listed.write_text("\n".join(" ".join(text.encode().hex() for text in job) for job in jobs))
    asked = ["lua5.4", "-", str(SCRIPT), str(listed)]
    done = subprocess.run(asked, input=MARKS, capture_output=True, text=True, check=True, timeout=60)
    by_environment, by_script = done.stdout.splitlines()
    assert by_environment == "nothing", "sbatch's environment comes first, and is no signal"
    assert by_script == "clearway:checkpoint=signal,signal=USR1,to=steps,grace=5"


# What separates words to one reader and not to another, digits of other scripts, and the grammar's own pieces.
PIECES = (
    *" \t\v\f\r\n\x1c\x1f\x85\xa0\u2003\u3000,=.x\uff11\u0661",
    *(
        "clearway:",
        "max_delay=",
        "checkpoint=signal",
        "90",
        "0",
        "0s",
        "5m",
        "1h30m",
        "30m1h",
        "1.5",
        "2.",
        "1234567890s",
    ),
)
READ_ALL = """
slurm = {SUCCESS = 0, ERROR = -1, log_user = function() end}
dofile(arg[1])
local clearway = select(2, debug.getupvalue(slurm_job_submit, 1))
for line in io.lines(arg[2]) do
   local comment = line:gsub("..", function(byte) return string.char(tonumber(byte, 16)) end)
   local delay = clearway.max_delay(comment)
   print(delay ~= nil and clearway.seconds(delay) or "nothing")
end
"""


@pytest.mark.fault(
    "A claim behind a no-break space counted in the daemon, though `job_submit.lua` did not see it.", found_by="attack"
)
def test_the_script_and_the_daemon_read_the_same_delay(tmp_path: Path) -> None:
    """Otherwise a job could claim a delay that the script has not seen, or be refused one that counts."""
    require("lua5.4")
    drawn = random.Random(7)
    comments = ["".join(drawn.choices(PIECES, k=drawn.randint(1, 6))) for _ in range(10_000)]
    comments += [f"x{separator}clearway:max_delay=0s" for separator in PIECES]
    comments += [f"clearway:max_delay={drawn.choice(PIECES)}{drawn.choice(PIECES)}" for _ in range(5_000)]
    hexadecimal = tmp_path / "comments"
    hexadecimal.write_text("".join(f"{comment.encode().hex()}\n" for comment in comments))
    asked = ["lua5.4", "-", str(SCRIPT), str(hexadecimal)]
    answers = subprocess.run(asked, input=READ_ALL, capture_output=True, text=True, check=True).stdout.split()
    counted = 0
    for comment, answer in zip(comments, answers, strict=True):
        try:
            claims = parse_claims(comment)
        except ClaimError:
            continue  # it counts as none
        delay_s = None if claims is None else claims.max_delay_s
        assert (None if answer == "nothing" else float(answer)) == delay_s, repr(comment)
        counted += delay_s is not None
    assert counted > 100
