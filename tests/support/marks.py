"""Which files of tests an expression of `-m` may choose from, without importing them."""

import ast
import re
from collections.abc import Set
from functools import cache
from itertools import combinations

MARKS = frozenset({"aot", "browser", "frameworks", "slow", "smoke", "torch"})
"""Those of pyproject.toml."""


def may_be_chosen(text: str, expression: str) -> bool:
    """Whether a file of this text may have a test of which the expression is true.

    All its tests have the marks that the file itself has; any other that its text has in a word
    somewhere, a test may have or not.
    """
    certain = frozenset(re.findall(r"^pytestmark = pytest\.mark\.(\w+)$", text, re.MULTILINE))
    return _may_hold(expression, certain & MARKS, frozenset(x for x in MARKS if x in text))


@cache
def _may_hold(expression: str, certain: Set[str], possible: Set[str]) -> bool:
    try:
        asked = ast.parse(expression.strip(), mode="eval").body
    except SyntaxError:  # which pytest tells
        return True
    rest = sorted(possible - certain)
    sets = (certain | set(x) for n in range(len(rest) + 1) for x in combinations(rest, n))
    return any(_holds(asked, marks) is not False for marks in sets)


def _holds(asked: ast.expr, marks: Set[str]) -> bool | None:
    """None where this cannot be said: of names that are no marks, and marks with arguments."""
    match asked:
        case ast.Name(id=name) if name in MARKS:
            return name in marks
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            found = _holds(operand, marks)
            return None if found is None else not found
        case ast.BoolOp(op=op, values=values):
            decides = isinstance(op, ast.Or)
            parts = [_holds(x, marks) for x in values]
            return decides if decides in parts else None if None in parts else not decides
    return None
