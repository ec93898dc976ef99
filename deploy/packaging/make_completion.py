"""Writes the completion of commands for bash, zsh and fish: ``make_completion.py FOLDER ZSH``, as fill says."""

import sys
from pathlib import Path

from typer.completion import get_completion_script

PLACES = {
    "bash": "usr/share/bash-completion/completions/clearway",
    "zsh": f"usr/share/zsh/{sys.argv[2]}/_clearway",
    "fish": "usr/share/fish/vendor_completions.d/clearway.fish",
}

for shell, place in PLACES.items():
    file = Path(sys.argv[1]) / place
    file.parent.mkdir(parents=True, exist_ok=True)
    script = get_completion_script(prog_name="clearway", complete_var="_CLEARWAY_COMPLETE", shell=shell)
    file.write_text(f"{script.strip()}\n")
