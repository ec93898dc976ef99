"""``clearway job``, ``preview`` and ``test-preemption``: a job's story, what an urgent one would cost, and a test."""

import functools
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel
from rich.console import RenderableType

from clearway.api.job_schemas import JOB_ID, JobOperationView, JobRole, JobView, WayView
from clearway.api.schemas import ActionView, PreemptionView, RequestView, WhatIfView, WholePlanView
from clearway.cli import options, render, sbatch
from clearway.client import ApiError, Client
from clearway.model.durations import format_duration
from clearway.model.errors import ClearwayError, RequestError
from clearway.model.operations import OperationKind
from clearway.model.plan import node_hours
from clearway.model.problem import Action
from clearway.model.records import SaveTestEnd

JobId = Annotated[
    str, typer.Argument(help="Id of the job: Slurm's own number, or 123_4 for a task of an array.", metavar="ID")
]
_LONGEST_TEST_S = 3_700.0  # a little more than the daemon waits at the most
_NEW_TOKEN_S = 30.0
_NOT_YET = (0, 401, 429, 503)  # it is down, the token has ended, it is busy, or it starts
_ENDS_OF_STORY = {
    "returned_at": "was started again",
    "vacated_at": "was off its nodes",
    "requeued_at": "left its nodes",
}


def job(job_id: JobId, site: options.Site, output: options.OutputOption = options.Output.TABLE) -> None:
    """What Clearway has to do with a job: planned, saved, lost, back when; and what it would lose now.

    It asks the daemon over REST, with the token of CLEARWAY_TOKEN or one that `scontrol token` makes.
    """
    _check_id(job_id)
    with options.daemon(site) as daemon:
        found = daemon.job(job_id)
        _show(found, output, lambda: _told(found))


def _show(found: BaseModel, output: options.Output, told: Callable[[], Iterable[RenderableType]]) -> None:
    if output is options.Output.JSON:
        print(found.model_dump_json(indent=2))
    else:
        render.console(output).print(render.page(told()))


def _told(found: JobView) -> Iterator[RenderableType]:
    yield from _standing(found)
    yield from _if_an_urgent_job_came(found)
    if found.saving is not None:
        yield from ("", *(each for each in (found.saving.began, found.saving.advice) if each))
        if found.saving.last_at is not None:
            yield f"Its newest checkpoint in this run is of {render.when(found.saving.last_at)}."
    yield from (f"Tested {render.when(each.asked_at)}: {each.sentence}." for each in found.tests if each.sentence)
    if found.operations:
        columns: render.Columns = {
            ">no.": lambda each: each.eviction_id,
            "kind": lambda each: each.kind.value,
            "part": lambda each: each.role.value,
            "state": lambda each: each.state.value,
            "for": _goal,
            "planned": lambda each: render.minute(each.created_at),
            ">node-h\nlost": lambda each: render.node_hours(
                each.preemption and (each.preemption.actual_lost_work_node_s if each.preemption.loss_measured else None)
            ),
            "outcome": lambda each: each.outcome,
        }
        yield from ("", render.listing(found.operations, columns))
        for each in found.operations:
            if sentences := _details(each):
                yield from ("", f"{each.kind.value.capitalize()} {each.eviction_id}: {' '.join(sentences)}")
    elif found.state is not None:
        yield from ("", "Clearway has had nothing to do with it so far.")
    if found.next_offset is not None:
        yield "Older ones are told by REST (offset)."


def _standing(found: JobView) -> Iterator[str]:
    state = "no longer in the queue" if found.state is None else found.state.value
    where = f" on {found.node_names}" if found.node_names else ""
    name = f" ({found.name})" if found.name else ""
    yield f"Job {found.display_id}{name} of {found.user}: {state}{where}."
    if found.urgent:
        yield f"It is an urgent job, by {found.urgent}."
    if found.waiting is not None:
        left = "has passed" if found.waiting.left_s < 0 else f"in {format_duration(found.waiting.left_s)}"
        yield f"It should run by {render.when(found.waiting.deadline)} ({left})."
    if found.doing:
        yield found.doing


