"""``clearway walltime submit`` and ``status``: a plan carried out as one Slurm job, without the daemon."""

import getpass
import os
import re
import shutil
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from clearway.cli import render
from clearway.cli.options import BAD_INPUT, FAILED, Output, OutputOption, complain, errors
from clearway.cli.walltime import SequenceOptions, read_distribution
from clearway.model.durations import format_duration
from clearway.model.errors import SlurmError, WalltimeError
from clearway.slurm.process import Commands
from clearway.walltime import chain
from clearway.walltime.request_sequence import Costs, SequencePlan

DEFAULT_CHAINS = Path("~/.clearway/chains")
_OURS = re.compile(r"(--time|--array|--no-requeue|--open-mode)(=|$)|-[ta]")
_SBATCH_TIMEOUT_S = 60.0

ChainsOption = Annotated[
    Path, typer.Option("--chains", envvar="CLEARWAY_CHAINS", help="Folder of your chains; all nodes must see it.")
]


def submit(
    sbatch: Annotated[list[str], typer.Argument(help="Arguments of sbatch, after --: its options and the script.")],
    asked: SequenceOptions,
    chains: ChainsOption = DEFAULT_CHAINS,
) -> None:
    """Submit a job that requests one walltime after another, as planned, until its program has ended."""
    with errors(BAD_INPUT, "walltime submit: "):
        costs = asked.costs
        _, times = read_distribution(asked.distribution, asked.unit.seconds, asked.config)
        _check_arguments(sbatch)
        planned = asked.plan(times, costs)
        folder = _make_folder(chains.expanduser(), planned, costs, sbatch)
    _submit(folder, planned, sbatch)


def status(
    chains: ChainsOption = DEFAULT_CHAINS,
    output: OutputOption = Output.TABLE,
    forget: Annotated[bool, typer.Option("--forget", help="Delete the folders of finished chains.")] = False,
) -> None:
    """Your chains, one line each: the current request, the work saved, and the state."""
    where = chains.expanduser()
    folders = sorted(path.parent for path in where.glob("*/plan"))
    queue = _queue() if folders else {}
    rows: list[dict[str, object]] = []
    for folder in folders:
        job = _text(folder / "job")
        count = len(_text(folder / "plan").splitlines())
        state: chain.ChainState | None = None
        try:
            state = chain.parse_state(_text(folder / "state"))
            said = chain.standing(state, None if queue is None else queue.get(job), asked=queue is not None)
        except WalltimeError as error:
            said = f"damaged: {error}"
        if forget and state is not None and state.stage.over:
            shutil.rmtree(folder)
            continue
        known = defaultdict(lambda: None, {} if state is None else asdict(state))
        row: dict[str, object] = {"chain": folder.name, "job_id": job, "state": said, "request": known["request"]}
        row |= {"requests": count, "asked_s": known["asked_s"], "saved_s": known["saved_s"], "exit_code": known["code"]}
        rows.append(row)
    if output is Output.JSON:
        render.print_json(rows)
    elif rows:
        render.console().print(render.listing(rows, _COLUMNS))
    else:
        print(f"no chains in {render.visible(str(where))}")


_COLUMNS: render.Columns = {
    "chain": lambda row: row["chain"],
    ">job": lambda row: row["job_id"] or "-",
    "state": lambda row: row["state"],
    ">request": lambda row: "-" if row["request"] is None else f"{row['request']} of {row['requests']}",
    ">asks for": lambda row: "-" if row["asked_s"] is None else format_duration(row["asked_s"]),
    ">work saved": lambda row: "-" if row["saved_s"] is None else format_duration(row["saved_s"]),
}


def _check_arguments(sbatch: Sequence[str]) -> None:
    """Raises ``WalltimeError``: an argument that a chain sets itself, or an array, and where it stands."""
    for argument in sbatch:
        if _OURS.match(argument):
            raise WalltimeError(f"{argument}: a chain sets its own time limits, requeues, and is no array")
        _check_export(argument, argument)
    texts = {script: script.read_text(encoding="utf-8", errors="replace") for script in _files(sbatch)}
    for script, text in texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            for word in line.split()[1:] if line.startswith("#SBATCH") else []:
                if re.match(r"--array(=|$)|-a", word):
                    raise WalltimeError(f"{script}, line {number}: a chain is one job and no array")
                _check_export(word, f"{script}, line {number}")
    if texts and not any("clearway-run" in text for text in texts.values()):
        complain(
            f"{next(iter(texts))} does not start clearway-run: unless your site adds it, only the first request is made"
        )


def _files(sbatch: Sequence[str]) -> list[Path]:
    return [path for path in (Path(each) for each in sbatch if not each.startswith("-")) if path.is_file()]


def _check_export(argument: str, where: str) -> None:
    if argument.startswith("--export=") and "ALL" not in argument:
        raise WalltimeError(f"{where}: the job needs an environment variable of the chain: write --export=ALL,...")


def _make_folder(chains: Path, planned: SequencePlan, costs: Costs, sbatch: Sequence[str]) -> Path:
    plan = chain.plan_text(planned.sequence)
    stem = next((path.stem for path in _files(sbatch)), "job")
    try:
        chains.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=re.sub(r"[^A-Za-z0-9._+-]", "_", stem)[:40] + "-", dir=chains)).resolve()
        (folder / "plan").write_text(plan)
        (folder / "state").write_text(chain.first_state(planned.sequence, costs))
    except OSError as error:
        raise WalltimeError(f"{chains}: {error.strerror}") from None
    return folder


def _submit(folder: Path, planned: SequencePlan, sbatch: Sequence[str]) -> None:
    minutes = chain.limit_minutes(planned.sequence[0].request_s)
    command = ["sbatch", "--parsable", "--requeue", "--open-mode=append", f"--time={minutes}", *sbatch]
    try:
        done = subprocess.run(  # noqa: S603 - the user's own arguments, no shell
            command,
            env=os.environ | {"CLEARWAY_CHAIN": str(folder)},
            stdout=subprocess.PIPE,
            text=True,
            timeout=_SBATCH_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        why = error.strerror if isinstance(error, OSError) else f"no answer within {_SBATCH_TIMEOUT_S:g} s"
        complain(f"walltime submit: sbatch: {why}")
        if isinstance(error, OSError):
            shutil.rmtree(folder)
        raise typer.Exit(FAILED) from None
    job = done.stdout.strip().partition(";")[0]
    if done.returncode != 0 or not job.isdecimal():
        shutil.rmtree(folder)  # sbatch has said why
        raise typer.Exit(done.returncode or FAILED)
    (folder / "job").write_text(f"{job}\n")
    first = f"the first of {render.counted(len(planned.sequence), 'request')}"
    print(f"job {job}: {first}, {format_duration(planned.sequence[0].request_s)}; chain {render.visible(folder.name)}")


def _queue() -> dict[str, chain.SlurmView] | None:
    """What Slurm says of all jobs of this user; None, with the reason on standard error, when it does not answer."""
    user = f"--user={getpass.getuser()}"
    try:
        return chain.parse_queue(Commands().run(["squeue", "--noheader", "--states=all", user, "--format=%A|%T|%r"]))
    except SlurmError as error:
        complain(f"Slurm does not say where the jobs are: {error}")
        return None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
