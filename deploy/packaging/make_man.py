"""Writes a manual page for clearway and one for each of its commands, from the code: ``make_man.py FOLDER``.

The pages hold what ``--help`` says, gzipped as dpkg wants them. Nothing in them depends on the day.
"""

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from clearway import __version__
from clearway.cli.app import app, below


def roff(text: str) -> str:
    """A paragraph of plain text: no character of it is an instruction to roff."""
    escaped = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-").replace("`", "")
    return f"\\&{escaped}" if escaped[:1] in {".", "'"} else escaped


def commands(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name, each in shown(command).items():
        yield from commands((*words, name), each)


def shown(command: Any) -> dict[str, Any]:
    return {name: each for name, each in below(command).items() if not each.hidden}


def options(command: Any) -> Iterator[str]:
    for item in command.params:
        about = roff(getattr(item, "help", None) or "")
        if item.param_type_name == "argument":
            yield f".TP\n\\fI{roff(item.name.upper())}\\fR\n{about}"
        else:
            yield f".TP\n\\fB{roff(', '.join(item.opts))}\\fR\n{about}"
    yield ".TP\n\\fB\\-h, \\-\\-help\\fR\nShow what the command does, and end."


def page(words: tuple[str, ...], command: Any) -> str:
    children = shown(command)
    about = " ".join((command.help or "").split())
    first = about.partition(". ")[0].rstrip(".:")
    call = " ".join(
        ["[OPTION]...", *(item.name.upper() for item in command.params if item.param_type_name == "argument")]
    )
    lines = [
        f'.TH "{"-".join(words).upper()}" "1" "" "clearway {__version__}" "Clearway"',
        f".SH NAME\n{'-'.join(words)} \\- {roff(first)}",
        f".SH SYNOPSIS\n\\fB{roff(' '.join(words))}\\fR {roff(f'{call} COMMAND' if children else call)}",
        f".SH DESCRIPTION\n{roff(about)}",
        ".SH OPTIONS",
        *options(command),
    ]
    if children:
        lines.append(".SH COMMANDS")
        lines += [
            f".TP\n\\fB{roff(' '.join((*words, name)))}\\fR\n{roff(each.get_short_help_str(200))}"
            for name, each in children.items()
        ]
    if len(words) > 1:
        lines.append(f".SH SEE ALSO\n\\fB{roff('-'.join(words[:-1]))}\\fR(1)")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    folder = Path(sys.argv[1]) / "man1"
    folder.mkdir(parents=True, exist_ok=True)
    for words, command in commands(("clearway",), typer.main.get_command(app)):
        text = page(words, command).encode()
        (folder / f"{'-'.join(words)}.1.gz").write_bytes(gzip.compress(text, 9, mtime=0))
