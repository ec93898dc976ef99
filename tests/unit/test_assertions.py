"""Each test asserts something, outside loops that may be empty: a test that looks at nothing passes for good.

Read from the tests' text. A function that asserts counts wherever it is called, by its name alone; a loop counts where
what it goes through surely has an element. Where that cannot be seen, one line says it: ``assert things``.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(TESTS.rglob("*.py"))}
PAGE_BY_PAGE = "unit/docs/test_docs.py"  # a page may name nothing; that some page does is a test of its own
RAISES = {"pytest.raises", "pytest.warns", "pytest.fail"}
PASSES_ON = {"sorted", "list", "tuple", "set", "enumerate", "reversed", "zip", "product", "permutations", "range"}


def called(node: ast.Call) -> str:
    return ast.unparse(node.func).rpartition(".")[2]


def has_some(node: ast.expr, known: set[str]) -> bool:
    """Whether there is surely an element in it; ``known``: names of which that is so."""
    match node:
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return any(not isinstance(part, ast.Starred) or has_some(part.value, known) for part in parts)
        case ast.Dict(keys=keys, values=values):
            return any(key or has_some(value, known) for key, value in zip(keys, values, strict=True))
        case ast.Constant(value=value):
            return bool(value)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in known or name.isupper()
        case ast.BinOp(left=left, right=right):
            return has_some(left, known) or has_some(right, known)
        case ast.ListComp(generators=parts) | ast.SetComp(generators=parts) | ast.GeneratorExp(generators=parts):
            return all(not part.ifs and has_some(part.iter, known) for part in parts)
        case ast.Call(func=ast.Attribute(attr="items" | "values" | "keys" | "copy", value=of)):
            return has_some(of, known)
        case ast.Call(args=arguments) if called(node) in PASSES_ON:
            return bool(arguments) and all(has_some(argument, known) for argument in arguments)
    return False


def known_names(tree: ast.Module) -> set[str]:
    """Of constants and of classes, which are taken for enumerations."""
    imported = {
        name.asname or name.name for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names
    }
    found = {name for name in imported if name[0].isupper()}
    found |= {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in tree.body:
        if isinstance(node, ast.Assign) and has_some(node.value, found):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def parameters(function: ast.FunctionDef) -> set[str]:
    """Those that the test is given by a list of its own."""
    marks = [mark for mark in function.decorator_list if isinstance(mark, ast.Call)]
    named = [mark.args[0] for mark in marks if called(mark) == "parametrize"]
    return {name for each in named if isinstance(each, ast.Constant) for name in str(each.value).split(", ")}


def asserts(function: ast.FunctionDef, known: set[str], checking: set[str]) -> bool:
    """Whether it asserts outside loops that may be empty; ``checking``: functions that do."""

    def is_in(node: ast.AST) -> bool:
        if isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef | ast.While):
            return False
        if isinstance(node, ast.Assert) or (isinstance(node, ast.Raise) and "AssertionError" in ast.unparse(node)):
            return True
        if isinstance(node, ast.Call) and (called(node) in checking or ast.unparse(node.func) in RAISES):
            return True
        if isinstance(node, ast.Assign) and has_some(node.value, names):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
        if isinstance(node, ast.For) and not has_some(node.iter, names):
            return is_in(node.iter)
        return any(is_in(child) for child in ast.iter_child_nodes(node))

    names = known | parameters(function)
    return any(is_in(statement) for statement in function.body)


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def without_assertion(trees: dict[Path, ast.Module]) -> list[str]:
    known = {path: known_names(tree) for path, tree in trees.items()}
    left = [(path, each) for path, tree in trees.items() for each in functions(tree)]
    checking: set[str] = set()
    while True:
        found = [(path, each) for path, each in left if asserts(each, known[path], checking)]
        if not found:
            return sorted(f"{path}::{each.name}" for path, each in left if each.name.startswith("test_"))
        checking |= {each.name for _, each in found}
        left = [each for each in left if each not in found]


def test_each_test_asserts_something() -> None:
    found = without_assertion({path.relative_to(TESTS): tree for path, tree in TREES.items()})
    assert [each for each in found if not each.startswith(PAGE_BY_PAGE)] == []


@pytest.mark.parametrize(
    ("body", "good"),
    [
        (["assert things"], True),
        (["for each in things:", "    assert each"], False),
        (["assert things", "for each in things:", "    assert each"], True),
        (["for each in (1, 2):", "    assert each"], True),
        (["for at, each in enumerate(EACH):", "    assert each"], True),
        (["for at in range(3):", "    assert at"], True),
        (["while things:", "    assert things.pop()"], False),
        (["with pytest.raises(KeyError):", "    things['a']"], True),
        (["helper(things)"], True),
        (["for each in helper(things):", "    print(each)"], True),
        (["other(things)"], False),
    ],
)
def test_what_is_found(body: list[str], good: bool) -> None:
    helpers = ["def helper(things):", "    assert things", "def other(things):", "    print(things)"]
    tree = ast.parse("\n".join([*helpers, "def test_it(things):", *(f"    {line}" for line in body)]))
    assert without_assertion({Path("a.py"): tree}) == ([] if good else ["a.py::test_it"])
