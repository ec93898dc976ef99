"""HTML pages that need no other file, from templates. Pure.

The templates stand in ``templates/``; all of them extend ``base.html`` and show tables with the macro of
``table.html``. What a template is given is escaped.
"""

from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined


class Missed(str):
    """The text of a table's cell whose number misses its target: it is shown in red."""

    __slots__ = ()


def templates(*packages: str) -> Environment:
    """Ours, and those of these packages."""
    made = Environment(
        loader=ChoiceLoader([PackageLoader(each) for each in (*packages, "clearway.cli")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.tests["missed"] = lambda cell: isinstance(cell, Missed)
    return made


def html(template: str, **known: Any) -> str:
    return templates().get_template(template).render(known, study=None)
