"""The Slurm+DMTCP paper's simulations as one HTML page that needs nothing else, and as a table for other programs."""

from collections.abc import Iterator, Sequence
from operator import attrgetter

from clearway.experiments import chart, compaction_study, page
from clearway.experiments.cells import means
from clearway.experiments.compaction_study import COMPACTION, LOADS, MEAN_RUN_H, NONE, PROMOTION, CompactionStudy
from clearway.simulation.shared_nodes import HOUR_S

_COLOURS = {"empty": "#cfe3f5", "partly used": "#d08700", "full": "#2166ac"}
_COLUMNS = (
    *("partitions", "moves", "load", "mean_run_h", "seed", "group", "empty_percent", "partly_used_percent"),
    *("full_percent", "held_percent", "jobs", "finished", "moved", "stalled_node_h", "wait_s"),
)
_COSTS = attrgetter("jobs", "moved", "stalled_node_h", "wait_s", "held")


def as_csv(study: CompactionStudy) -> str:
    rows: list[Sequence[object]] = []
    for cell in study.cells:
        for group, shares in cell.shares.items():
            known = [cell.partitions, cell.moves, cell.load, cell.mean_run_h, cell.seed, group]
            percents = [f"{share:.3f}" for share in (*shares, cell.held)]
            costs = [cell.moved, f"{cell.stalled_node_h:.4f}", f"{cell.wait_s:.1f}"]
            rows.append([*known, *percents, cell.jobs, cell.finished, *costs])
    return page.as_table(_COLUMNS, rows)


def as_html(study: CompactionStudy) -> str:
    return page.html(
        "compaction.html",
        study,
        hours=f"{MEAN_RUN_H:g}",
        usual=[_compaction(study, MEAN_RUN_H, load) for load in LOADS],
        chart=_chart(study),
        other=[_compaction(study, hours, load) for hours in compaction_study.OTHER_RUN_H for load in LOADS],
        promotion=list(_promotion(study)),
    )


def _compaction(study: CompactionStudy, hours: float, load: int) -> Sequence[str]:
    before, after = compaction_study.PAPER_PARTLY[load]
    without, with_moves = (study.shares(1, moves, load, mean_run_h=hours) for moves in (NONE, COMPACTION))
    fall = study.fall(load, hours)
    node_h = compaction_study.NODES * compaction_study.DAY_S / HOUR_S
    emptied_h = (with_moves[0] - without[0]) / 100 * node_h
    jobs, moved, stalled_h, wait_s, _ = means(map(_COSTS, study.of(1, COMPACTION, load, hours)))
    *_, before_wait_s, held = means(map(_COSTS, study.of(1, NONE, load, hours)))
    shares = [f"{share:.1f} %" for share in (held, without[1], with_moves[1])]
    falls = [page.marked(f"{fall:.1f}", good=fall >= before - after), f"{before} to {after} %", f"{before - after:.1f}"]
    costs = [f"{jobs:.0f}", f"{moved:.0f}", f"{stalled_h:.2f}", f"{emptied_h:.1f}", f"{before_wait_s:.0f}"]
    return [f"{hours:g} h", f"{load} %", *shares, *falls, *costs, f"{wait_s:.0f}"]


def _promotion(study: CompactionStudy) -> Iterator[Sequence[str]]:
    for (load, group), paper in compaction_study.PAPER_PROMOTION.items():
        for moves, theirs in zip((NONE, PROMOTION), paper, strict=True):
            shares = study.shares(2, moves, load, group)
            pairs = [f"{share:.1f} %" for pair in zip(shares, theirs, strict=True) for share in pair]
            _, moved, stalled_h, *_ = means(map(_COSTS, study.of(2, moves, load)))
            known = [f"{load} %", group, "with" if moves == PROMOTION else "without"]
            yield [*known, *pairs, f"{moved:.0f}", f"{stalled_h:.2f}"]


def _chart(study: CompactionStudy) -> str:
    columns = [
        (f"{name}\n{load} %", study.shares(1, moves, load))
        for load in LOADS
        for name, moves in (("without", NONE), ("with", COMPACTION))
    ]
    return chart.stacks("How nodes spend the day, by load", columns, _COLOURS)
