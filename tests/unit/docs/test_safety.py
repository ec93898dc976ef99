"""docs/explanation/safety.md names a test for each promise: the test is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs/explanation/safety.md").read_text(encoding="utf-8")
ROWS = [line for line in TEXT.partition("## Attacks")[0].splitlines() if line.startswith("| ")][1:]
NAMED = re.compile(r"`(tests/[\w/]+\.py)((?:::\w+)*)`")


def test_every_promise_names_a_test() -> None:
    assert len(ROWS) > 20
    assert [row for row in ROWS if not NAMED.search(row.rpartition("|")[0].rpartition("|")[2])] == []


@pytest.mark.parametrize("named", sorted(set(NAMED.findall("\n".join(ROWS)))), ids="".join)
def test_the_named_test_exists(named: tuple[str, str]) -> None:
    path, names = named
    found: list[ast.stmt] = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    for name in filter(None, names.split("::")):
        inner = [each for each in found if isinstance(each, (ast.FunctionDef, ast.ClassDef)) and each.name == name]
        assert inner, f"{path} has no {name}"
        found = inner[0].body
