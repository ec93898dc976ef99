"""Charts as SVG that stands inside a page: the same bytes for the same numbers, text as text, nothing from elsewhere.

Several charts stand in one page, so that none may refer to an element by its id: nothing is clipped, ticks have no
marks, and a dot is a line of no length with round ends. Needs the extra ``figures`` (matplotlib).
"""

import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from markupsafe import Markup, escape

from clearway.config.plugins import how_to_install
from clearway_lab.errors import SimulationError
from clearway_lab.simulator.measures import Spread

try:
    from matplotlib import style
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
except ModuleNotFoundError as error:
    raise SimulationError(f"reports need matplotlib: {how_to_install('lab')} ({error.name} is missing)") from None

COLOURS = ("#111111", "#d08700", "#2166ac", "#b2182b", "#1b7837", "#762a83", "#a6611a", "#00868b", "#c51b7d")
_LEAST_TICKS = 3
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "clearway",
    "font.size": 9,
    "font.family": ["DejaVu Sans", "sans-serif"],
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
}

Points = Sequence[tuple[float, float]]
Inches = tuple[float, float]  # width and height
P = ParamSpec("P")


def _chart(draw: Callable[Concatenate[Axes, P], Inches]) -> Callable[Concatenate[str, P], Markup]:
    """What draws on axes and tells how large that is to be, as a function from a title to a picture."""

    @wraps(draw)
    def svg(title: str, /, *of: P.args, **options: P.kwargs) -> Markup:
        out = io.StringIO()
        with style.context(["default", _STYLE]):
            figure = Figure(layout="constrained")
            axes = figure.subplots()
            axes.set_title(title)
            figure.set_size_inches(draw(axes, *of, **options))
            for artist in axes.findobj():
                artist.set_clip_on(False)
            figure.savefig(out, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
        text = out.getvalue()
        box = re.search(r'viewBox="[^"]*"', text)
        text = text[text.index("</defs>") + len("</defs>") :]
        text = re.sub(r"<!--.*?-->\s*|<defs>.*?</defs>\s*", "", text, flags=re.DOTALL)
        text = re.sub(r'<g id="series">', '<g class="series">', text)
        text = re.sub(r'<g id="[^"]*"', "<g", text)
        text = re.sub(r"(\.\d\d)\d{4}\b", r"\1", re.sub(r"\s*\n\s*", "\n", text))  # hundredths of a point
        return Markup(f'<svg {box and box[0]} role="img" aria-label="{escape(title)}">{text}')  # noqa: S704 - matplotlib's

    return svg


@_chart
def lines(
    axes: Axes,
    across: str,
    up: str,
    series: Mapping[str, Points],
    *,
    logarithmic: str = "",
    colours: Sequence[str] = COLOURS,
) -> Inches:
    """A line for each series; ``logarithmic`` names those axes: "x", "y", "xy"."""
    for colour, (name, points) in zip(colours, series.items(), strict=False):
        axes.plot(*zip(*points, strict=True), color=colour, label=name, gid="series")
    axes.set(xlabel=across, ylabel=up)
    every = [point for points in series.values() for point in points]
    for place, name in enumerate("xy"):
        if name in logarithmic:
            _logarithmic(axes, name, [point[place] for point in every])
        elif name == "y":
            axes.set_ylim(bottom=0)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return 6.2, 3.2


@_chart
def dots(axes: Axes, names: Sequence[str], values: Sequence[float]) -> Inches:
    """A row with a dot for each name, on a logarithmic axis, where the length of a bar would mean nothing."""
    positive = [value for value in values if value > 0] or [1.0]
    low, high = min(positive), max(positive)
    for row, value in enumerate(values):
        at = max(value, low)
        _dot(axes, at, row, "#2166ac")
        axes.annotate(f"{value:,.4g}", (at, row), (6, 0), textcoords="offset points", va="center")
    _logarithmic(axes, "x", [low / 1.3, high * (high / low) ** 0.25 * 1.3])
    return 4.2, _rows(axes, names, 0.24) + 0.7


@_chart
def bars(axes: Axes, names: Sequence[str], values: Sequence[float]) -> Inches:
    """A row with a bar for each name, from zero."""
    axes.barh(range(len(values)), values, height=0.7, color="#2166ac")
    for row, value in enumerate(values):
        axes.annotate(f"{value:,.3g}", (value, row), (4, 0), textcoords="offset points", va="center")
    axes.set_xlim(0, 1.2 * max(values, default=0) or 1.0)
    return 4.2, _rows(axes, names, 0.24) + 0.7


@_chart
def ranges(axes: Axes, rows: Sequence[tuple[str, float, float, str]], marks: Mapping[int, str]) -> Inches:
    """A row from one value to another for each name, in its colour, on a logarithmic axis with these marks."""
    for row, (_, low, high, colour) in enumerate(rows):
        axes.plot([low, high], [row, row], color=colour, linewidth=6, solid_capstyle="round")
    _logarithmic(axes, "x", list(marks))
    axes.set_xticks(list(marks), list(marks.values()))
    return 7.2, _rows(axes, [name for name, *_ in rows], 0.2) + 0.8


@_chart
def stacks(axes: Axes, columns: Sequence[tuple[str, Sequence[float]]], parts: Mapping[str, str]) -> Inches:
    """A column of percentages for each name; ``parts`` gives the colour of each part, from the top down."""
    floor = [0.0] * len(columns)
    for place, (part, colour) in reversed(list(enumerate(parts.items()))):
        shares = [values[place] for _, values in columns]
        axes.bar(range(len(columns)), shares, width=0.8, bottom=floor, color=colour, label=part)
        floor = [low + share for low, share in zip(floor, shares, strict=True)]
    axes.set_xticks(range(len(columns)), [name for name, _ in columns])
    axes.set(ylabel="% of the day", ylim=(0, 100))
    axes.grid(visible=False)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return 7.2, 3.2


@_chart
def boxes(axes: Axes, groups: Sequence[tuple[str, Mapping[str, Spread]]], colours: Mapping[str, str]) -> Inches:
    """A box for each spread of each group; whiskers to 5 % and 95 %, a dot at the mean, a logarithmic axis."""
    pitch = 0.9 / len(colours)
    looks: dict[str, Any] = {"widths": pitch * 0.7, "showfliers": False, "showcaps": False}
    for number, (_, spreads) in enumerate(groups):
        for place, (name, spread) in enumerate(spreads.items()):
            x, colour = number + (place - (len(colours) - 1) / 2) * pitch, colours[name]
            cuts = (spread.p5, spread.p25, spread.median, spread.p75, spread.p95)
            box = dict(zip(("whislo", "q1", "med", "q3", "whishi"), cuts, strict=True))
            lined = {"color": colour}
            looks |= {"boxprops": lined, "whiskerprops": lined, "medianprops": lined | {"linewidth": 2.5}}
            axes.bxp([box], [x], **looks)
            _dot(axes, x, spread.mean, colour)
    axes.set(xlim=(-0.5, len(groups) - 0.5))
    axes.set_xticks(range(len(groups)), [name for name, _ in groups])
    every = [spread for _, spreads in groups for spread in spreads.values()]
    low = max(min(spread.p5 for spread in every), 1e-3)
    high = max(low * 1.1, 1e-2, *(max(spread.p95, spread.mean) for spread in every))
    _logarithmic(axes, "y", [low, high])
    return 4.8, 2.7


def ticks(low: float, high: float) -> Sequence[float]:
    """Round numbers from ``low`` to ``high`` on a logarithmic axis: at least three where the axis has room for them."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1.0,), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0), [each / 10 for each in range(10, 100)]):
        found = [step * 10.0**power for power in powers for step in steps]
        found = [value for value in found if low <= value <= high]
        if len(found) >= _LEAST_TICKS:
            return found
    return [low, high]


def _dot(axes: Axes, x: float, y: float, colour: str) -> None:
    axes.plot([x, x], [y, y], color=colour, linewidth=5, solid_capstyle="round")


def _rows(axes: Axes, names: Sequence[str], inches: float) -> float:
    """Names the rows, the first of them on top; how high they are together, each of so many inches."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    return inches * len(names)


def _logarithmic(axes: Axes, name: str, values: Iterable[float]) -> None:
    low, high = min(values := list(values)), max(values)
    found = ticks(low, max(high, low * 1.05))
    margin = max(high / low, 1.05) ** 0.04
    axes.set(**{f"{name}scale": "log", f"{name}lim": (low / margin, high * margin)})
    axes.set(**{f"{name}ticks": found, f"{name}ticklabels": [f"{value:,.10g}" for value in found]})
    axes.minorticks_off()
