"""The documentation as a site: it is made without a warning, every link in it leads somewhere, and it loads nothing
from elsewhere. docs/conf.py says how it is made.
"""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from docs import conf

ROOT = Path(__file__).parents[3]


class Page(HTMLParser):
    """What a page of the site names: ids, the targets of its links, and what a browser would load with it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids, self.links, self.loaded = set[str](), set[str](), set[str]()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.add(found["href"])
        elif tag == "link":
            self.loaded.add(found.get("href", ""))
        elif "src" in found:
            self.loaded.add(found["src"])


def test_the_site_is_whole_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "docs", str(tmp_path)]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (made.returncode, made.stderr) == (0, "")
    pages = {path: Page(path) for path in tmp_path.rglob("*.html")}
    assert {path.stem for path in ROOT.glob("docs/howto/*.md")} <= {path.stem for path in pages}
    for path, page in pages.items():
        for target in page.links | page.loaded:
            parts = urlsplit(target)
            where = f"{path.relative_to(tmp_path)}: {target}"
            if parts.netloc:  # a link that a reader may follow; nothing that the browser follows by itself
                assert target in page.links - page.loaded, where
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert file.is_file(), where
            if parts.fragment and file in pages:
                assert unquote(parts.fragment) in pages[file].ids, where
    styles = "".join(path.read_text() for path in tmp_path.rglob("*.css"))
    assert "url(http" not in styles
    assert "url(//" not in styles
    assert "@import" not in styles


def test_diagrams_become_tables() -> None:
    states = "stateDiagram-v2\n    [*] --> proposed: mode observe\n    proposed --> [*]\n"
    assert conf.table(states).splitlines()[2:] == [
        "| *begin* | `proposed` | mode observe |",
        "| `proposed` | *end* |  |",
    ]
    chart = 'flowchart TD\n    a["a: one"] -->|yes| b[(two)]\n    b --> c{three?}\n'
    assert conf.table(chart).splitlines()[2:] == ["| a: one | two | yes |", "| two | three? |  |"]
    with pytest.raises(ValueError, match="cannot read this line"):
        conf.table("flowchart TD\n    a -.-> b\n")
