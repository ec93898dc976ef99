"""How every report's page begins: one file that needs no other, to be read on a desk and on a telephone. Pure."""

from __future__ import annotations

# Wide tables are moved within the page, not the page. The figures' colours are those of a light page.
_COMMON = (
    ":root{color-scheme:only light}"
    "body{font:16px/1.5 sans-serif;max-width:62em;margin:2em auto;padding:0 1em}"
    "table{display:block;overflow-x:auto;border-collapse:collapse;font-size:14px}"
    "td,th{padding:2px 8px;text-align:right;border-bottom:1px solid #ddd}"
    "td:first-child,th:first-child{text-align:left}"
    "svg{max-width:100%;font:11px sans-serif}"
)


def head(title: str, style: str) -> str:
    """What stands before the page's first heading; ``style`` is CSS of its own, and follows the common one."""
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width, initial-scale=1">'
        f"<title>{title}</title>\n<style>{_COMMON}{style}</style>"
    )
