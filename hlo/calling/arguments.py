"""The arguments of a call: a program takes what the function took that it came from, and says of
what else it gets where it differs from what the program was loaded with."""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import takewhile
from typing import Any

import jax

from hlotune.hlo.calling.keys import Generators, numbers_given

BY_NAME = inspect.Parameter.POSITIONAL_OR_KEYWORD
IN_A_ROW = (inspect.Parameter.POSITIONAL_ONLY, BY_NAME)
_LEAF = jax.tree.structure(0)
MOST_WRITTEN = 100
"""Characters of a structure that a message shows."""
SUCH = "or load the program with such arguments"


def names_of(function: Callable[..., Any], count: int) -> tuple[str, ...]:
    """The names of the first `count` arguments: "" for an argument that is given by position alone;
    arguments that `*args` takes have no entry.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of a function that is not Python's own
        return ()
    row = list(takewhile(lambda p: p.kind in IN_A_ROW, parameters))[:count]
    return tuple(p.name if p.kind is BY_NAME else "" for p in row)


def whole_arguments(leaves: Collection[int], in_tree: Any) -> tuple[int, ...]:
    """Positions of the arguments all of whose arrays are among these leaves of a program.

    `in_tree` is the pytree of `(args, {})`; None where the program takes flat arrays.
    """
    if in_tree is None:
        return tuple(leaves)
    found, first = [], 0
    for k, tree in enumerate(in_tree.children()[0].children()):
        own = range(first, first + tree.num_leaves)
        if own and all(leaf in leaves for leaf in own):
            found.append(k)
        first += tree.num_leaves
    return tuple(found)


def leaves_of(
    args: tuple[Any, ...],
    named: Mapping[str, Any],
    names: Sequence[str],
    in_tree: Any,
    types: Sequence[Any],
    generators: Generators | None = None,
) -> list[Any]:
    """The arrays of a call, in the order of the program.

    Args:
        in_tree: pytree of `(args, {})`; None where the program takes flat arrays.
        types: of these arrays.
        generators: of those that may come as typed random keys.

    Raises TypeError where names, number, structure, shapes or types are others.
    """
    args = by_position(names, args, named)
    if in_tree is not None:
        _check_structure(args, names, in_tree.children()[0].children())
    found, _ = jax.tree_util.tree_flatten_with_path(args)
    _check_count(len(found), len(types), "arrays")
    of_keys = generators or {}
    leaves = [numbers_given(leaf, of_keys.get(k)) for k, (_, leaf) in enumerate(found)]
    for (path, _), leaf, wanted in zip(found, leaves, types, strict=True):
        got = jax.typeof(leaf)
        if (got.shape, got.dtype) != (wanted.shape, wanted.dtype):
            called = _called(path[0].idx, names) + jax.tree_util.keystr(tuple(path[1:]))
            raise TypeError(
                f"expected {_short(wanted)} as {called}, got {_short(got)}; convert it, {SUCH}"
            )
    return leaves


def by_position(
    names: Sequence[str], args: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[Any, ...]:
    """The arguments of a call in their order.

    Raises TypeError for a name that is not among the arguments that the program was loaded with, is
    given by position too, or leaves one out before it.
    """
    waiting = names[len(args) :]
    for name in named:
        if name in names[: len(args)]:
            raise TypeError(f"expected one {name}, got two: by position and by name; leave one out")
        if name not in waiting:
            have = ", ".join(n for n in names if n) or "none of them by name"
            raise TypeError(
                f"expected the arguments that the program was loaded with ({have}), got {name}; "
                "leave it out, or load the program with it"
            )
    found = {n: named[n] for n in waiting if n in named}
    if left_out := [n for n in waiting[: len(found)] if n not in found]:
        missing = left_out[0] or "an argument by position"
        raise TypeError(f"expected {missing} before {list(found)[-1]}, got none; pass it too")
    return (*args, *found.values())


def _check_structure(args: Sequence[Any], names: Sequence[str], wanted: Sequence[Any]) -> None:
    _check_count(len(args), len(wanted), "arguments", names if all(names) else ())
    for n, (argument, tree) in enumerate(zip(args, wanted, strict=True)):
        if (got := jax.tree.structure(argument)) != tree:
            raise TypeError(
                f"expected {_plain(tree, got)} as {_called(n, names)}, got {_plain(got, tree)}; "
                f"pass that, {SUCH}"
            )


def _check_count(got: int, wanted: int, what: str, names: Sequence[str] = ()) -> None:
    if got != wanted:
        listed = f" ({', '.join(names)})" if names else ""
        raise TypeError(
            f"expected as many {what} as the program was loaded with, {wanted}{listed}, "
            f"got {got}; pass as many, {SUCH}"
        )


def _called(position: int, names: Sequence[str]) -> str:
    """An argument by its name, or by its number where it has none."""
    return (names[position : position + 1] or ("",))[0] or f"argument {position}"


def _plain(tree: Any, other: Any) -> str:
    """A structure in few words: a list of many numbers, say, is not written out, but for where it
    first differs from the other one.
    """
    if tree == _LEAF:
        return "an array"
    text = _written(tree)
    pairs = zip(text, _written(other), strict=False)
    same = sum(1 for _ in takewhile(lambda p: p[0] == p[1], pairs))
    start = max(0, min(same - MOST_WRITTEN // 2, len(text) - MOST_WRITTEN))
    end = start + MOST_WRITTEN
    return "... " * (start > 0) + text[start:end] + " ..." * (end < len(text))


def _written(tree: Any) -> str:
    return str(tree).removeprefix("PyTreeDef(").removesuffix(")")


def _short(kind: Any) -> str:
    return str(kind.str_short(short_dtypes=True))
