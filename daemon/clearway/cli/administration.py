"""``clearway init``, ``token``, ``backup``, ``verify``, ``restore`` and ``doctor``: what a site's daemon needs."""

import hashlib
import os
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from clearway import __version__
from clearway.api.logins import NAME, Tokens, new_token
from clearway.bootstrap import must_exist, open_store
from clearway.cli import asker, launcher, options, render
from clearway.config.configuration import Config, load_config, parse_config
from clearway.doctor.case import Asked, Case, Finding, State
from clearway.doctor.examination import examine
from clearway.doctor.first_configuration import first_configuration
from clearway.model.audit import Audited, AuditKind
from clearway.model.errors import ClearwayError, ConfigError
from clearway.model.requests import Role
from clearway.slurm.site_facts import Site
from clearway.store import backup as backups
from clearway.store import cluster
from clearway.store.backup import faults
from clearway.store.database import Database, open_database
from clearway.telemetry.log import configure_logging

_BLOCK_MIB = 8
_MOST_MIB, _MOST_S = 1_024, 10.0
_STATE = Path("/var/lib/clearway")


def init(
    file: Annotated[
        Path | None, typer.Argument(help="File to write, such as /etc/clearway/clearway.toml; default: print it.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Write over the file; it keeps its owner and mode.")
    ] = False,
    urgent: Annotated[str, typer.Option(metavar="NAME", help="Partition or QoS of urgent jobs.")] = "",
    measure: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write 1 GiB at most there, for 10 seconds at most, and take its rate."),
    ] = None,
    conf: Annotated[
        Path | None, typer.Option("--slurm-conf", envvar="SLURM_CONF", help="slurm.conf; default: Slurm's own.")
    ] = None,
    state: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of the daemon's database.")] = _STATE,
) -> None:
    """Write a first configuration from what Slurm says: in observe mode, with the reasons as comments."""
    with options.errors():
        if file is not None and file.exists() and not replace:
            raise ClearwayError(f"{file} exists; --replace writes over it")
        site = Site(str(conf) if conf else None).read()
        known = {each.name for each in site.partitions} | set(site.qos or ())
        if urgent and urgent not in known:
            raise ClearwayError(f"Slurm has no partition and no QoS {urgent}; it has {', '.join(sorted(known))}")
        mib_s = bandwidth_mib_s(measure) if measure else None
        text = first_configuration(site, state=str(state), conf=str(conf or ""), urgent=urgent, mib_s=mib_s)
        config = parse_config(text, str(file or "the first configuration"))
        if file is None:
            print(text, end="")
        else:
            _write_configuration(file, text)
            print(_next_steps(file, config))


def _next_steps(file: Path, config: Config) -> str:
    rule = config.preemptors[0] if config.preemptors else None
    what = f"{(rule.partition or rule.qos)[0]} is urgent" if rule else "no rule for urgent jobs yet: edit it"
    return f"{file}: observe mode, {what}\nNext: clearway check-config {file} && clearway doctor -c {file}"


def bandwidth_mib_s(folder: Path) -> float:
    """What one process of this machine writes to this folder, onto the disk. The file is removed on every path."""
    block = os.urandom(_BLOCK_MIB * 2**20)  # nothing that a file system could make smaller
    written_mib, began = 0, time.monotonic()
    try:
        with tempfile.TemporaryFile(dir=folder) as out:
            while written_mib < _MOST_MIB and time.monotonic() - began < _MOST_S:
                out.write(block)
                out.flush()
                os.fsync(out.fileno())
                written_mib += _BLOCK_MIB
    except OSError as error:
        raise ClearwayError(f"{folder} cannot be measured: {error.strerror}") from None
    rate = written_mib / max(time.monotonic() - began, 1e-6)
    print(f"{folder}: {written_mib} MiB written at {rate:,.0f} MiB/s", file=sys.stderr)
    return rate


