"""Problems with fewer nodes or other options than the one that was asked."""

from collections.abc import Callable, Collection
from dataclasses import replace

from clearway.model.problem import Candidate, EvictionProblem, Option


def on_nodes(candidate: Candidate, names: Collection[str]) -> Candidate:
    """The candidate with those of its nodes alone that are among these."""
    kept = [index for index, name in enumerate(candidate.node_names) if name in names]
    return replace(
        candidate,
        nodes=len(kept),
        node_names=tuple([candidate.node_names[index] for index in kept]),
        holds=tuple([candidate.holds[index] for index in kept]) if candidate.holds else (),
    )


def candidates_on(problem: EvictionProblem, names: Collection[str]) -> EvictionProblem:
    """The problem with the candidates that hold any of these nodes, as far as they do."""
    candidates = [on_nodes(candidate, names) for candidate in problem.candidates]
    return replace(problem, candidates=tuple([each for each in candidates if each.nodes]))


def with_options(problem: EvictionProblem, change: Callable[[Option], Option | None]) -> EvictionProblem:
    """The problem with every option changed; None leaves it out."""
    candidates = [
        replace(each, options=tuple([new for option in each.options if (new := change(option)) is not None]))
        for each in problem.candidates
    ]
    return replace(problem, candidates=tuple(candidates))
