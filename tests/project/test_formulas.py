"""First candidates come from formulas: no shape stands in the code that makes them."""

import ast
from pathlib import Path

import pytest

from tests.support.tree import ROOT

SCHEDULES = ROOT / "schedules"
FORMULAS = (
    *sorted((SCHEDULES / "spaces/cpu_contraction/first_candidate").glob("[a-z]*.py")),
    SCHEDULES / "spaces/cpu_contraction/vector_axes.py",
    SCHEDULES / "algorithms/split_reduction/rewriting.py",
    SCHEDULES / "algorithms/split_reduction/space.py",
    SCHEDULES / "algorithms/winograd/merged_taps.py",
    SCHEDULES / "algorithms/winograd/first_candidate.py",
    SCHEDULES / "algorithms/winograd/space.py",
)
"""The modules that decide first candidates."""


def shapes_in(source: str) -> list[str]:
    """Lines where a number of a formula may be a shape; constants of a module have their names.

    A number above 8 in a function, or any but 0, 1 and 2 that something is compared with.
    """
    found = list[str]()
    for node in (n for s in ast.parse(source).body if not is_constant(s) for n in ast.walk(s)):
        large = [n for n in numbers_of(node) if n > 8]
        compared = [n for part in compared_in(node) for n in numbers_of(part) if n > 2]
        if large or compared:
            found.append(ast.unparse(node))
    return found


def is_constant(statement: ast.stmt) -> bool:
    """Whether a statement names numbers one by one: a table of them would be one of shapes."""
    match statement:
        case ast.Assign(targets=[ast.Tuple()], value=ast.Tuple(elts=values)):
            return not any(map(holds_a_table, values))
        case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
            return not holds_a_table(value)
    return False


def holds_a_table(value: ast.expr) -> bool:
    return any(numbers_of(part) for node in ast.walk(value) for part in parts(node))


def compared_in(node: ast.AST) -> list[ast.AST]:
    """What a node compares: sides of a comparison with what they list, patterns of a match."""
    sides: list[ast.AST] = []
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
    elif isinstance(node, ast.MatchValue):
        sides = [node.value]
    return [part for side in sides for part in (side, *parts(side))]


def parts(node: ast.AST) -> list[ast.AST]:
    """The elements of what lists some, keys and values of a dict."""
    listed = isinstance(node, ast.Dict | ast.Set | ast.List | ast.Tuple)
    return list(ast.iter_child_nodes(node)) if listed else []


def numbers_of(node: ast.AST) -> list[float]:
    """The number that a node is, if it is one."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return [node.value]
    return []


@pytest.mark.parametrize("module", FORMULAS, ids=lambda p: str(p.relative_to(SCHEDULES)))
def test_no_shape_stands_in_the_formula(module: Path) -> None:
    assert shapes_in(module.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "body",
    [
        "if extent == 56: return 1",
        "if extent == 7: return 1",
        "if 3 < extent: return 1",
        "if extent in (1, 7): return 1",
        "if extents == [3, 3]: return 1",
        "if extent % 14: return 1",
        "return {14: 1}.get(extent, 2)",
        "match extent:\n    case 7: return 1",
    ],
)
def test_a_shape_in_a_formula_is_seen(body: str) -> None:
    assert shapes_in(f"LANES = 16\ndef rows(extent, extents=(1, 2)):\n  {body}\n")


def test_a_table_of_shapes_in_a_module_is_seen_and_a_constant_is_none() -> None:
    assert shapes_in("ROWS = {7: 4, 14: 6}")
    assert shapes_in("SIZES = frozenset((56, 112))")
    assert shapes_in("FEW, MANY = 8, 64") == []
    assert shapes_in("PAGE_BYTES = 4096\ndef few(n):\n  return n > 2 and n * 8 < PAGE_BYTES") == []
