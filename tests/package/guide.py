"""Pages of docs/howto, followed by copying each command: what to run and what to write, in its order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.package import site
from tests.package.machine import Machine

_HOWTO = Path(__file__).parents[2] / "docs/howto"
PAGE = (_HOWTO / "install.md").read_text()
BEGIN = (_HOWTO / "first-minutes.md").read_text()
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONFIGURATION = "/etc/clearway/clearway.toml"


def blocks(heading: str, page: str = PAGE) -> Iterator[tuple[str, str]]:
    """The kind and the text of each block under the heading that ends with these words."""
    section = re.search(rf"^## (?:\d+\. )?{re.escape(heading)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert section is not None, f"the page has no section {heading!r}"
    yield from _BLOCK.findall(section[1])


def commands(heading: str, page: str = PAGE) -> list[str]:
    found = [text for kind, text in blocks(heading, page) if kind == "sh"]
    return "".join(found).replace("\\\n", " ").splitlines()


def configuration(heading: str) -> str:
    return next(text for kind, text in blocks(heading) if kind == "toml")


def for_site(machine: Machine, command: str) -> str:
    """As the page says: without slurmdbd, Slurm's user stands wherever the page has the daemon's user."""
    user = site.daemon_user(machine)
    return command.replace("-u clearway ", f"-u {user} ").replace("-g clearway ", f"-g {user} ")


def follow(machine: Machine, heading: str, page: str = PAGE) -> str:
    """Every command of the section; what they print."""
    return "".join(machine.run(for_site(machine, command)).stdout for command in commands(heading, page))


def compare(machine: Machine, heading: str) -> None:
    """The commands behind a $ print what the page shows."""
    for kind, text in blocks(heading):
        if kind == "console":
            command, _, shown = text.removeprefix("$ ").partition("\n")
            assert machine.run(command).stdout == shown
