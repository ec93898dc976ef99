"""The page of shapes names exactly those that are tried on a real cluster."""

from __future__ import annotations

from pathlib import Path

from tests.slurm.shapes import SHAPES

ROOT = Path(__file__).parents[3]


def test_the_page_names_what_is_tried() -> None:
    table = (ROOT / "docs/explanation/shapes.md").read_text().partition("| shape |")[2].partition("\n\n")[0]
    names = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[2:]]
    assert names == [shape.name for shape in SHAPES]


def test_the_readme_has_at_most_five_lines_on_what_is_left_to_slurm() -> None:
    told = (
        (ROOT / "README.md").read_text().partition("These urgent jobs are left to Slurm")[2].partition("The end of")[0]
    )
    assert 0 < told.count("\n- ") <= 5