def _write_configuration(file: Path, text: str) -> None:
    """In place: the file keeps its owner and mode. A new one is closed to others, for it may get a password."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.truncate(0)
            out.write(text)
    except OSError as error:
        raise ClearwayError(f"{file}: cannot be written: {error.strerror}") from None


_LONGEST = timedelta(days=3_660)


def token(
    name: Annotated[str, typer.Argument(help="Name of the person or program; a user's own name for a user.")],
    role: Annotated[Role, typer.Option(help="What the token may do; each role includes those before it.")],
    valid: Annotated[str, typer.Option(help="How long it is good (90d, 12h), at most ten years; 0: for ever.")] = "90d",
    config: options.ConfigOption = options.DEFAULT_CONFIG,
) -> None:
    """Make a token, add its hash to the token file, and print it once; `systemctl reload clearway` takes it over."""
    settings = options.configuration(config)
    if not NAME.fullmatch(name):
        raise typer.BadParameter("a name has letters, digits and ._@- alone, 64 at most")
    lasts = timedelta(seconds=options.duration_s(valid))
    if lasts > _LONGEST:
        raise typer.BadParameter("a token is good for ten years at most; 0: for ever")
    end = datetime.now(UTC).replace(microsecond=0) + lasts if lasts else None
    with options.errors():
        file = settings.api.token_file
        if file is None:
            raise ConfigError("the configuration names no api.token_file")
        if file.exists():
            Tokens(file)  # refuses a file that the daemon would refuse
        secret, entry = new_token(name, role, end)
        _record_token(settings, entry.line.rpartition(" ")[0])
        _append_line(file, entry.line)
    print(secret)
    until = "does not end" if end is None else f"ends {end:%Y-%m-%d %H:%M} UTC"
    print(f"clearway: {file}: {name}, role {role.value}, {until}; the token is shown only now", file=sys.stderr)


def _record_token(settings: Config, what: str) -> None:
    """Before there is a database nothing can be recorded; the daemon's start will name the token all the same."""
    try:
        opened = open_store(settings)
    except ConfigError:
        return
    with closing(opened) as store:
        audited = Audited(at=datetime.now(UTC), actor=asker.actor(), kind=AuditKind.TOKEN, about={"token": what})
        store.audit(audited)


def _append_line(file: Path, line: str) -> None:
    """A file that is there keeps its owner and mode; a new one is its maker's alone."""
    try:
        with os.fdopen(os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600), "rb+") as opened:
            end = opened.seek(0, os.SEEK_END)
            complete = not end or (opened.seek(end - 1), opened.read(1))[1] == b"\n"
            opened.write(("" if complete else "\n").encode() + line.encode() + b"\n")
            opened.flush()
            os.fsync(opened.fileno())
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error.strerror}") from None


FileArgument = Annotated[Path, typer.Argument(help="File of the backup.")]


def backup(
    file: Annotated[Path, typer.Argument(help="New file; its owner alone may read it.")],
    config: options.ConfigOption = options.DEFAULT_CONFIG,
) -> None:
    """Write the whole database to a file, while the daemon may be running."""
    with options.errors(), _database(config) as database:
        made = backups.write(database, file, datetime.now(UTC))
    print(f"{file}: {sum(made.rows.values())} rows, schema {made.revision}, SHA-256 {made.sha256}")


def verify(
    file: Annotated[Path | None, typer.Argument(help="A backup; without one: the database itself.")] = None,
    config: options.ConfigOption = options.DEFAULT_CONFIG,
) -> None:
    """Check the database, or a backup: schema, references, documents, audit trail. Tells what is wrong."""
    with options.errors():
        if file is None:
            with _database(config) as database:
                found, what = faults(database), database.shown_url
        else:
            with tempfile.TemporaryDirectory() as folder, _opened(f"sqlite:///{folder}/verify.sqlite") as database:
                backups.restore(database, file, datetime.now(UTC), actor="verify")
                found, what = faults(database), str(file)
    for fault in found:
        options.complain(fault)
    if found:
        raise typer.Exit(options.FAILED)
    print(f"{render.visible(what)}: good")


def restore(
    file: FileArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Also replace a database with operations that have not ended.")
    ] = False,
    config: options.ConfigOption = options.DEFAULT_CONFIG,
) -> None:
    """Replace the database by a backup, and pause; refused while a daemon leads. What it held is written to a file."""
    with options.errors(), _opened(options.configuration(config).store.url) as database:
        replaced = backups.restore(database, file, datetime.now(UTC), actor=asker.actor(), force=force)
    if replaced is not None:
        print(f"What the database held before is in {replaced}")
    print("Restored. Clearway begins nothing until `clearway resume`: look at `clearway evictions list` first.")


def adopt(
    force: Annotated[
        bool, typer.Option("--force", help="Also with operations that have not ended: their jobs are those of before.")
    ] = False,
    config: options.ConfigOption = options.DEFAULT_CONFIG,
) -> None:
    """Give the database to the cluster that Slurm's commands reach here: after it was renamed, or its controller moved.

    A database belongs to one cluster, and a daemon of another one refuses it. Refused while a daemon leads.
    """
    settings = options.configuration(config)
    conf = str(settings.slurm.conf) if settings.slurm.conf else None
    with options.errors(), _database(config) as database:
        seen, _ = Site(conf, settings.slurm.timeout).identity_and_vouched()
        if seen is None:
            raise ClearwayError("Slurm does not say which cluster this is")
        before = cluster.adopt(database, seen, datetime.now(UTC), actor=asker.actor(), force=force)
    print(f"The database belongs to {seen}" + (f"; before: {before}" if before is not None else ""))


