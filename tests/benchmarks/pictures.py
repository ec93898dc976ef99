"""Pictures that stay the same when their numbers do, and load nothing from elsewhere; needs the extra ``lab``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams.update({"svg.hashsalt": "clearway", "svg.fonttype": "none", "font.size": 9, "axes.grid": True})
mpl.rcParams.update({"axes.axisbelow": True, "grid.alpha": 0.3, "figure.constrained_layout.use": True})


def subplots(*shape: int, **options: Any) -> tuple[Any, Any]:
    from matplotlib import pyplot as plt

    return plt.subplots(*shape, **options)


def save(picture: Any, to: Path) -> None:
    picture.savefig(to, metadata={"Date": None})
    # matplotlib leaves blanks at the ends of lines
    to.write_text("".join(f"{line.rstrip()}\n" for line in to.read_text().splitlines()), encoding="utf-8")