def _if_an_urgent_job_came(found: JobView) -> Iterator[RenderableType]:
    urgent = found.if_urgent
    if urgent is None:
        return
    yield from ("", f"If an urgent job came now: {urgent.sentence[:1].lower()}{urgent.sentence[1:]}")
    if not urgent.may_leave and found.would_lose_node_s:
        yield f"Without a checkpoint {node_hours(found.would_lose_node_s)} would be lost."
    if len(urgent.ways) > 1:
        columns: render.Columns = {
            "way": lambda way: way.action.shown,
            ">node-hours lost": lambda way: render.node_hours(way.lost_work_node_s),
            ">saved within": _within,
            ">node-hours to return": lambda way: render.node_hours(way.return_node_s),
        }
        yield render.listing(urgent.ways, columns)


def _within(way: WayView | ActionView) -> str:
    return format_duration(way.checkpoint_s) if way.checkpoint_s else "-"


def _goal(each: JobOperationView) -> str:
    if each.kind is not OperationKind.EVICTION:
        return each.for_user
    return "itself" if each.role is JobRole.PREEMPTOR else f"{each.for_display_id} {each.for_user}"


def _details(each: JobOperationView) -> list[str]:
    sentences = []
    if each.preemption is not None:
        sentences += _happened(each.preemption)
    elif each.verdict is not None and each.verdict.reason:
        sentences.append(f"{each.verdict.choice.value}: {each.verdict.reason}.")
    if each.sparing is not None and not any("without it" in sentence for sentence in sentences):
        sentences += [each.sparing.sentence] * bool(each.sparing.sentence)
    if each.runs_again_at is not None:
        sentences.append(f"Expected to run again at {render.when(each.runs_again_at)}.")
    return [*sentences, *([each.runs_again_why] if each.runs_again_why else [])]


def _happened(p: PreemptionView) -> list[str]:
    told = [f"{p.action.shown}, {p.state.value}: {p.reason}."]
    if p.asked_at is not None:
        told.append(f"Asked to save itself at {render.when(p.asked_at)}.")
    if p.checkpointed_at is not None:
        took = "" if p.actual_checkpoint_s is None else f", in {format_duration(p.actual_checkpoint_s)}"
        told.append(f"Saved at {render.when(p.checkpointed_at)}{took}.")
    for field, happened in _ENDS_OF_STORY.items():
        if (at := getattr(p, field)) is not None:
            told.append(f"It {happened} at {render.when(at)}.")
            break
    if p.loss:
        told.append(p.loss)
    if p.note:
        told.append(f"{p.note[:1].upper()}{p.note[1:]}.")
    return told


def preview(
    context: typer.Context,
    script: Annotated[Path, typer.Option(help="Batch script whose #SBATCH lines are read.", metavar="FILE")],
    site: options.Site,
    max_delay: Annotated[
        str | None, typer.Option(help="How long the job may wait (90s, 10m, 1h30m); default: as its rule says.")
    ] = None,
    output: options.OutputOption = options.Output.TABLE,
) -> None:
    """What would happen if this script were submitted as an urgent job. Further arguments are sbatch's own.

    Nothing is submitted. Give sbatch's arguments after `--` where their names are also names of options here.
    """
    with options.errors(options.BAD_INPUT):
        question, passed_over = sbatch.question(_read(script), script.name, context.args)
    if max_delay is not None:
        question["max_delay"] = max_delay
    with options.daemon(site) as daemon:
        answer = daemon.preview(question)
        _show(answer, output, lambda: _foreseen(answer, passed_over, question.get("partition")))


def _read(script: Path) -> str:
    try:
        with script.open("rb") as opened:
            text = opened.read(sbatch.LARGEST_SCRIPT + 1)
    except OSError as error:
        raise RequestError(f"{script}: cannot be read: {error.strerror}") from None
    if len(text) > sbatch.LARGEST_SCRIPT:
        raise RequestError(f"{script}: is larger than {sbatch.LARGEST_SCRIPT} bytes")
    return text.decode(errors="replace")


