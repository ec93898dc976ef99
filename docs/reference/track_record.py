"""The page about the faults that there were, from the tests that hold them. ``generate.py`` writes it.

A test says so: ``@pytest.mark.fault("What went wrong.", found_by="random faults")``; ``mended_in`` names the version,
where it is not the first one. One test may hold several.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/explanation/track-record.md"
FIRST_VERSION = "0.1.0"

LOOKS = {
    "trial": "The program in use on a real Slurm, by somebody who looks for what nobody had thought of.",
    "real cluster": "A test on a real Slurm of one of the releases that are supported.",
    "random faults": "Random schedules on a simulated cluster: daemons killed or stopped, Slurm slow or failing, "
    "answers lost, users and operators at random. A witness judges every command.",
    "random problems": "Random problems whose plans are compared with exhaustive search, or with another solver.",
    "hostile input": "Whatever a user may write into jobs and requests, most of it made at random.",
    "attack": "What a user with an ordinary account, or another caller, could gain.",
    "load": "More jobs, nodes, requests or connections than usual, and what each cycle takes then.",
    "recorded workloads": "Days and weeks of real machines, replayed.",
    "mutation": "One operator or number of the program is changed: a test has to fail. Where none did, nothing would "
    "have kept the fault away.",
    "reading": "Reading of the program, its pages and its panels.",
}

ABOUT = """\
# Track record

This page lists the faults that were found in Clearway, as far as they would have mattered to a site. Each was mended in
the version that is named, and each has a test that fails when the fault comes back. The page is made from these tests.
[Safety](safety.md) lists what Clearway promises; the [changelog](../changelog.md) says what changed.
"""


class Fault(NamedTuple):
    sentence: str
    found_by: str
    mended_in: str
    test: str


def faults() -> list[Fault]:
    """From the text of the tests, by their paths and in their order."""
    files = sorted((ROOT / "tests").rglob("*.py"))
    return [fault for path in files if "mark.fault(" in (text := path.read_text("utf-8")) for fault in _of(path, text)]


def _of(path: Path, text: str) -> Iterator[Fault]:
    where = path.relative_to(ROOT).as_posix()
    for owner, test in _tests(ast.parse(text)):
        for mark in test.decorator_list:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.fault":
                (sentence,) = mark.args
                told = {word.arg: ast.literal_eval(word.value) for word in mark.keywords}
                name = f"{where}::{owner}{test.name}"
                version = told.get("mended_in", FIRST_VERSION)
                yield Fault(ast.literal_eval(sentence), told["found_by"], version, name)


def _tests(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield "", node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}::", each) for each in node.body if isinstance(each, ast.FunctionDef))


def track_record(table: Callable[[Iterable[str], Iterable[Iterable[str]]], str]) -> str:
    found = faults()
    of_look = {look: [fault for fault in found if fault.found_by == look] for look in LOOKS}
    counts = table(
        ("kind of look", "faults", "what it is"),
        ((f"[{look}](#{look.replace(' ', '-')})", str(len(of_look[look])), about) for look, about in LOOKS.items()),
    )
    parts = [ABOUT, f"There are {len(found)} of them.\n", counts]
    for look, some in of_look.items():
        rows = ((fault.sentence, fault.mended_in, f"`{fault.test}`") for fault in some)
        parts.append(f"## {look.capitalize()}\n\n{table(('fault', 'mended in', 'test'), rows)}")
    return "\n".join(parts)
