"""Tries everyday programs with each checkpointer, and keeps a record from which a page is made.

    python -m tests.checkpointed.table --dmtcp /opt/dmtcp/bin --criu /usr/sbin/criu --page

Each program runs once undisturbed. Then it runs as a batch job's program, is saved twice, and is ended after each save
as Slurm ends a job that it requeues. What it leaves is compared. It needs root, as CRIU does.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import platform
import shutil
import tempfile
import threading
from pathlib import Path

from tests.checkpointed.page import PAGE, render
from tests.checkpointed.program import Program
from tests.checkpointed.programs import PROGRAMS
from tests.checkpointed.record import RECORD, Record
from tests.checkpointed.trial import Undisturbed, Way, tried, undisturbed

TREE = Path(__file__).parents[2]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.checkpointed.table", description=__doc__.partition("\n")[0])
    made.add_argument("programs", nargs="*", metavar="PROGRAM", help="names of programs; all if none is given")
    made.add_argument("--dmtcp", action="append", default=[], type=Path, metavar="DIR", help="a DMTCP's folder bin")
    made.add_argument("--criu", type=Path, metavar="FILE", help="the program criu")
    made.add_argument("--launcher", type=Path, default=TREE / "plugins" / "slurm", metavar="DIR")
    made.add_argument("--jobs", type=int, default=3, metavar="N", help="programs at a time (default 3)")
    made.add_argument("--list", action="store_true", help="only name the programs")
    made.add_argument("--missing", action="store_true", help="only what the record does not hold yet")
    made.add_argument("--record", type=Path, default=RECORD, metavar="FILE")
    made.add_argument("--keep", type=Path, metavar="DIR", help="leave the jobs' folders there")
    made.add_argument("--page", action="store_true", help=f"write {PAGE.relative_to(TREE)} from the record at the end")
    return made


def machine() -> dict[str, str]:
    release = platform.freedesktop_os_release()
    debian = Path("/etc/debian_version")
    version = debian.read_text().strip() if debian.exists() else release.get("VERSION_ID", "")
    return {
        "system": f"{release['ID'].capitalize()} {version}",
        "kernel": platform.release().partition("-")[0],
        "libc": " ".join(platform.libc_ver()),
        "processors": str(len(os.sched_getaffinity(0))),
    }


def lacking(program: Program) -> str:
    gone = [need for need in program.needs if not (Path(need).exists() if "/" in need else shutil.which(need))]
    return f"not here: {', '.join(gone)}" if gone else ""


def each(program: Program, ways: list[Way], folder: Path, chosen: argparse.Namespace, record: Record) -> None:
    launcher = chosen.launcher.resolve()
    if reason := lacking(program):
        print(f"{program.name}: {reason}", flush=True)
        return
    base: Undisturbed = undisturbed(program, folder / "undisturbed", launcher)
    record.undisturbed(program, base)
    if not base.sound:
        print(f"{program.name}: undisturbed it ended with status {base.status}: {base.errors[-300:]}", flush=True)
        return
    for way in ways:
        place = folder / way.key.replace(" ", "-")
        outcome = tried(program, way, base, place, launcher)
        record.outcome(program, way.key, outcome)
        print(f"{program.name} | {way.key} | {outcome.line_for_people()}", flush=True)
        if not chosen.keep:
            shutil.rmtree(place, ignore_errors=True)


def main() -> None:
    chosen = parser().parse_args()
    names = chosen.programs or list(PROGRAMS)
    unknown = [name for name in names if name not in PROGRAMS]
    if unknown:
        raise SystemExit(f"no such program: {', '.join(unknown)} (--list names them)")
    if chosen.list:
        print("\n".join(f"{name}: {PROGRAMS[name].shows}" for name in names))
        return
    ways = [Way.dmtcp(folder.resolve()) for folder in chosen.dmtcp]
    if chosen.criu:
        ways.append(Way.criu(chosen.criu.resolve()))
    record = Record(chosen.record, threading.Lock())
    if ways:
        record.made(machine(), {way.key: way.version for way in ways})
        folder = chosen.keep or Path(tempfile.mkdtemp(prefix="clearway-table."))
        folder.mkdir(exist_ok=True)
        try:
            with concurrent.futures.ThreadPoolExecutor(chosen.jobs) as pool:
                todo = []
                for number, name in enumerate(names):
                    left = [way for way in ways if not chosen.missing or not record.has(name, way.key)]
                    if left:
                        place = folder / f"{number}"
                        todo.append(pool.submit(each, PROGRAMS[name], left, place, chosen, record))
                for done in concurrent.futures.as_completed(todo):
                    done.result()
        finally:
            if not chosen.keep:
                shutil.rmtree(folder, ignore_errors=True)
    if chosen.page:
        PAGE.write_text(render(record.read()))


if __name__ == "__main__":
    main()
