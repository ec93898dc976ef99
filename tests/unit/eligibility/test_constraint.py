"""Constraints on features, as real Slurm 22.05 took or refused them for nodes with these features."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearway.eligibility.constraint import alternatives, satisfied

NODES = {"node1": "ax", "node2": "bx", "node3": "aby", "node4": "cy"}


@pytest.mark.parametrize(
    ("constraint", "nodes"),
    [
        ("", "1234"),
        ("a", "13"),
        ("a&b", "3"),
        ("a|b", "123"),
        ("c|a&x", "1"),  # from left to right node 4 has no x; were & closer, it would do
        ("a&x|c", "14"),
        ("c|(a&x)", "14"),
        ("(a|c)&y", "34"),
        ("((a|c))&(x|y)", "134"),
        ("x&(a|c)", "1"),
    ],
)
def test_nodes_of_a_constraint(constraint: str, nodes: str) -> None:
    assert alternatives(constraint) == (constraint,)
    assert [name for name, has in NODES.items() if satisfied(constraint, frozenset(has))] == [f"node{n}" for n in nodes]


def test_alternatives_are_constraints_of_their_own() -> None:
    assert alternatives("[a|b]") == ("(a)", "(b)")
    assert alternatives("x&[a|(b&y)]") == ("x&(a)", "x&((b&y))")


@pytest.mark.parametrize(
    "constraint",
    [
        *("a*2", "[a*2&b*1]", "!a", "a,b", "[a|b", "[a|b]&[x|y]", "a&", "&a", "a b", "()", "(a", "a)", "[]"),
        *("(" * 50, "a" * 2_000, "a[1-2]", "a\n"),
    ],
)
def test_what_is_not_read_is_told(constraint: str) -> None:
    assert alternatives(constraint) is None


@given(st.text(alphabet="ab&|()[]*!, ", max_size=40))
def test_any_text_is_a_constraint_or_none(text: str) -> None:
    found = alternatives(text)
    assert found is None or all(satisfied(each, frozenset("ab")) in (True, False) for each in found)
