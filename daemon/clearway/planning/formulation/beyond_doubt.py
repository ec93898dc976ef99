"""Whether there is a plan for an urgent job beyond doubt, without a search for the best one.

Model: a way that takes no checkpoint, and is open now, is open for every deadline. Where enough nodes serve once every
job has left that has such a way, there is a plan for each deadline, from zero on. Fewer jobs do: those on as many of
these nodes as are missing.

The answer is a curve of that one plan, which is valid and not the best. None says nothing: there may be plans that need
checkpoints, or the end of a job. So no urgent job is said to be impossible for which the exact curve has a plan.

Cost: time in the number of jobs and nodes, without any power of them; what urgent jobs have in common is found once.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from clearway.model.plan import Curve, CurvePoint
from clearway.model.problem import Action, Candidate, EvictionProblem, Option
from clearway.planning.formulation.partial_nodes import serving
from clearway.planning.formulation.shared_bandwidth import planned_action

NAME = "any-plan"

Once = Callable[[Hashable, Callable[[], Any]], Any]  # finds what has this name, or has it already


def any_plan(problem: EvictionProblem, once: Once = lambda _, find: find()) -> Curve | None:
    """A curve of one point, whose plan all deadlines have time for; None where none is found so easily.

    Only for nodes that may be any. ``once`` is asked for what problems with the same candidates and needs share.
    """
    needs = problem.needs
    if needs is None or needs.together or needs.required_nodes or problem.pools:
        return None
    same = (id(problem.candidates), id(problem.nodes))
    at_once: Mapping[str, Option] = once(("ways at once", *same), lambda: _ways(problem.candidates))
    able: Sequence[str] = once(
        ("nodes at once", *same, needs), lambda: [node.name for node in serving(problem, at_once.keys())]
    )
    if len(able) < problem.nodes_needed:
        return None
    holders: Mapping[str, list[str]] = once(("holders", *same), lambda: _holders(problem.candidates))
    chosen = able[: problem.nodes_needed]
    leaving = sorted({job_id for name in chosen for job_id in holders.get(name, ()) if job_id in at_once})
    actions = tuple(planned_action(job_id, at_once[job_id], problem.step_s) for job_id in leaving)
    point = CurvePoint(
        max_delay_s=0,
        feasible=True,
        lost_work_node_s=sum(each.lost_work_node_s for each in actions),
        checkpoint_s=0,
        nodes_freed=sum(any(job_id in at_once for job_id in holders.get(name, ())) for name in chosen),
        actions=actions,
        return_node_s=sum(each.return_node_s for each in actions),
    )
    return Curve(NAME, (point,), exact=False)


def _ways(candidates: Sequence[Candidate]) -> dict[str, Option]:
    """Of each job that has one: the way that loses least of those that are open now and take no time."""
    found = {}
    for each in candidates:
        ways = [way for way in each.options if not (way.checkpoint_s or way.ready_s or way.action is Action.SUSPEND)]
        if ways:
            found[each.job_id] = min(ways, key=lambda way: (way.action is not Action.END, way.lost_work_node_s))
    return found


def _holders(candidates: Sequence[Candidate]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for each in candidates:
        for name in each.node_names:
            found[name].append(each.job_id)
    return found
