"""How make_dashboard.py's panels become Grafana's JSON, through Grafana's own typed library.

Rules that keep the dashboard honest:

- A dead daemon has no values. So nothing here turns "no data" into 0, and a panel that shows one number asks for its
  value now (``instant``): over a range Grafana would show the last value from before the death.
- A panel without data says in words what that means (``empty``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as commons
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = models.DataSourceRef(type_val="prometheus", uid="$datasource")
WIDTH = 24  # columns of Grafana's grid
NOTHING = "Nothing in this time, or no daemon answers"
SILENT = "no daemon answers"
HANGS = "no daemon answers, or none finishes cycles"
TOO_OLD_S = 120  # as the alert ClearwayNoCycle

Steps = tuple[tuple[float | None, str], ...]  # from this value on this colour; None: lowest, and without data


@dataclass(frozen=True, kw_only=True)
class Panel:
    """What all panels have. ``queries``: expressions, each with its legend."""

    title: str
    text: str  # what it is, its unit, and what zero means
    queries: tuple[tuple[str, str], ...]
    empty: str  # shown instead of a value where there is none
    unit: str = "none"
    link: str = ""  # page of the daemon, with the title that it is linked by
    width: int = 12
    height: int = 8


@dataclass(frozen=True, kw_only=True)
class Number(Panel):
    """One value, now; ``words`` are shown instead of these values, in this colour."""

    steps: Steps
    words: tuple[tuple[int, str, str], ...] = ()
    decimals: int | None = None
    shows: commons.BigValueTextMode = commons.BigValueTextMode.VALUE
    width: int = 4
    height: int = 4


@dataclass(frozen=True, kw_only=True)
class Lines(Panel):
    bars: bool = False
    stacked: bool = False


@dataclass(frozen=True, kw_only=True)
class Rows(Panel):
    """A table of what the queries say now; ``names`` renames its columns, or hides them ("")."""

    names: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Mark:
    """An annotation: a mark in all panels where the expression has a value; ``title`` may name its labels."""

    name: str
    query: str
    title: str
    color: str


def _dress(made: Any, panel: Panel) -> Any:
    made = made.title(panel.title).description(panel.text).datasource(SOURCE).unit(panel.unit).no_value(panel.empty)
    made = made.span(panel.width).height(panel.height)
    if panel.link:
        page, _, title = panel.link.partition(" ")
        address = "${page}/#/" + page
        made = made.links([dashboard.DashboardLink(title).url(address).target_blank(True)])
    for index, (expression, legend) in enumerate(panel.queries):
        query = prometheus.Dataquery().ref_id(chr(ord("A") + index)).datasource(SOURCE).expr(expression)
        query = query.legend_format(legend)
        query = query.range() if isinstance(panel, Lines) else query.instant()
        made = made.with_target(query.format(PromQueryFormat.TABLE) if isinstance(panel, Rows) else query)
    return made


def _number(panel: Number) -> Any:
    steps = [models.Threshold(value=value, color=color) for value, color in panel.steps]
    made = _dress(stat.Panel(), panel).graph_mode(commons.BigValueGraphMode.NONE).text_mode(panel.shows)
    made = made.color_mode(commons.BigValueColorMode.BACKGROUND).justify_mode(commons.BigValueJustifyMode.AUTO)
    made = made.orientation(commons.VizOrientation.AUTO).reduce_options(
        common.ReduceDataOptions().calcs(["lastNotNull"])
    )
    made = made.thresholds(dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
    made = made.color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.THRESHOLDS))
    if panel.words:
        words = {str(value): models.ValueMappingResult(text=text, color=color) for value, text, color in panel.words}
        made = made.mappings([models.ValueMap(words)])
    return made if panel.decimals is None else made.decimals(panel.decimals)


def _lines(panel: Lines) -> Any:
    made = _dress(timeseries.Panel(), panel).line_width(1).show_points(commons.VisibilityMode.NEVER)
    made = made.draw_style(commons.GraphDrawStyle.BARS if panel.bars else commons.GraphDrawStyle.LINE)
    made = made.fill_opacity(70 if panel.bars else 15).span_nulls(False)
    stacked = commons.StackingMode.NORMAL if panel.stacked else commons.StackingMode.NONE
    made = made.stacking(common.StackingConfig().group("A").mode(stacked))
    made = made.color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC))
    legend = common.VizLegendOptions().display_mode(commons.LegendDisplayMode.LIST).show_legend(True)
    made = made.legend(legend.placement(commons.LegendPlacement.BOTTOM).calcs([]))
    tooltip = common.VizTooltipOptions().mode(commons.TooltipDisplayMode.MULTI)
    return made.tooltip(tooltip.sort(commons.SortOrder.DESCENDING))


def _rows(panel: Rows) -> Any:
    made = _dress(table.Panel(), panel).show_header(True).cell_height(commons.TableCellHeight.SM)
    hidden = {name: True for name, shown in panel.names if not shown}
    shown = {name: text for name, text in panel.names if text}
    order = {name: index for index, (name, text) in enumerate(panel.names) if text}
    if len(panel.queries) > 1:
        made = made.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    columns = {"excludeByName": hidden, "renameByName": shown, "indexByName": order}
    return made.with_transformation(models.DataTransformerConfig(id_val="organize", options=columns))


def _variables() -> list[Any]:
    of = models.VariableOption
    clusters = dashboard.QueryVariable("cluster").label("Cluster").datasource(SOURCE).regex("").multi(True)
    clusters = clusters.query({"query": "label_values(clearway_build_info, cluster)", "refId": "cluster"})
    clusters = clusters.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
    clusters = clusters.sort(models.VariableSort.ALPHABETICAL_ASC).include_all(True).all_value(".*")
    local = "http://127.0.0.1:8642"
    page = dashboard.TextBoxVariable("page").label("Clearway's page").default_value(local)
    page = page.current(of(text=local, value=local)).options([of(selected=True, text=local, value=local)])
    return [
        dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus").regex(""),
        clusters.current(of(text="All", value="$__all")),
        page.description("Address of the daemon as your browser reaches it; panels link there."),
    ]


def _annotation(mark: Mark) -> Any:
    made = dashboard.AnnotationQuery().name(mark.name).datasource(SOURCE).enable(True)
    made = made.icon_color(mark.color)
    query = prometheus.Dataquery().ref_id("Anno").datasource(SOURCE).expr(mark.query).range().interval("1m")
    built = made.build()
    built.target = query.build()  # type: ignore[assignment]  # the library has the target of another source
    return built


def made_of(rows: tuple[tuple[str, tuple[Panel, ...]], ...], marks: tuple[Mark, ...]) -> dict[str, Any]:
    """The dashboard as JSON; raises ValueError where the panels of a row do not fill whole lines."""
    home = dashboard.DashboardLink("Clearway").type(models.DashboardLinkType.LINK).icon("external link")
    built = dashboard.Dashboard("Clearway").uid("clearway").tags(["slurm", "clearway"]).editable().refresh("30s")
    built = built.description("Room for urgent jobs on Slurm clusters: whether it is alive, plans, costs and health.")
    built = built.time("now-24h", "now").timezone("").tooltip(models.DashboardCursorSync.CROSSHAIR)
    built = built.link(home.url("${page}/").tooltip("The daemon's own page").target_blank(True))
    built = built.variables(_variables())
    number, makers = 0, {Number: _number, Lines: _lines, Rows: _rows}
    for name, panels in rows:
        number += 1
        built = built.with_row(dashboard.Row(name).id(number))
        if sum(panel.width for panel in panels) % WIDTH:
            raise ValueError(f"{name}: its panels leave a gap")
        for panel in panels:
            number += 1
            built = built.with_panel(makers[type(panel)](panel).id(number))
    found: dict[str, Any] = json.loads(json.dumps(built.build(), cls=JSONEncoder))
    for variable in found["templating"]["list"]:
        for key in ("auto", "auto_min", "auto_count"):  # the library gives every kind what intervals alone have
            del variable[key]
    annotations = json.loads(json.dumps([_annotation(mark) for mark in marks], cls=JSONEncoder))
    for annotation, mark in zip(annotations, marks, strict=True):
        annotation["titleFormat"] = mark.title  # Prometheus's own, which the library does not know
    found["annotations"] = {"list": annotations}
    return found


def of(metric: str, **labels: str) -> str:
    """The series of a metric in the selected clusters. A label's value may begin with ~ : a regular expression."""
    wanted = "".join(
        f',{name}=~"{value[1:]}"' if value.startswith("~") else f',{name}="{value}"' for name, value in labels.items()
    )
    return f'{metric}{{cluster=~"$cluster"{wanted}}}'


def fresh(series: str) -> str:
    """Only of daemons that finish cycles: one whose loop hangs still answers, with what its last cycle saw."""
    cycle = of("clearway_last_cycle_timestamp_seconds")
    return f"({series} and on (cluster, instance) time() - {cycle} < {TOO_OLD_S})"


def quantile(q: float, metric: str) -> str:
    """Of a histogram. Where nothing was observed Prometheus says NaN, which is left out."""
    return f"histogram_quantile({q}, sum by (le) (rate({of(f'{metric}_bucket')}[$__rate_interval]))) > -Inf"


def counted(metric: str, by: str = "", **labels: str) -> str:
    """By how much a counter rose in each interval of a chart."""
    return f"sum{f' by ({by})' if by else ''} (increase({of(metric, **labels)}[$__rate_interval]))"


def total(metric: str, by: str = "", span: str = "$__range") -> str:
    """By how much a counter rose in the time range; one that began within it counts from 0."""
    series = of(metric)
    rose = f"({series} unless {series} offset {span}) or increase({series}[{span}])"
    return f"sum{f' by ({by})' if by else ''} ({rose})"
