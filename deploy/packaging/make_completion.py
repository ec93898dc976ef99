"""Writes the completion of commands for bash, zsh and fish where Debian keeps it: ``make_completion.py FOLDER``."""

import sys
from pathlib import Path

from typer.completion import get_completion_script

PLACES = {
    "bash": "usr/share/bash-completion/completions/clearway",
    "zsh": "usr/share/zsh/vendor-completions/_clearway",
    "fish": "usr/share/fish/vendor_completions.d/clearway.fish",
}

for shell, place in PLACES.items():
    file = Path(sys.argv[1]) / place
    file.parent.mkdir(parents=True, exist_ok=True)
    script = get_completion_script(prog_name="clearway", complete_var="_CLEARWAY_COMPLETE", shell=shell)
    file.write_text(f"{script.strip()}\n")
