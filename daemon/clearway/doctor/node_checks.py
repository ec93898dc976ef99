"""What compute nodes have, told by a job of a minute at most where it was asked for; and the folder for checkpoints."""

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

from clearway.doctor.case import Case, Result, advice, fault, ok, untried
from clearway.model.errors import SlurmError
from clearway.service.leadership import APART_S

_JOB_S = 60.0
_NOT_ASKED = untried("not asked for", "--job starts a job of a minute at most")


def launcher(case: Case) -> Result:
    if not case.asked.job:
        return _NOT_ASKED
    try:
        told = case.node
    except SlurmError as error:
        return fault(
            f"a job of one node did not run: {error}",
            f"free a node, choose its partition (--partition), or let {case.user} run jobs (an association in Slurm)",
        )
    where = told.get("launcher", "absent")
    if where == "absent":
        return fault(
            f"{told.get('node', 'the node')} cannot run {case.asked.launcher}: no job saves itself there",
            "clearway launcher FOLDER, which all nodes read; --launcher PATH if it is not on the PATH of jobs",
        )
    if case.asked.launcher_sum and told.get("sum") != case.asked.launcher_sum:
        return advice(f"{where} on {told['node']} is another version's", f"clearway launcher {Path(where).parent}")
    return ok(f"{where} on {told.get('node')} can be run, and is this version's")


def checkpointers(case: Case) -> Result | None:
    """None where the launcher is not there, which has been told."""
    if not case.asked.job:
        return _NOT_ASKED
    told = {name.partition(".")[2]: text for name, text in case.node.items() if name.startswith("checkpointer.")}
    if not told:
        return None
    work = [name for name, text in told.items() if text.split(" ")[0] == "yes"]
    not_here = [
        f"not {name}: {text.removeprefix('no').strip() or 'no answer'}"
        for name, text in told.items()
        if name not in work
    ]
    what = "; ".join([f"{', '.join(work) or 'none'} can be used", *not_here])
    if "application" in work:
        return ok(what)
    return advice(what, "clearway launcher FOLDER copies the drivers to FOLDER/checkpointers")


def node_clock(case: Case) -> Result | None:
    if not case.asked.job:
        return None
    said = case.node.get("time", "")
    if not said.isdecimal():
        return None
    ahead_s = (case.now() - datetime.fromtimestamp(int(said), UTC)).total_seconds()
    if abs(ahead_s) <= APART_S + _JOB_S:
        return ok(f"this machine and {case.node.get('node')} agree")
    return fault(
        f"this machine is {ahead_s:+.0f} s ahead of {case.node.get('node')}: its checkpoints count as too old or new",
        "let chrony or ntpd set the node's clock",
    )


def disk(case: Case) -> Result:
    """The folder that jobs save into, beside what all of them would write."""
    folder = case.asked.checkpoints
    if folder is None:
        return untried("not asked for", "--checkpoints FOLDER, the one that jobs save into")
    try:
        usage = shutil.disk_usage(folder)
        writable = folder.is_dir() and os.access(folder, os.R_OK | os.X_OK)
    except OSError as error:
        return fault(f"{folder}: {error.strerror}", "make it on a file system that every node mounts")
    if not writable:
        return fault(f"{folder} is not a folder that {case.user} may look into", "chmod, or name another folder")
    share = case.config.costs.app_memory_fraction
    needed_gib = sum(each.memory_mib for each in case.site.nodes) * share / 1_024
    free_gib = usage.free / 2**30
    if free_gib < needed_gib:
        return fault(
            f"{free_gib:,.0f} GiB are free in {folder}; if all nodes' jobs save {share:.0%} of their memory, "
            f"{needed_gib:,.0f} GiB are written",
            "make room, or have jobs save elsewhere (clearway-run --dir)",
        )
    return ok(f"{free_gib:,.0f} GiB are free in {folder}; all jobs at once would write {needed_gib:,.0f}")
