"""Fails where a function has more branches than one reads in one sitting; ``tests/run lint`` runs it."""

import sys
from collections.abc import Iterable
from pathlib import Path

from radon.complexity import cc_visit

MOST = 15
PACKAGES = (Path("daemon/clearway"), Path("daemon/clearway_lab"))


def too_complex(files: Iterable[Path]) -> list[str]:
    """A line for each function that is."""
    return [
        f"{file}:{block.lineno}: {block.fullname} has a complexity of {block.complexity}, {MOST} is the most"
        for file in sorted(files)
        for block in cc_visit(file.read_text())
        if block.letter != "C" and block.complexity > MOST
    ]


def main() -> int:
    found = too_complex(file for package in PACKAGES for file in package.rglob("*.py"))
    print("\n".join(found) or "No function is too complex.")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
