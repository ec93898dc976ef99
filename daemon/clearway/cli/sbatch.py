"""What a batch script and sbatch's arguments ask for, as far as a plan depends on it.

sbatch reads ``#SBATCH`` lines up to the first line that is a command; its arguments come before them, and of a script
the last line counts. Options that are not looked at are named, so that no one takes them for looked at.
"""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import ceil
from typing import Any, NamedTuple, NoReturn

from clearway.model.errors import RequestError
from clearway.slurm.parse.fields import FieldError
from clearway.slurm.parse.fields import duration_s as slurm_duration_s

LARGEST_SCRIPT = 4 * 2**20  # bytes; Slurm's own limit (max_script_size) is that by default
_MIB = {"": 1.0, "K": 1 / 1_024, "M": 1.0, "G": 1_024.0, "T": 1_024.0**2}
_SHORT = {
    "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "G": "gpus", "t": "time", "p": "partition", "q": "qos",
    "A": "account", "C": "constraint", "J": "job-name", "a": "array", "H": "hold", "O": "overcommit",
    "s": "oversubscribe", "Q": "quiet", "v": "verbose", "W": "wait", "k": "no-kill", "w": "nodelist", "x": "exclude",
    "F": "nodefile", "L": "licenses", "d": "dependency", "b": "begin",
}  # fmt: skip
# Options without a value, or with one after an equals sign alone.
_ALONE = frozenset({
    "exclusive", "hold", "overcommit", "oversubscribe", "quiet", "verbose", "wait", "no-kill", "requeue", "no-requeue",
    "contiguous", "parsable", "test-only", "spread-job", "use-min-nodes", "ignore-pbs", "reboot", "get-user-env",
    "propagate", "nice", "stepmgr", "resv-ports",
})  # fmt: skip
_PLANNED_SINGLY = "a preview is for single jobs alone"
_WAITS = "the job would wait for more than nodes, and Clearway leaves it to Slurm meanwhile"
MATTERS = frozenset(
    {"--nodelist", "--exclude", "--nodefile", "--contiguous", "--switches", "--cpus-per-gpu", "--mem-per-gpu"}
)


class Given(NamedTuple):
    """One option, where it stands, and its value; None: it has none."""

    where: str
    name: str
    value: str | None = None


