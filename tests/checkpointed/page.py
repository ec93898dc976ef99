"""The page that shows the record."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from tests.checkpointed.programs import PROGRAMS
from tests.checkpointed.trial import YES

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "fifty-programs.md"
KINDS = {
    "saved": "It was saved twice, or once if it had ended by then. Result, output and exit status are as undisturbed.",
    "refused before": "The launcher said no before anybody asked. The program ran on, and its result is right.",
    "refused when asked": "The launcher said no at a request. The program went on, and its result is right.",
    "wrong": "The result, the output or the exit status is another one, or steps are missing.",
    "hung": "The program did not end within two minutes.",
    "lost": "The program began anew, because a save or a restart failed. Its work until then was lost.",
    "ended early": "The program ended before it could be saved. Nothing is known.",
}
NAMES = {"refused at the request": "refused when asked", "ended before": "ended early"}
BAD = ("wrong", "hung", "lost")
TOP = """\
<!-- Made by `python -m tests.checkpointed.table --page`; changes belong into tests/checkpointed. -->
# Everyday programs and both checkpointers

{programs} everyday programs were saved and restarted with each checkpointer. This page shows what became of each.
[DMTCP](dmtcp.md) and [CRIU](criu.md) say what is known of the two. Your own program may be built otherwise. Try it with
`--try` of the [launcher](../howto/make-a-job-preemptable.md).

## How it was done

1. The program ran undisturbed, without the launcher. It computes in small steps for about 8 s, and logs each step.
2. It ran as the program of a batch job. It was asked to save itself after a third of its steps.
3. When the job's Comment said that it is saved, all processes of the job got SIGCONT, SIGTERM, and 2 s later SIGKILL.
   Slurm does the same at a requeue. Its TMPDIR was removed, and so was its shared memory, because another node has
   neither.
4. The job ran again with a new TMPDIR. After two thirds of the steps it was saved and ended once more.
5. It ran a third time, to its end. Its result, output, exit status and steps were compared with the undisturbed run.

Slurm's commands were stand-ins, and all ran as root on one node.
{machine}.
DMTCP 5.0 is its development branch, not a release.

## What became of each

{legend}

*N steps twice* means that N steps were done in two runs. The result was right all the same. The three figures are the
longest time until the program was saved, the longest time until its next step in a new run, and the largest image.

{table}

{counts}

## Why not

{reasons}
{bad}
## What `--try` had said

{trials}

## Make it again

As root, with the programs that the [table of programs](../../tests/checkpointed/programs.py) needs:

```sh
python -m tests.checkpointed.table --dmtcp /opt/dmtcp/bin --criu /usr/sbin/criu --page
```

`--dmtcp` can be given more than once. Names of programs as further words choose some of them. Results are put beside
those of earlier runs in `tests/checkpointed/recorded.json`, and this page is made from that file.
"""


def kind_of(outcome: dict[str, Any]) -> str:
    kind = str(outcome["kind"])
    return NAMES.get(kind, kind)


def cell(outcome: dict[str, Any] | None) -> str:
    if outcome is None:
        return "not tried"
    kind = kind_of(outcome)
    words = [f"**{kind}**" if kind in BAD else kind]
    if outcome["repeated"] and kind in {"saved", "refused when asked"}:
        words.append(f"{outcome['repeated']} step{'s' if outcome['repeated'] > 1 else ''} twice")
    if kind == "saved":
        times = [f"{max(outcome[name]):.1f} s" if outcome[name] else "-" for name in ("save_s", "restart_s")]
        words.append(f"{', '.join(times)}, {outcome['image_mib']} MiB")
    return "; ".join(words)


def table(record: dict[str, Any], ways: list[str]) -> str:
    lines = [f"| program | what it shows | {' | '.join(ways)} |", f"|{'---|' * (2 + len(ways))}"]
    for name, row in record["programs"].items():
        shows = PROGRAMS[name].shows if name in PROGRAMS else ""
        lines.append(f"| {name} | {shows} | {' | '.join(cell(row['ways'].get(way)) for way in ways)} |")
    return "\n".join(lines)


def counts(record: dict[str, Any], ways: list[str]) -> str:
    lines = [f"| outcome | {' | '.join(ways)} |", f"|{'---|' * (1 + len(ways))}"]
    seen = {
        way: Counter(kind_of(row["ways"][way]) for row in record["programs"].values() if way in row["ways"])
        for way in ways
    }
    lines += [
        f"| {kind} | {' | '.join(str(seen[way][kind]) for way in ways)} |"
        for kind in KINDS
        if any(seen[way][kind] for way in ways)
    ]
    return "\n".join(lines)


def reason(outcome: dict[str, Any]) -> str:
    """The launcher's first word on it, without what differs from run to run."""
    said = outcome["line"].partition(" / ")[0]
    said = re.sub(r"^(this job runs without checkpoints|no checkpoint|cannot restart from \S+): ", "", said)
    said = re.sub(r"(\b(?:process|pid|port|Task) |mount=|clearway-table-|@)[0-9a-f]{2,}", r"\1N", said)
    return said.replace("|", "\\|").strip()


