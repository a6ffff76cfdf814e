"""Boosted trees as tables, and machine code that asks them of a vector of rows at a time.

xgboost goes down a tree with one row, from branch to branch, and waits for each.  Here all tests of
a tree are made on as many rows as a vector has lanes, and its value is chosen from the leaves up:
more comparisons, but none that anything waits for.  Trees are filled up to the depth of the
deepest, so that one piece of code, compiled once in a process, serves all of them, whatever was
learned.
Values are added in the order of the trees, in float32, so sums are the very numbers of xgboost.
"""

import ctypes
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hlotune.codegen.runtime.loader import Library
from hlotune.codegen.runtime.support import machine_code
from hlotune.measure.machine.targets import host_target

DEEPEST = 8
"""Tests double with each level; deeper trees are xgboost's to walk."""
Floats = NDArray[np.float32]
Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Forest:
    """Trees of one depth D, filled up; the children of test k are 2k + 1 and 2k + 2."""

    tests: Ints
    """`(trees, 2**D - 1)`: columns that are compared."""
    bounds: Floats
    """`(trees, 2**D - 1)`: what is less goes to the first child."""
    leaves: Floats
    """`(trees, 2**D)`"""

    def added_to(self, sums: Floats, rows: Floats) -> Floats:
        """`(n,)`: sums, with the trees' values of `(n, columns)` rows added one after the other.

        No value of a row is missing: what is not a number would be compared like any other.
        """
        n, columns = rows.shape
        if not n or not len(self.leaves):
            return sums
        lanes = _lanes()
        walk = _walk(self.leaves.shape[1].bit_length() - 1, lanes)
        result = np.zeros(-(-n // lanes) * lanes, np.float32)
        result[:n] = sums
        turned = np.empty((columns, lanes), np.float32)
        rows = np.ascontiguousarray(rows, np.float32)
        arrays = (rows, turned, self.tests, self.bounds, self.leaves, result)
        walk(n, columns, len(self.tests), *(a.ctypes.data for a in arrays))
        return result[:n]


class Asked:
    """An xgboost model of one tree a round, on numbers alone, and its trees as forests."""

    def __init__(self, booster: Any, before: "Asked | None" = None) -> None:
        """`before`: the model that this one was grown on, whose trees come first."""
        self.booster, self._before = booster, before

    def margins(self, rows: Floats) -> Floats:
        """`(n,)`: the sums of all trees, the very numbers that xgboost gives."""
        if self.forests is None or np.isnan(rows).any():
            grown = self.booster.inplace_predict(rows, predict_type="margin")
            return np.asarray(grown, np.float32)
        sums = np.full(len(rows), self._start, np.float32)
        for forest in self.forests:
            sums = forest.added_to(sums, rows)
        return sums

    @cached_property
    def raw(self) -> bytearray:
        """The model as xgboost stores it."""
        stored: bytearray = self.booster.save_raw("ubj")
        return stored

    @cached_property
    def forests(self) -> tuple[Forest, ...] | None:
        """The forests in the order of the rounds; None where trees are too deep."""
        earlier = () if self._before is None else self._before.forests
        if earlier is None:
            return None
        begin = 0 if self._before is None else self._before.booster.num_boosted_rounds()
        said = json.loads(bytes(self.booster[begin:].save_raw("json")))["learner"]
        mine = forest_of(said["gradient_booster"]["model"]["trees"])
        return None if mine is None else (*earlier, mine)

    @cached_property
    def _start(self) -> float:
        if self._before is not None:
            return self._before._start
        said = json.loads(self.booster.save_config())["learner"]["learner_model_param"]
        return float(said["base_score"].strip("[]"))


def forest_of(trees: Sequence[Mapping[str, Any]]) -> Forest | None:
    """The forest of trees as xgboost's JSON has them; None where they are too deep."""
    ends = np.cumsum([0, *(len(t["left_children"]) for t in trees)])

    def joined(name: str, kind: type[np.generic]) -> NDArray[Any]:
        return np.concatenate([np.array(t[name], kind) for t in trees])

    children = np.stack([joined(f"{side}_children", np.int64) for side in ("left", "right")])
    is_leaf, first = children[0] < 0, np.repeat(ends[:-1], np.diff(ends))
    children = np.where(is_leaf, np.arange(ends[-1]), children + first)  # leaves: of themselves
    levels = list(_levels(children, is_leaf, ends[:-1]))
    if len(levels) > DEEPEST + 1:
        return None
    inner = np.concatenate([levels[0][:, :0], *levels[:-1]], axis=1)
    columns, values = joined("split_indices", np.int32), joined("split_conditions", np.float32)
    return Forest(columns[inner], values[inner], values[levels[-1]])


def _levels(
    children: NDArray[np.int64], is_leaf: NDArray[np.bool_], roots: NDArray[np.int64]
) -> Iterator[NDArray[np.int64]]:
    """Nodes of each level of all trees, `(trees, 2**level)`, up to the first without tests."""
    level = roots[:, None]
    yield level
    for _ in range(DEEPEST + 1):
        if is_leaf[level].all():
            return
        level = np.moveaxis(children[:, level], 0, -1).reshape(len(roots), -1)
        yield level


def _lanes() -> int:
    """Rows that a vector of this machine holds."""
    return host_target().vector_bytes // 4


@cache
def _walk(depth: int, lanes: int) -> Any:
    """The function for trees of a depth."""
    code = machine_code(text(depth, lanes), host_target(), "forest")
    library = Library(code, ("walk",), "forest")
    types = [ctypes.c_int64] * 3 + [ctypes.c_void_p] * 6
    function = ctypes.CFUNCTYPE(None, *types)(library.address("walk"))
    function.library = library  # type: ignore[attr-defined]  # the code lives as long as it
    return function


def text(depth: int, lanes: int) -> str:
    """LLVM text of `walk` for trees of a depth, filled up."""
    template = Template(Path(__file__).with_suffix(".ll").read_text(encoding="utf-8"))
    return template.substitute(
        lanes=lanes,
        numbers=", ".join(f"i64 {k}" for k in range(lanes)),
        inner=2**depth - 1,
        leaves=2**depth,
        value="\n".join(_value(0, 2**depth - 1, lanes)),
    )


def _value(n: int, inner: int, lanes: int) -> Iterator[str]:
    """Lines that make `%v<n>`, what a tree with so many tests says from a node on."""
    floats = f"<{lanes} x float>"
    if n >= inner:
        yield f"  %l{n}.at = getelementptr float, ptr %leaves.at, i64 {n - inner}"
        yield f"  %l{n} = load float, ptr %l{n}.at, align 4"
        yield from _splat(f"%v{n}", f"%l{n}", lanes)
        return
    yield from _value(2 * n + 1, inner, lanes)
    yield from _value(2 * n + 2, inner, lanes)
    yield f"  %t{n}.at = getelementptr i32, ptr %tests.at, i64 {n}"
    yield f"  %t{n} = load i32, ptr %t{n}.at, align 4"
    yield f"  %t{n}.offset = mul i32 %t{n}, {lanes}"
    yield f"  %x{n}.at = getelementptr float, ptr %turned, i32 %t{n}.offset"
    yield f"  %x{n} = load {floats}, ptr %x{n}.at, align 4"
    yield f"  %b{n}.at = getelementptr float, ptr %bounds.at, i64 {n}"
    yield f"  %b{n} = load float, ptr %b{n}.at, align 4"
    yield from _splat(f"%b{n}.all", f"%b{n}", lanes)
    yield f"  %c{n} = fcmp olt {floats} %x{n}, %b{n}.all"
    yield f"  %v{n} = select <{lanes} x i1> %c{n}, {floats} %v{2 * n + 1}, {floats} %v{2 * n + 2}"


def _splat(name: str, value: str, lanes: int) -> Iterator[str]:
    """A vector of one value."""
    floats = f"<{lanes} x float>"
    yield f"  {name}.one = insertelement {floats} poison, float {value}, i64 0"
    yield (
        f"  {name} = shufflevector {floats} {name}.one, {floats} poison, "
        f"<{lanes} x i32> zeroinitializer"
    )
