"""Whether a tuned program is right: its results, and the default's, held against the oracle.

Where the oracle's first-order bound is finite and small beside the values, every element has to
keep it.  In deep programs the bound grows without telling anything; there the root mean square
error of the whole result decides, measured beside the default's own.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import jax
import numpy as np
from numpy.typing import NDArray

from hlotune.hlo.graph import TensorType
from hlotune.hlo.oracle import Reference, compare, evaluate
from hlotune.hlo.program import Program
from hlotune.measure.inputs import draw
from hlotune.measure.trial import Numerics
from hlotune.schedules.dtypes import is_float
from hlotune.schedules.errors import UnsupportedKernel

Array = NDArray[Any]
BOUNDS: dict[str, float] = {"strict": 1.0, "standard": 8.0, "fast": 64.0}
"""Times the oracle's bound that an element may be off."""
TIMES_DEFAULT: dict[str, float] = {"strict": 2.0, "standard": 16.0, "fast": 64.0}
"""Times the default's error that a whole result may be off."""
MOST_ERROR = 0.1
"""No result may be further off than this, whatever the default does."""
USEFUL = 0.05
"""A bound is of use where, beside typical values, it is not larger."""
EPS: dict[str, float] = {"f64": 2.0**-53, "f32": 2.0**-24, "bf16": 2.0**-8, "f16": 2.0**-11}


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """Values for the arguments of a program, flat."""

    name: Literal["example", "random"]
    values: tuple[Array, ...]
    drawn: tuple[int, ...] = ()
    """Positions where the example had no values, or nothing but zeros: drawn at random."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Relative root mean square errors of one result, against the oracle.

    Where the oracle knows not all of the program, `default_error` is None and the tuned result is
    held against the default's.
    """

    inputs: str
    result: int
    default_error: float | None
    tuned_error: float
    wrong: str | None = None
    """Why the tuned result is not acceptable."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def example_inputs(program: Program, seed: int = 0) -> Inputs:
    """What the program was loaded with; random where that is missing, or zeros."""
    drawn = draw(program.graph, "normal", np.random.default_rng([seed, 1]))
    leaves = jax.tree.leaves(program.example_args or ())
    if not leaves:
        return Inputs("example", drawn, tuple(range(len(drawn))))
    kept = [None if _says_nothing(x) else np.asarray(x) for x in leaves]
    values = tuple(d if k is None else k for k, d in zip(kept, drawn, strict=True))
    return Inputs("example", values, tuple(i for i, k in enumerate(kept) if k is None))


def random_inputs(program: Program, seed: int = 0) -> Inputs:
    return Inputs("random", draw(program.graph, "normal", np.random.default_rng([seed, 2])))


def _says_nothing(leaf: Any) -> bool:
    """Whether an example is a shape only, or an array of zeros."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return True
    array = np.asarray(leaf)
    return array.dtype.kind not in "biu" and array.size > 1 and not np.any(array)


def called(program: Program, function: Callable[..., Any], values: Sequence[Any]) -> list[Any]:
    """Calls a program's function on flat arguments, and flattens what it gives."""
    if program.in_tree is None:
        return list(jax.tree.leaves(function(*values)))
    arguments, named = jax.tree.unflatten(program.in_tree, values)
    return list(jax.tree.leaves(function(*arguments, **named)))


@dataclass(frozen=True, slots=True, eq=False)
class Judge:
    """One input set with the default's results and the oracle's."""

    program: Program
    inputs: Inputs
    default: tuple[Array, ...]
    references: tuple[Reference, ...] | None
    """None where the oracle knows not all of the program."""

    @staticmethod
    def of(program: Program, default: Callable[..., Any], inputs: Inputs) -> "Judge":
        results = tuple(np.asarray(x) for x in called(program, default, inputs.values))
        try:
            references = evaluate(program.graph, inputs.values)
        except UnsupportedKernel:
            return Judge(program, inputs, results, None)
        return Judge(program, inputs, results, references)

    def judge(self, function: Callable[..., Any], numerics: Numerics) -> list[Accuracy]:
        """One verdict a result."""
        results = [np.asarray(x) for x in called(self.program, function, self.inputs.values)]
        verdicts = []
        for k, (kind, got) in enumerate(zip(self.program.graph.result_types, results, strict=True)):
            if self.references is None:
                verdicts.append(self._against_default(k, kind, got, numerics))
            else:
                verdicts.append(self._against_oracle(k, kind, got, numerics))
        return verdicts

    def _against_oracle(self, k: int, kind: TensorType, got: Array, numerics: Numerics) -> Accuracy:
        assert self.references is not None
        reference = self.references[k]
        ours, theirs = (relative_error(reference.value, x) for x in (got, self.default[k]))
        wrong = None
        if not is_float(kind.dtype) or is_useful(reference, BOUNDS[numerics]):
            mismatch = compare(reference, got, factor=BOUNDS[numerics], exact=False)
            wrong = str(mismatch) if mismatch else None
        elif not ours <= min(MOST_ERROR, allowed(kind.dtype, theirs, numerics)):
            wrong = f"relative error {ours:.3g}, the default's is {theirs:.3g}"
        return Accuracy(
            inputs=self.inputs.name, result=k, default_error=theirs, tuned_error=ours, wrong=wrong
        )

    def _against_default(
        self, k: int, kind: TensorType, got: Array, numerics: Numerics
    ) -> Accuracy:
        error = relative_error(self.default[k].astype(np.float64), got)
        most = allowed(kind.dtype, 0.0, numerics) * np.sqrt(len(self.program.graph.ops))
        wrong = None if error <= most else f"relative error {error:.3g} to the default's result"
        return Accuracy(
            inputs=self.inputs.name, result=k, default_error=None, tuned_error=error, wrong=wrong
        )


def allowed(dtype: str, default_error: float, numerics: Numerics) -> float:
    """The largest relative error that a tuned result may have."""
    return TIMES_DEFAULT[numerics] * max(EPS.get(dtype, 0.0), default_error)


def relative_error(expected: Array, got: Array) -> float:
    """Root mean square error over root mean square; infinite where finite values became others."""
    with np.errstate(all="ignore"):
        known = np.isfinite(expected.astype(np.float64))
        want, have = expected[known].astype(np.float64), got[known].astype(np.float64)
        if not np.isfinite(have).all():
            return float("inf")
        off, size = np.linalg.norm(have - want), np.linalg.norm(want)
        return float(off / size) if size else float(np.inf if off else 0.0)


def is_useful(reference: Reference, factor: float) -> bool:
    """Whether the bound is finite nearly everywhere, and small beside the values."""
    if reference.bound is None:
        return True
    values = reference.value[np.isfinite(reference.value)]
    typical = np.sqrt(np.mean(np.square(values))) if values.size else 0.0
    return bool(factor * np.median(reference.bound) <= USEFUL * typical)