@contextmanager
def _database(config: Path) -> Iterator[Database]:
    """The configured database as it is, without a migration."""
    url = options.configuration(config).store.url
    must_exist(url)
    with _opened(url) as database:
        yield database


@contextmanager
def _opened(url: str) -> Iterator[Database]:
    database = open_database(url)
    try:
        yield database
    finally:
        database.engine.dispose()


_SHOWN = {
    State.OK: ("ok", "green"),
    State.ADVICE: ("look", "yellow"),
    State.FAULT: ("FAULT", "bold red"),
    State.UNTRIED: ("-", "dim"),
}


def doctor(
    config: options.ConfigOption = options.DEFAULT_CONFIG,
    job: Annotated[
        bool, typer.Option("--job", help="Run a job of one node, a minute at most, which looks for the launcher.")
    ] = False,
    partition: Annotated[str, typer.Option(help="Partition of that job; default: Slurm's.")] = "",
    launcher_path: Annotated[
        str, typer.Option("--launcher", metavar="PATH", help="How jobs call the launcher.")
    ] = "clearway-run",
    checkpoints: Annotated[Path | None, typer.Option(help="Folder that jobs save into: has it room?")] = None,
    prometheus: Annotated[str, typer.Option(metavar="URL", help="Ask this Prometheus whether it scrapes.")] = "",
    output: options.OutputOption = options.Output.TABLE,
) -> None:
    """Look for everything that must hold: Slurm, rights, clocks, database, port, tokens, nodes; and what to do.

    Nothing is changed. Run it as the daemon's user, beside the daemon or before its first start. Exit status 0: no
    fault; 1: faults; 2: the configuration cannot be read.
    """
    try:
        settings = load_config(config)
    except ConfigError as error:
        for fault in error.faults or (str(error),):
            options.complain(fault)
        raise typer.Exit(options.BAD_INPUT) from None
    configure_logging("text", quiet=True)  # standard output is for the page alone
    asked = Asked(
        prometheus=prometheus,
        checkpoints=checkpoints,
        job=job,
        partition=partition,
        launcher=launcher_path,
        launcher_sum=_sum(),
    )
    case = Case(settings, asked, asker.user())
    found = _document(config, case) if output is options.Output.JSON else _page(config, case, output)
    raise typer.Exit(options.FAILED if _faulty(found) else 0)


def _sum() -> str:
    """Of the launcher that belongs to this installation; "" where it has none."""
    try:
        return hashlib.sha256(launcher.source("clearway-run").read_bytes()).hexdigest()
    except (ConfigError, OSError):
        return ""


def _faulty(found: list[Finding]) -> bool:
    return any(each.state is State.FAULT for each in found)


def _document(config: Path, case: Case) -> list[Finding]:
    found = list(examine(case))
    about = {"version": __version__, "config": str(config), "user": case.user, "good": not _faulty(found)}
    render.print_json(about | {"findings": [asdict(each) for each in found]})
    return found


def _page(config: Path, case: Case, output: options.Output) -> list[Finding]:
    """Line by line as it is found: a job takes its time."""
    out = render.console(output)
    out.print(Text(render.visible(f"Clearway {__version__}, {config}, tried as {case.user}")))
    found: list[Finding] = []
    for each in examine(case):
        if not found or found[-1].area != each.area:
            out.print(Text(f"\n{each.area}", style="bold"))
        again = bool(found) and (found[-1].area, found[-1].check) == (each.area, each.check)
        out.print(_lines(each, out.width, again=again))
        found.append(each)
    count = Counter(each.state for each in found)
    words = {State.FAULT: f"fault{'s' * (count[State.FAULT] != 1)}", State.ADVICE: "to look at"}
    words |= {State.UNTRIED: "not tried"}
    said = [f"{count[state]} {word}" for state, word in words.items() if count[state]]
    good, style = ("Not ready", "bold red") if count[State.FAULT] else ("Everything that must hold holds", "bold green")
    out.print(Text(f"\n{': '.join([good, *([', '.join(said)] if said else [])])}.", style=style))
    return found


def _lines(finding: Finding, width: int, *, again: bool) -> Text:
    word, style = _SHOWN[finding.state]
    left = f"  {word:<5}  {'' if again else finding.check:<13}  "
    room = max(30, width - len(left) - 1)
    below = f"\n{' ' * len(left)}"
    told = textwrap.wrap(render.visible(finding.what), room, break_on_hyphens=False)
    remedy = render.visible(finding.remedy)
    advised = textwrap.wrap(remedy, room - 3, break_on_hyphens=False, break_long_words=False)
    made = Text.assemble(left[:2], (left[2:7], style), left[7:], below.join(told))
    for number, line in enumerate(advised):
        made.append(below).append(f"{'   ' if number else '-> '}{line}", style="cyan")
    return made
