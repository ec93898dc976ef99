"""The CoSim paper's Figures 5 to 8 as one HTML page that needs nothing else, and as a table for other programs."""

from collections.abc import Mapping, Sequence

from clearway.experiments import chart, page
from clearway.experiments.cosim_study import DELAYS_S, CosimStudy, Times

_COLOURS = ("#2166ac", "#1b7837", "#b2182b")
_PAPER = {
    "Scenario-1": "backtracking is faster than the dynamic program",
    "Scenario-2": "backtracking falls behind the dynamic program",
    "Scenario-3": "the dynamic program is up to five orders of magnitude faster than backtracking",
}
_COLUMNS = ("scenario", "deadline_s", "eviction_dp_us", "greedy_us", "backtracking_us", "greedy_more_lost_node_h")


def as_csv(study: CosimStudy) -> str:
    """A line for each scenario and deadline; an empty cell where backtracking was not asked any more."""
    rows = []
    for times, loss in zip(study.times, study.losses, strict=True):
        series = zip(times.dynamic, times.greedy, [*times.backtracking, *[None] * len(DELAYS_S)], loss, strict=False)
        for delay_s, (*took_us, more_node_h) in zip(DELAYS_S, series, strict=True):
            known = ["" if each is None else f"{each:.1f}" for each in took_us]
            rows.append([times.scenario.name, delay_s, *known, f"{more_node_h:.3f}"])
    return page.as_table(_COLUMNS, rows)


def as_html(study: CosimStudy) -> str:
    return page.html(
        "cosim.html",
        study,
        times=[_times(each) for each in study.times],
        time_charts=[_time_chart(each) for each in study.times],
        losses=[_losses(each.scenario.name, loss) for each, loss in zip(study.times, study.losses, strict=True)],
        loss_charts=[
            _chart(each.scenario.name, "node-hours", {"greedy - optimum": loss}, "")
            for each, loss in zip(study.times, study.losses, strict=True)
        ],
    )


def _times(each: Times) -> Sequence[str | int]:
    last = len(each.backtracking) - 1
    return (
        each.scenario.name,
        len(each.scenario.jobs),
        f"{each.dynamic[-1] / 1e3:.2f}",
        f"{each.dynamic[-1] / each.greedy[-1]:.1f}",
        f"{each.backtracking[last] / 1e3:,.1f}",
        DELAYS_S[last] // 60,
        f"{each.backtracking[last] / each.dynamic[last]:,.0f}",
        _PAPER[each.scenario.name],
    )


def _losses(name: str, loss: Sequence[float]) -> Sequence[str | int]:
    most = max(range(len(loss)), key=lambda place: (loss[place], -place))
    return name, f"{loss[0]:,.0f}", f"{loss[most]:,.0f}", DELAYS_S[most] // 60, f"{loss[-1]:,.0f}"


def _time_chart(each: Times) -> str:
    series = {"dynamic program": each.dynamic, "greedy": each.greedy, "backtracking": each.backtracking}
    in_ms = {name: [value / 1e3 for value in values] for name, values in series.items()}
    return _chart(f"{each.scenario.name}: K = {each.scenario.nodes_needed:,}", "time (ms)", in_ms, "y")


def _chart(title: str, up: str, series: Mapping[str, Sequence[float]], logarithmic: str) -> str:
    """Over the deadlines in minutes."""
    points = {
        name: [(delay_s / 60, value) for delay_s, value in zip(DELAYS_S, values, strict=False)]
        for name, values in series.items()
    }
    return chart.lines(title, "deadline (minutes)", up, points, logarithmic=logarithmic, colours=_COLOURS)
