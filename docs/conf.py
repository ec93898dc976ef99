"""The documentation as a site: ``.venv/bin/sphinx-build -W --keep-going docs FOLDER``.

The pages stay plain Markdown that reads the same in a repository's browser. Two things are made here of what the pages
already say, so that nothing is written twice: the navigation, from the tables of links in index.md and of the decision
records; and the diagrams, which become tables, because a library that draws them would come from elsewhere.
Why Sphinx: docs/decisions/0045-a-site-of-plain-markdown.md.
"""

import re
from typing import Any

project = "Clearway"
author = project_copyright = ""
html_title = "Clearway"
extensions = ["myst_parser"]
exclude_patterns = ["**/*.py", "conf.py"]
myst_heading_anchors = 4  # a link to a heading that is not there is an error, as is one to a page
nitpicky = True
templates_path: list[str] = []
html_theme = "furo"  # system fonts; loads nothing from elsewhere
html_show_copyright = html_show_sphinx = html_copy_source = False
smartquotes = False  # an option stays `--once` wherever it is quoted
suppress_warnings = ["misc.highlighting_failure"]  # answers of REST are shown with "..." in them

FENCE = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| \[[^\]]+\]\(([^)#]+)\.md\)", re.MULTILINE)
NODE = re.compile(r"(\w+)(?:\[\(([^)]*)\)\]|\[\"?([^\"\]]*)\"?\]|\{([^}]*)\})")
EDGE = re.compile(r"^\s*(\S+) +-->(?:\|([^|]*)\|)? *([^\s:]+)(?:: (.*))?$")


def navigation(text: str) -> str:
    """Hidden tables of contents: for each heading, the pages that the first column of its table links to."""
    trees = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:] or [text]:
        caption = section.partition("\n")[0]
        if pages := ROW.findall(section):
            trees.append("\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```"]))
    return "\n\n".join([text, *trees]) + "\n"


def table(diagram: str) -> str:
    """The arrows of a Mermaid flow chart or state diagram, one a row."""
    kind, *lines = diagram.splitlines()
    states = kind.startswith("stateDiagram")
    labels: dict[str, str] = {}

    def bare(found: re.Match[str]) -> str:
        labels[found[1]] = next(filter(None, found.groups()[1:]))
        return found[1]

    def name(node: str, *, first: bool) -> str:
        if node == "[*]":
            return "*begin*" if first else "*end*"
        return f"`{node}`" if states else labels.get(node, node)

    rows = ["| from | to | when |", "|---|---|---|"] if states else ["| from | to | answer |", "|---|---|---|"]
    for line in lines:
        edge = EDGE.match(line if states else NODE.sub(bare, line))
        if edge is None:
            raise ValueError(f"docs/conf.py cannot read this line of a diagram: {line}")
        before, answer, after, why = edge.groups()
        rows.append(f"| {name(before, first=True)} | {name(after, first=False)} | {why or answer or ''} |")
    return "\n".join(rows)


def prepare(_app: object, page: str, source: list[str]) -> None:
    text = FENCE.sub(lambda found: table(found[1]), source[0])
    if page == "index":
        text = navigation(text)
    elif page == "decisions/README":
        pages = re.findall(r"^\| \[\d+\]\(([^)]+)\.md\)", text, re.MULTILINE)
        text = "\n".join([text, "```{toctree}", ":hidden:", "", *pages, "```", ""])
    source[0] = text


def setup(app: Any) -> None:
    app.connect("source-read", prepare)
