"""``clearway report``: what Clearway did or would have done for urgent jobs, as a table, JSON or a page."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from clearway.api.report_schemas import ReportCase, ReportView
from clearway.cli import options, render
from clearway.model.durations import format_duration
from clearway.model.plan import node_hours


class ReportOutput(StrEnum):
    TABLE = "table"
    JSON = "json"
    HTML = "html"


def report(
    since: Annotated[str, typer.Option(help="How far to look back, such as 7d or 12h.")] = "7d",
    output: Annotated[ReportOutput, typer.Option("--output", "-o", help="Output format.")] = ReportOutput.TABLE,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Write to this file; default: standard output.")
    ] = None,
    *,
    site: options.Site,
) -> None:
    """Urgent jobs: what Clearway did or would have done, what happened, and what Slurm's own rule would lose."""
    options.duration_s(since, "--since")
    with options.source(site) as asked:
        found = asked.report(since)
    text = _text(found, output)
    if file is None:
        print(text, end="" if text.endswith("\n") else "\n")
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        options.complain(f"{file}: cannot be written: {error.strerror}")
        raise typer.Exit(options.FAILED) from None


def _text(found: ReportView, output: ReportOutput) -> str:
    match output:
        case ReportOutput.JSON:
            return found.model_dump_json(indent=2) + "\n"
        case ReportOutput.HTML:
            from clearway.cli.report_page import page  # noqa: PLC0415 - the other outputs start quicker without

            return page(found)
        case ReportOutput.TABLE:
            return "\n".join(lines(found)) + "\n" if found.cases else "no urgent job was planned for\n"


def lines(found: ReportView) -> list[str]:
    sums = found.sums
    told = [render.visible(_line(case)) for case in found.cases]
    lost, would_lose = node_hours(sums.lost_node_s), node_hours(sums.would_lose_node_s)
    ours, slurms = node_hours(sums.plan_node_s), node_hours(sums.slurm_node_s)
    return [
        f"{'job':>10}  {'user':<10}  {'nodes':>6}  {'planned':<16}  {'ending':<10}  {'sooner':>8}  lost or would lose",
        *told,
        "",
        f"plans: {sums.cases}, for urgent jobs: {sums.urgent_jobs}",
        f"lost: {lost}; would have been lost by plans that were not carried out: {would_lose}",
        f"beside Slurm's own rule, in {sums.compared} plans: {ours} against {slurms}",
        f"plans where Slurm's rule frees too few nodes: {sums.slurm_without_plan}; not compared: {sums.not_compared}",
    ]


def _line(case: ReportCase) -> str:
    sooner = format_duration(case.sooner_s) if case.sooner_s else "-"
    lost = node_hours(case.lost_node_s if case.acted else case.would_lose_node_s)
    at = case.planned_at.strftime("%Y-%m-%d %H:%M")
    return f"{case.display_id:>10}  {case.user:<10}  {case.num_nodes:>6}  {at}  {case.ending:<10}  {sooner:>8}  {lost}"