def reasons(record: dict[str, Any]) -> str:
    found: dict[tuple[str, str], list[str]] = {}
    for name, row in record["programs"].items():
        for way, outcome in row["ways"].items():
            if outcome["kind"].startswith("refused"):
                found.setdefault((name, reason(outcome)), []).append(way)
    if not found:
        return "Nothing was refused."
    lines = ["| program | with | the launcher's word |", "|---|---|---|"]
    lines += [f"| {name} | {', '.join(ways)} | {said} |" for (name, said), ways in found.items()]
    return "\n".join(lines)


def bad(record: dict[str, Any]) -> str:
    lines = []
    for name, row in record["programs"].items():
        for way, outcome in row["ways"].items():
            if (kind := kind_of(outcome)) in BAD:
                what = [*outcome["differs"], *([f"{outcome['missing']} steps missing"] if outcome["missing"] else [])]
                said = "; ".join([*what, *([reason(outcome)] if outcome["line"] else [])])
                lines.append(f"| {name} | {way} | {kind} | {said} |")
    if not lines:
        return ""
    head = ["", "## What went wrong", "", "| program | with | outcome | what is known |", "|---|---|---|---|"]
    return "\n".join([*head, *lines, ""])


def trials(record: dict[str, Any]) -> str:
    """Where its word is another than what came of the job."""
    lines, asked = [], 0
    for name, row in record["programs"].items():
        for way, outcome in row["ways"].items():
            asked += 1
            if (outcome["trial"] in {YES, "can be saved"}) != (
                outcome["kind"] == "saved"
            ):  # older records say the latter
                said = reason({"line": outcome["trial"]})
                lines.append(f"| {name} | {way} | {said} | {kind_of(outcome)} |")
    told = f"Each program was tried with `clearway-run --try 2` as well: {asked} times."
    if not lines:
        return f"{told} What it said is what came of the job each time."
    head = ["| program | with | `--try` said | in the job |", "|---|---|---|---|"]
    return "\n".join([f"{told} {len(lines)} times the job fared otherwise:", "", *head, *lines])


def render(record: dict[str, Any]) -> str:
    ways = list(record["versions"])
    used = {kind_of(outcome) for row in record["programs"].values() for outcome in row["ways"].values()}
    used |= {"wrong", "hung", "lost"}
    machine = record["machine"]
    text = TOP.format(
        programs=len(record["programs"]),
        machine=f"The node had {machine.get('system')}, {machine.get('libc')}, Linux {machine.get('kernel')} and "
        f"{machine.get('processors')} processors",
        legend="\n".join(f"- *{kind}*: {meaning}" for kind, meaning in KINDS.items() if kind in used),
        table=table(record, ways),
        counts=counts(record, ways),
        reasons=reasons(record),
        bad=bad(record),
        trials=trials(record),
    )
    return re.sub(r"\n{3,}", "\n\n", text)
