#!/usr/bin/env python3
"""Makes demo.svg from what the demo really prints: ``.venv/bin/python docs/images/make_demo.py``.

Left out, and marked by "...": most points of the curve, most jobs. The picture loads nothing from elsewhere.
"""

from __future__ import annotations

import os
import re
import subprocess
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 100
FOLDER = Path(__file__).parent
DEMO = FOLDER.parents[1] / "deploy" / "demo"
SHOWN = (
    r"Clearway on a|nodes, .* of them busy|is 1m00s there|needs 2,048 nodes",
    r"Trade-off|may wait|^ +(0s|1m00s|2m00s|3m00s|5m00s|6m00s|9m00s) |<- chosen",
    r"Every job|^job |^10(01|02|04|05|03|06|11) ",
    r"Job (1001|1022|1002|1005) .*(saves|leaves|waits|again)|Job 1025|All jobs are back|have lost",
)


def trimmed(lines: list[Text]) -> list[Text]:
    kept: list[Text] = []
    keep = dots = False
    for line in lines:
        more = keep and re.match(r"^ {10,}\S", line.plain) is not None  # a cell that goes on in the next line
        keep = more or not line.plain.strip() or any(re.search(part, line.plain) for part in SHOWN)
        if keep:
            kept.append(line)
        elif not dots and line.plain.strip() and "REST API" not in line.plain and "openapi" not in line.plain:
            kept.append(Text("  ...", style="dim"))
        dots = not keep
    return kept


def main() -> None:
    environment = os.environ | {"COLUMNS": str(WIDTH), "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    done = subprocess.run([DEMO, "--once"], env=environment, capture_output=True, text=True, check=True)  # noqa: S603
    lines = [Text.from_ansi(line.rstrip()) for line in done.stdout.splitlines() if "Installing" not in line]
    console = Console(record=True, width=WIDTH, file=StringIO())
    for line in trimmed(lines):
        console.print(line)
    svg = console.export_svg(title="deploy/demo --once")
    svg = re.sub(r"@font-face \{.*?\}|<!--.*?-->", "", svg, flags=re.DOTALL)
    (FOLDER / "demo.svg").write_text(svg.replace("Fira Code", "monospace"), encoding="utf-8")


if __name__ == "__main__":
    main()
