"""How promises are shown: tables for people, the answers of REST for programs."""

from clearway.api.schemas import EvictionList, EvictionSummary, PromiseView, RequestView
from clearway.cli.render import NARROW, Columns, console, listing, print_document, when
from clearway.model.durations import format_duration


def several(found: EvictionList, output: str) -> None:
    if output == "json":
        print_document(found)
        return
    columns: Columns = {
        ">no.": lambda e: e.eviction_id,
        "state": lambda e: e.state.value,
        ">nodes": lambda e: _of(e).nodes,
        "from": lambda e: when(_of(e).at),
        "for": lambda e: format_duration((_of(e).until - _of(e).at).total_seconds()),
        "users": lambda e: ",".join(_of(e).users),
        "reservation": lambda e: _of(e).reservation,
        "by": lambda e: f"calendar: {_of(e).event}" if _of(e).event else _of(e).actor,
        "on": lambda e: _of(e).chosen,
        "outcome": lambda e: e.outcome,
    }
    if console(output).width < NARROW:  # then what a user of the nodes needs
        columns["from"] = lambda e: f"{_of(e).at.astimezone():%m-%d %H:%M}"
        del columns["users"], columns["by"], columns["on"]
    console(output).print(listing(found.items, columns) if found.items else "There are none.")


def answer(request: RequestView) -> None:
    print_document(request)


def _of(e: EvictionSummary) -> PromiseView:
    assert e.promise is not None, e.eviction_id  # noqa: S101 - promises alone are listed
    return e.promise
