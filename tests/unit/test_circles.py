"""No module imports itself by way of others, also not from within a function: each can be read by itself."""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

import grimp
import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "daemon/clearway/web/static"
IMPORTED = re.compile(r'^import [^"]*"\./([\w-]+\.js)";$', re.MULTILINE)


def circle(imported: Mapping[str, AbstractSet[str]]) -> list[str]:
    """One that there is; empty where there is none."""
    try:
        TopologicalSorter(imported).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) in (["b", "c", "b"], ["c", "b", "c"])


@pytest.mark.parametrize("package", ["clearway", "clearway_lab", "clearway_checkpoint"])
def test_no_module_imports_itself_by_way_of_others(package: str) -> None:
    graph = grimp.build_graph(package, cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert any(imported.values()) or package == "clearway_checkpoint"
    assert circle(imported) == []


def test_no_script_of_the_page_does() -> None:
    imported = {file.name: set(IMPORTED.findall(file.read_text())) for file in PAGE.glob("*.js")}
    assert "ui.js" in imported["now.js"]
    assert circle(imported) == []