def _foreseen(answer: WhatIfView, passed_over: list[str], partition: str | None) -> Iterator[RenderableType]:
    if answer.rule:
        where = "" if partition else ", if it is submitted to a partition of that rule; it names none"
        yield f"It would be urgent, by {answer.rule}{where}."
    elif answer.feasible:
        yield "No rule makes it urgent: this is what would happen if one did."
    if answer.max_delay_s is not None:
        yield f"It may wait {format_duration(answer.max_delay_s)}."
    if answer.plan is None:
        yield f"Not possible: {answer.why}."
    else:
        yield from _start(answer.plan, answer.budget)
    for matters, but in ((True, "though the plan depends on it"), (False, "for no plan depends on it")):
        some = [each for each in passed_over if (each in sbatch.MATTERS) is matters]
        if some:
            yield from ("", f"Not looked at, {but}: {', '.join(some)}.")


def _start(plan: WholePlanView, budget: str) -> Iterator[RenderableType]:
    leave = render.counted(sum(1 for each in plan.chosen.actions if each.action is not Action.END), "job")
    yield (
        f"It would start on {plan.placement_nodes} at about {render.when(plan.predicted_nodes_free_at)}: {leave} "
        f"would leave, and {node_hours(plan.chosen.lost_work_node_s or 0.0)} would be lost."
    )
    if budget:
        yield f"An operator would have to approve it: {budget}."
    if plan.chosen.actions:
        why = {verdict.job_id: verdict.reason for verdict in plan.verdicts}
        columns: render.Columns = {
            "job": lambda each: each.job_id,
            "how": lambda each: each.action.shown,
            ">node-hours lost": lambda each: render.node_hours(each.lost_work_node_s),
            ">saved within": _within,
            "why": lambda each: why.get(each.job_id, ""),
        }
        yield from ("", render.listing(plan.chosen.actions, columns))


def try_saving(job_id: JobId, site: options.Site, output: options.OutputOption = options.Output.TABLE) -> None:
    """Ask a running job of yours to save itself as an eviction would; nothing is requeued.

    It says how long that took, and whether a restart would find the checkpoint. The launcher holds the program for some
    seconds afterwards. Exit status 0: the job has saved itself.
    """
    _check_id(job_id)
    with options.daemon(site) as daemon:
        request_id = daemon.test_preemption(job_id)
    if output is not options.Output.JSON:
        print(f"Asked (request {request_id}); waiting for the job.", file=sys.stderr)
    answer = _waited(site, request_id)
    with options.daemon(site) as daemon:
        if answer is None:
            raise ClearwayError(f"no answer yet; clearway job {job_id} will tell")
        test = next((each for each in daemon.job(job_id).tests if each.request_id == request_id), None)
        if test is None:
            raise ClearwayError(answer.result)
        if output is options.Output.JSON:
            print(test.model_dump_json(indent=2))
        else:
            render.console().print(render.visible(f"{test.sentence[:1].upper()}{test.sentence[1:]}."))
    if test.end is not SaveTestEnd.SAVED:
        raise typer.Exit(options.FAILED)


def _waited(site: options.Site, request_id: int) -> RequestView | None:
    """The answer; asked for with a new token now and then, because one that Slurm makes is good for a minute."""
    end, answer = time.monotonic() + _LONGEST_TEST_S, None
    while answer is None and time.monotonic() < end:
        with options.daemon(site) as daemon:
            answer = render.wait_for(functools.partial(_handled, daemon, request_id), _NEW_TOKEN_S)
    return answer


def _handled(daemon: Client, request_id: int) -> RequestView | None:
    """A daemon that is restarted meanwhile, or busy, is asked again."""
    try:
        found = daemon.request(request_id)
    except ApiError as error:
        if error.status not in _NOT_YET:
            raise
        return None
    return found if found.handled_at is not None else None


def _check_id(job_id: str) -> None:
    with options.errors(options.BAD_INPUT):
        if not re.fullmatch(JOB_ID, job_id):
            raise RequestError(f"{job_id[:40]!r} is no job id: give a number, 123_4 or 123+1")
