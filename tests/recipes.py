"""The programs of docs/howto/recipes.md, as they stand, and what they are run with.

PyTorch and transformers are large, so CI has them not: their recipes run where ``CLEARWAY_FRAMEWORKS_PYTHON`` (else
this interpreter) can load them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs/howto/recipes.md").read_text()
PYTHON = os.environ.get("CLEARWAY_FRAMEWORKS_PYTHON", sys.executable)
FRAMEWORKS = [
    pytest.param("A plain PyTorch loop", "torch", "state.pt", id="pytorch"),
    pytest.param("Hugging Face Trainer", "transformers, accelerate, torch", "saved", id="transformers"),
]
PIECE = '#!/bin/sh\n[ -e hurry ] || sleep 0.5\necho "$1" >>log\n'

# Slows a recipe's steps while it is to be asked, and nothing else: the recipe itself is run as it stands.
SLOW = """\
import builtins, os, time
real = builtins.print
def print_slowly(*words, **options):
    real(*words, **options)
    time.sleep(0.0 if os.path.exists("hurry") else 0.5)
builtins.print = print_slowly
"""


def recipe(heading: str, language: str) -> str:
    """The program under this heading."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    found = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1]


def lacks(modules: str) -> bool:
    return subprocess.run([PYTHON, "-c", f"import {modules}"], capture_output=True, check=False).returncode != 0


def slowed(folder: Path, name: str, text: str) -> None:
    """Put it there; it is slow where ``PYTHONPATH`` is this folder."""
    (folder / name).write_text(text)
    (folder / "sitecustomize.py").write_text(SLOW)


def same_result(folder: Path, heading: str, steps: int) -> None:
    """The weights are those of a run that nothing disturbed, bit for bit."""
    other = folder / "undisturbed"
    other.mkdir()
    (other / "program.py").write_text(recipe(heading, "python"))
    subprocess.run([PYTHON, "program.py", str(steps)], cwd=other, check=True, capture_output=True, timeout=240)
    compare = """
        import torch
        ours, theirs = torch.load("model.pt"), torch.load("undisturbed/model.pt")
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    """
    subprocess.run([PYTHON, "-c", textwrap.dedent(compare)], cwd=folder, check=True, timeout=120)