def question(script: str, name: str, arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The body of a what-if question, and the options that it does not tell. Raises ``RequestError``."""
    known: dict[str, Any] = {}
    passed_over: dict[str, None] = {}
    for given in (*_in_script(script, name), *_options(list(arguments), "argument")):
        if given.name not in _READERS:
            passed_over[given.name if given.name.startswith("-") else f"--{given.name[:40]}"] = None
            continue
        key, read = _READERS[given.name]
        try:
            known[key] = read(given.value or "")
        except (ValueError, FieldError) as error:
            shown = f"--{given.name}={given.value}" if given.value else f"--{given.name}"
            raise RequestError(f"{given.where}: {shown[:80]}: {error}") from None
        if given.name == "mem" and not known[key]:  # all that a node has
            known["exclusive"] = True
    body = _body(known)
    if body.get("nodes") != 1 and known.keys() & {"gpus_in_all", "gpus_per_task"}:
        raise RequestError(
            "GPUs per job or per task on several nodes: Slurm decides how many that is on each; use --gpus-per-node"
        )
    return body, list(passed_over)


def _in_script(script: str, name: str) -> Iterator[Given]:
    lines = script.splitlines()
    if not lines or not lines[0].startswith("#!"):
        raise RequestError(f"{name}:1: a batch script begins with #!, such as #!/bin/sh")
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            return
        if re.match(r"#SBATCH(\s|$)", line):
            where = f"{name}:{number}"
            try:
                words = shlex.split(line.removeprefix("#SBATCH"), comments=True)
            except ValueError as error:
                raise RequestError(f"{where}: {error}") from None
            if words[:1] in (["hetjob"], ["packjob"]):
                raise RequestError(f"{where}: a heterogeneous job: {_PLANNED_SINGLY}")
            yield from _options(words, where)


def _options(words: list[str], where: str) -> Iterator[Given]:
    rest = iter(words)
    for word in rest:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            alone = bool(equals) or name in _ALONE
        elif word.startswith("-") and len(word) > 1:
            name, value = _SHORT.get(word[1], word[:2]), word[2:].removeprefix("=")
            alone = bool(value) or name in _ALONE
        else:
            raise RequestError(f"{where}: {word[:60]!r}: options begin with -; name the script by --script")
        given = value if alone else next(rest, None)
        if given is None:
            raise RequestError(f"{where}: {word[:60]}: a value is missing")
        yield Given(where, name, given or None)


def _body(known: Mapping[str, Any]) -> dict[str, Any]:
    nodes, tasks = _size(known)
    body = {name: known[name] for name in _PASSED_ON if name in known} | {"tasks": tasks}
    if nodes is not None:
        body["nodes"] = nodes
    if gpus := _gpus_on_each_node(known, tasks):
        body["gpus"] = gpus
    if "memory_mib" not in known and "mib_per_cpu" in known:
        cpus = ceil(tasks / (nodes or 1)) * known.get("cpus_per_task", 1)
        body["memory_mib"] = ceil(known["mib_per_cpu"] * cpus)
    return body


def _size(known: Mapping[str, Any]) -> tuple[int | None, int]:
    """Nodes and tasks. Slurm runs one task on each node unless told otherwise; None: as many nodes as tasks need."""
    per_node, nodes, tasks = known.get("ntasks_per_node"), known.get("nodes"), known.get("tasks")
    if tasks is None:
        nodes = nodes or 1
        return nodes, (per_node or 1) * nodes
    return (ceil(tasks / per_node) if nodes is None and per_node else nodes), tasks


def _gpus_on_each_node(known: Mapping[str, Any], tasks: int) -> dict[str, int]:
    """Those for the whole job or for each task count for one node: ``question`` refuses them on several."""
    for_the_job = known.get("gpus") or known.get("gpus_in_all")
    return dict(for_the_job or {kind: count * tasks for kind, count in known.get("gpus_per_task", {}).items()})


_PASSED_ON = (
    "cpus_per_task", "memory_mib", "exclusive", "constraint", "qos", "account", "job_name", "comment", "partition",
)  # fmt: skip


def _count(value: str) -> int:
    """``4``, ``1k``; of ``2-4`` the least, which is what Slurm starts the job with."""
    match = re.fullmatch(r"([0-9]{1,9})([kKmM]?)(-[0-9]{1,9}[kKmM]?)?(:[0-9]+)?", value)
    number = int(match[1]) * {"": 1, "k": 1_024, "m": 1_024**2}[match[2].lower()] if match else 0
    if number < 1:
        raise ValueError("must be a whole number of at least 1")
    return number


def _mib(value: str) -> int:
    match = re.fullmatch(r"([0-9]{1,12})([KMGT]?)B?", value.upper())
    if match is None:
        raise ValueError("must be a size such as 4000M or 16G")
    return ceil(int(match[1]) * _MIB[match[2]])


def _gpus(value: str) -> Counter[str]:
    """``4``, ``a100:4``, ``a100:2,v100:2``."""
    found: Counter[str] = Counter()
    for item in value.split(","):
        kind, colon, count = item.rpartition(":")
        if not colon and not item.isdecimal():
            kind, count = item, "1"
        found[kind] += _count(count)
    return found


def _gres(value: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for item in value.split(","):
        name, _, rest = item.partition(":")
        if name.removeprefix("gres/") != "gpu":
            raise ValueError("of generic resources only GPUs can be planned for")
        found += _gpus(rest or "1")
    return found


def _name(value: str) -> str:
    if not value:
        raise ValueError("a value is missing")
    return value


def _partition(value: str) -> str:
    if "," in value:
        raise ValueError("a plan is made for one partition: name one with --partition as an argument")
    return _name(value)


def _refuse(why: str, _: str) -> NoReturn:
    raise ValueError(why)


# Of every option that is looked at: the name of what it asks for, and how its value is read.
_READERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "nodes": ("nodes", _count),
    "ntasks": ("tasks", _count),
    "ntasks-per-node": ("ntasks_per_node", _count),
    "cpus-per-task": ("cpus_per_task", _count),
    "mem": ("memory_mib", _mib),
    "mem-per-cpu": ("mib_per_cpu", _mib),
    "gres": ("gpus", _gres),
    "gpus-per-node": ("gpus", _gpus),
    "gpus": ("gpus_in_all", _gpus),
    "gpus-per-task": ("gpus_per_task", _gpus),
    "time": ("", lambda value: slurm_duration_s(_name(value), "it")),  # no plan depends on it, but sbatch refuses some
    "partition": ("partition", _partition),
    "qos": ("qos", _name),
    "account": ("account", _name),
    "constraint": ("constraint", _name),
    "job-name": ("job_name", _name),
    "comment": ("comment", str),
    "exclusive": ("exclusive", lambda value: not value),  # =user and =mcs share nodes
    "licenses": ("", partial(_refuse, "it is not known whether enough licenses become free: the job is left to Slurm")),
    "reservation": ("", partial(_refuse, "the placement is a reservation too: the job is left to Slurm")),
    "dependency": ("", partial(_refuse, _WAITS)),
    "begin": ("", partial(_refuse, _WAITS)),
    "hold": ("", partial(_refuse, _WAITS)),
    "array": ("", partial(_refuse, f"an array of tasks: {_PLANNED_SINGLY}")),
}
