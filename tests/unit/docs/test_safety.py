"""docs/explanation/safety.md names a test for each promise, sites.md for each situation: the test is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = {"safety.md": "## Attacks", "sites.md": "## What was not tried"}  # and what comes after the table
NAMED = re.compile(r"`(tests/[\w/]+\.py)((?:::\w+)*)`")


def rows(page: str) -> list[str]:
    text = (ROOT / "docs/explanation" / page).read_text(encoding="utf-8").partition(PAGES[page])[0]
    return [line for line in text.splitlines() if line.startswith("| ")][1:]


@pytest.mark.parametrize("page", PAGES)
def test_every_row_names_a_test(page: str) -> None:
    assert len(rows(page)) > 20
    assert [row for row in rows(page) if not NAMED.search(row.rpartition("|")[0].rpartition("|")[2])] == []


@pytest.mark.parametrize(
    "named", sorted({found for page in PAGES for row in rows(page) for found in NAMED.findall(row)}), ids="".join
)
def test_the_named_test_exists(named: tuple[str, str]) -> None:
    path, names = named
    assert (ROOT / path).is_file()
    found: list[ast.stmt] = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    for name in filter(None, names.split("::")):
        inner = [each for each in found if isinstance(each, (ast.FunctionDef, ast.ClassDef)) and each.name == name]
        assert inner, f"{path} has no {name}"
        found = inner[0].body
