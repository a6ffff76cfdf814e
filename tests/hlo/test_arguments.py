"""Arguments of a call, as the function took them that a program was loaded from."""

import inspect
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from hlotune.deploy.freeze import freeze
from hlotune.hlo.calling.arguments import by_position, names_of
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import load

X = np.arange(4, dtype=np.float32)


def scaled(params: dict[str, jax.Array], x: jax.Array, shift: float = 0.0) -> jax.Array:
    return params["w"] * x - shift


def test_names_are_those_of_the_arguments_that_were_given() -> None:
    assert names_of(scaled, 2) == ("params", "x")
    assert names_of(scaled, 3) == ("params", "x", "shift")
    assert names_of(lambda a, /, b, *rest: a, 4) == ("", "b")
    assert names_of(partial(scaled, {}), 1) == ("x",)
    assert names_of(freeze(scaled, {"w": X}), 1) == ("x",)
    assert names_of(max, 2) == ()


def test_a_program_takes_its_arguments_by_name_in_any_order() -> None:
    run = jitted(load(scaled, {"w": X}, X))
    wanted = X * 2 * X
    np.testing.assert_array_equal(run({"w": X}, x=2 * X), wanted)
    np.testing.assert_array_equal(run(x=2 * X, params={"w": X}), wanted)


def test_a_frozen_function_takes_what_is_left_by_name() -> None:
    run = jitted(load(freeze(scaled, {"w": X}), X))
    np.testing.assert_array_equal(run(x=2 * X), X * 2 * X)


def test_arguments_may_be_called_as_ours_are() -> None:
    """What hands them on has parameters too."""

    def own(
        self: Any, hidden: Any, names: Any, in_tree: Any, out_tree: Any, exported: Any, args: Any
    ) -> Any:
        return self - hidden + names - in_tree + out_tree - exported + args

    values = {name: X + n for n, name in enumerate(inspect.signature(own).parameters)}
    run = jitted(load(own, *values.values()))
    np.testing.assert_array_equal(run(**values), own(**values))


@pytest.mark.parametrize(
    ("names", "named", "message"),
    [
        (("a", "b", "c", "d"), {"a": 1, "d": 2}, "expected b before d"),
        (("", "b"), {"b": 2}, "expected an argument by position before b"),
    ],
)
def test_what_is_left_out_is_named(
    names: tuple[str, ...], named: dict[str, int], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        by_position(names, (), named)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (({"w": X},), r"as the program was loaded with, 2 \(params, x\), got 1; pass as many, or"),
        (({"w": X}, X, X), r"expected as many arguments as the .* \(params, x\), got 3"),
        ((X, X), r"expected \{'w': \*\} as params, got an array; pass that, or load the program"),
        (({"w": X}, [*X] * 50), r"expected an array as x, got \[\*, [^;]{,96} \.\.\.; pass"),
        (({"w": X, "b": X}, X), r"expected \{'w': \*\} as params, got \{'b': \*, 'w': \*\}"),
        (({"w": X[:2]}, X), r"expected f32\[4\] as params\['w'\], got f32\[2\]; convert it, or"),
        (({"w": X}, X.astype(np.int32)), r"expected f32\[4\] as x, got i32\[4\]"),
    ],
)
def test_other_arguments_than_those_of_the_program_are_refused_by_name(
    args: tuple[Any, ...], message: str
) -> None:
    run = jitted(load(scaled, {"w": X}, X))
    with pytest.raises(TypeError, match=message):
        run(*args)


def test_long_structures_are_shown_where_they_first_differ() -> None:
    name = "w" * 150
    run = jitted(load(scaled, {"w": X, "x": {name: X}}, X))
    wanted, got = r"w{30,}': \*\}\}", r"w{30,}': \[\*\]\}\}"
    message = rf"expected \.\.\. {wanted} as params, got \.\.\. {got}; pass that"
    with pytest.raises(TypeError, match=message):
        run({"w": X, "x": {name: [X]}}, X)
    with pytest.raises(TypeError, match=r"expected an array as x, got \{'w{98} \.\.\.; pass"):
        run({"w": X, "x": {name: X}}, {name: X})
    with pytest.raises(TypeError, match=r"expected .{100} \.\.\. as params, got \{'w': \*\};"):
        run({"w": X}, X)


def test_arguments_of_a_file_are_refused_by_number(tmp_path: Path) -> None:
    (tmp_path / "a.mlir").write_text(jax.jit(jax.numpy.add).lower(X, X).as_text())
    run = jitted(load(tmp_path / "a.mlir"))
    with pytest.raises(TypeError, match=r"expected as many arrays as .*, 2, got 1; pass as"):
        run(X)
    with pytest.raises(TypeError, match=r"expected f32\[4\] as argument 1, got f32\[3\]"):
        run(X, X[1:])


def test_a_program_of_a_file_has_no_names() -> None:
    with pytest.raises(TypeError, match="loaded with \\(none of them by name\\), got x"):
        by_position((), (1,), {"x": 2})


@pytest.mark.parametrize(
    ("args", "named", "message"),
    [
        ((1,), {"y": 2}, "loaded with \\(params, x\\), got y; leave it out, or load"),
        ((1, 2), {"x": 3}, "expected one x, got two: by position and by name"),
        ((), {"x": 3}, "expected params before x, got none; pass it too"),
    ],
)
def test_wrong_names_are_refused_in_words(
    args: tuple[int, ...], named: dict[str, int], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        by_position(("params", "x"), args, named)
