"""``clearway init``: a first configuration from what Slurm says, and from a measurement where one is asked for."""

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from clearway.cli import options
from clearway.config.configuration import parse_config
from clearway.doctor.first_configuration import first_configuration
from clearway.model.errors import ClearwayError
from clearway.slurm.site_facts import Site

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
        known = {each.name for each in site.partitions} | {each.name for each in site.qos or ()}
        if urgent and urgent not in known:
            raise ClearwayError(f"Slurm has no partition and no QoS {urgent}; it has {', '.join(sorted(known))}")
        mib_s = bandwidth_mib_s(measure) if measure else None
        text = first_configuration(site, state=str(state), conf=str(conf or ""), urgent=urgent, mib_s=mib_s)
        config = parse_config(text, str(file or "the first configuration"))
        if file is None:
            print(text, end="")
            return
        _write(file, text)
    rule = config.preemptors[0] if config.preemptors else None
    what = f"{(rule.partition or rule.qos)[0]} is urgent" if rule else "no rule for urgent jobs yet: edit it"
    print(f"{file}: observe mode, {what}\nNext: clearway check-config {file} && clearway doctor -c {file}")


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


def _write(file: Path, text: str) -> None:
    """In place: the file keeps its owner and mode. A new one is closed to others, for it may get a password."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.truncate(0)
            out.write(text)
    except OSError as error:
        raise ClearwayError(f"{file}: cannot be written: {error.strerror}") from None
