"""Whether a tuned program is right: its results, and the default's, held against the oracle.

Where the oracle's first-order bound is finite and small beside the values, every element has to
keep it.  In deep programs the bound grows without telling anything; there the root mean square
error of the whole result decides, measured beside the default's own, and beside how far the
default's result goes where its inputs move by one rounding (`conditioning.py`).

Random inputs are drawn at falling scales until the default's results are finite: infinities and
NaNs compare with nothing.  Every verdict says what share of the elements it rests on.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from math import inf, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hlotune.deploy.conditioning import DRAWS, MovesIn, moves
from hlotune.deploy.flat_calls import called
from hlotune.deploy.inputs import Inputs, example_inputs, results_of
from hlotune.deploy.plain_values import apart, finite, lost
from hlotune.deploy.roundings import roundings
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import Program
from hlotune.hlo.graph import Graph, Op, TensorType, needed
from hlotune.hlo.oracle import (
    Gap,
    OutOfTime,
    Reference,
    compare,
    evaluate,
    flushing,
    gaps,
    rounding,
)
from hlotune.measure.verification.verify import TOLERANCE
from hlotune.schedules.dtypes import is_float
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.targets.target import F32Operands

Array = NDArray[Any]
TIMES_DEFAULT: dict[str, float] = {"strict": 2.0, "standard": 16.0, "fast": 64.0}
"""Times the default's error that a whole result may be off."""
MOST_ERROR = 0.1
"""No result may be further off than this, whatever the default does, unless roundings of its inputs
take the default's own as far."""
USEFUL = 0.05
"""A bound is of use where, beside typical values, it is not larger."""
EPS: dict[str, float] = {
    "f64": 2.0**-53, "f32": 2.0**-24, "bf16": 2.0**-8, "f16": 2.0**-11,
    "complex<f64>": 2.0**-53, "complex<f32>": 2.0**-24,
    "f8E5M2": 2.0**-3, "f8E5M2FNUZ": 2.0**-3, "f8E4M3": 2.0**-4, "f8E4M3FN": 2.0**-4,
    "f8E4M3FNUZ": 2.0**-4, "f8E4M3B11FNUZ": 2.0**-4, "f8E3M4": 2.0**-5, "f8E8M0FNU": 2.0**-1,
    "f4E2M1FN": 2.0**-2,
}  # fmt: skip
"""Half the distance between neighbours at 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Relative root mean square errors of one result, against the oracle.

    Where the oracle has no answer, `default_error` is None and the tuned result is held against the
    default's.  Where nothing could be compared, the errors are NaN.
    """

    inputs: str
    result: int
    default_error: float | None
    tuned_error: float
    compared: float = 1.0
    """Share of the elements that could be compared: finite, and not undecided by a comparison."""
    wrong: str | None = None
    """Why the tuned result is not acceptable."""
    unchecked: str | None = None
    """Why the oracle was not asked, and the result held against the default's alone."""
    default_wrong: str | None = None
    """How the default's result does not agree with the oracle, where it does not."""

    @property
    def is_checked(self) -> bool:
        return self.compared > 0

    def to_json(self) -> dict[str, Any]:
        """Errors that are no finite numbers become null."""
        return {
            k: None if isinstance(v, float) and not np.isfinite(v) else v
            for k, v in asdict(self).items()
        }


def require_known_calls(program: Program) -> None:
    """Raises ProgramError where a program calls code of another library that XLA does not know.

    Programs without such calls are not looked at: this compiles, and calls, the program once.
    """
    if any(op.name == "stablehlo.custom_call" for op in _operations(program.graph)):
        called(program, jitted(program), example_inputs(program).values)


def _operations(graph: Graph) -> Iterator[Op]:
    for op in graph.ops:
        yield op
        for region in op.regions:
            yield from _operations(region)


@dataclass(frozen=True, slots=True, eq=False)
class Judge:
    """One input set with the default's results and the oracle's."""

    program: Program
    inputs: Inputs
    default: tuple[Array, ...]
    references: tuple[Reference | Gap, ...]
    """By result: what belongs there, or why the oracle does not say."""
    flushed: Callable[[], tuple[Reference | Gap, ...]]
    """The same of a processor that takes subnormal values for zero, as XLA and kernels may."""
    moves: MovesIn
    """How far the default's results go where its inputs move by one rounding."""

    @staticmethod
    def of(
        program: Program,
        default: Callable[..., Any],
        inputs: Inputs,
        oracle_limit_s: float = inf,
        f32_operands: F32Operands = "f32",
    ) -> "Judge":
        """`f32_operands` says to what the default's device rounds f32 operands of products."""
        results = inputs.results
        if results is None:
            results = results_of(program, default, inputs)
        expected = partial(
            expected_results, program.graph, inputs.values, oracle_limit_s, f32_operands
        )
        return Judge(
            program, inputs, results, expected(), cache(partial(expected, flushes=True)),
            moves(program, default, inputs.values, results),
        )  # fmt: skip

    @property
    def has_gaps(self) -> bool:
        """Whether the oracle does not tell all results."""
        return any(isinstance(reference, Gap) for reference in self.references)

    def judge(self, function: Callable[..., Any], numerics: Numerics) -> list[Accuracy]:
        """One verdict a result."""
        results = [np.asarray(x) for x in called(self.program, function, self.inputs.values)]
        pairs = zip(self.program.graph.result_types, results, strict=True)
        return [self._verdict(k, kind, got, numerics) for k, (kind, got) in enumerate(pairs)]

    def wrong_defaults(self) -> list[str]:
        """A sentence for each of the default's results that does not agree with the oracle."""
        kinds = self.program.graph.result_types
        found = [(k, self._default_wrong(k, kind)) for k, kind in enumerate(kinds)]
        return [
            f"XLA's own result {k} of the program on {self.inputs.name} inputs does not agree with "
            f"the reference: {why}"
            for k, why in found
            if why
        ]

    def _default_wrong(self, k: int, kind: TensorType) -> str | None:
        """By the bound of `standard`; where no bound is of use, by `MOST_ERROR`.

        Elements that are no numbers are not looked at: values on the way may leave the default's
        type, and not the oracle's.
        """
        reference = self.references[k]
        if isinstance(reference, Gap):
            return None
        why = self._default_off(k, kind, reference)
        flushed = self.flushed()[k] if why and is_float(kind.dtype) else reference
        if isinstance(flushed, Gap) or self._default_off(k, kind, flushed):
            return why
        return None

    def _default_off(self, k: int, kind: TensorType, reference: Reference) -> str | None:
        default = self.default[k]
        if not is_float(kind.dtype) or is_useful(reference, TOLERANCE["standard"]):
            masked, _ = self._masked(k, reference)
            mismatch = compare(masked, default, factor=TOLERANCE["standard"], exact=False)
            return str(mismatch) if mismatch else None
        known = finite(reference.value) & finite(default)
        error = relative_error(reference.value[known], default[known])
        return f"relative error {error:.3g}" if error > MOST_ERROR else None

    def _masked(self, k: int, reference: Reference) -> tuple[Reference, Array]:
        """The reference without a bound where values are no numbers; what is left to compare."""
        known = finite(reference.value) & finite(self.default[k])
        if reference.bound is None:
            return reference, known
        masked = reference.value == self.default[k]  # infinities on purpose are to be kept
        bound = np.where(known | masked, reference.bound, np.inf)
        return replace(reference, bound=bound), known & np.isfinite(bound)

    def _verdict(self, k: int, kind: TensorType, got: Array, numerics: Numerics) -> Accuracy:
        reference = self.references[k]
        if isinstance(reference, Gap) and not reference.is_repeatable:
            return self._accuracy(k, 0.0, None, nan, None)
        verdict = (
            self._against_default(k, kind, got, numerics)
            if isinstance(reference, Gap)
            else self._against_either(k, reference, kind, got, numerics)
        )
        gone = 0 if verdict.wrong else lost(self.default[k], got)
        if gone:
            verdict = replace(verdict, wrong=f"{gone} elements not finite where the default's are")
        if verdict.wrong and is_float(kind.dtype) and not self._is_bounded(reference, numerics):
            return self._unless_roundings_explain(k, verdict, got)
        return verdict

    def _unless_roundings_explain(self, k: int, verdict: Accuracy, got: Array) -> Accuracy:
        """The verdict on a result that is too far off; not wrong where roundings of the inputs take
        the default's own result as far.  Calls the default a few times more, until they do."""
        for draws in range(1, DRAWS + 1):
            known = self.moves(draws)[k]
            if known.explain(got):
                off = apart(known.settled, got)
                return replace(verdict, wrong=None, tuned_error=off.error, compared=off.compared)
        far = f"the default's own moves by {known.relative:.3g} where its inputs do by one rounding"
        return replace(verdict, wrong=f"{verdict.wrong}; {far}")

    @staticmethod
    def _is_bounded(reference: Reference | Gap, numerics: Numerics) -> bool:
        """Whether the elements of a result have bounds of use."""
        return not isinstance(reference, Gap) and is_useful(reference, TOLERANCE[numerics])

    def _against_either(
        self, k: int, reference: Reference, kind: TensorType, got: Array, numerics: Numerics
    ) -> Accuracy:
        """Against exact values; where these say wrong, against those with subnormals flushed."""
        verdict = self._against_oracle(k, reference, kind, got, numerics)
        if verdict.wrong is None or not is_float(kind.dtype):
            return verdict
        flushed = self.flushed()[k]
        if isinstance(flushed, Gap):
            return verdict
        other = self._against_oracle(k, flushed, kind, got, numerics)
        return verdict if other.wrong else other

    def _against_oracle(
        self, k: int, reference: Reference, kind: TensorType, got: Array, numerics: Numerics
    ) -> Accuracy:
        known = finite(reference.value) & finite(self.default[k])
        bounded = not is_float(kind.dtype) or self._is_bounded(reference, numerics)
        if bounded:
            reference, known = self._masked(k, reference)
        ours, theirs = (
            relative_error(reference.value[known], x[known]) for x in (got, self.default[k])
        )
        wrong = None
        if bounded:
            mismatch = compare(reference, got, factor=TOLERANCE[numerics], exact=False)
            wrong = str(mismatch) if mismatch else None
        elif ours > min(MOST_ERROR, allowed(kind.dtype, theirs, numerics)):
            wrong = f"relative error {ours:.3g}, the default's is {theirs:.3g}"
        return self._accuracy(k, _share(known), theirs, ours, wrong)

    def _against_default(
        self, k: int, kind: TensorType, got: Array, numerics: Numerics
    ) -> Accuracy:
        """Both round on the way, maybe to a coarser type than the result's."""
        found, graph = apart(self.default[k], got), self.program.graph
        alike = allowed(kind.dtype, 0.0, numerics) * np.sqrt(len(graph.ops))
        rounded = roundings(needed(graph, [graph.results[k]]), EPS)
        most = min(MOST_ERROR, max(alike, allowed(kind.dtype, rounded, numerics)))
        why = f"relative error {found.error:.3g} to the default's result"
        wrong = why if found.error > most else None
        return self._accuracy(k, found.compared, None, found.error, wrong)

    def _accuracy(
        self, k: int, share: float, default_error: float | None, error: float, wrong: str | None
    ) -> Accuracy:
        reference = self.references[k]
        return Accuracy(
            inputs=self.inputs.name,
            result=k,
            default_error=default_error,
            tuned_error=error,
            compared=share,
            wrong=wrong,
            unchecked=reference.reason if isinstance(reference, Gap) else None,
            default_wrong=self._default_wrong(k, self.program.graph.result_types[k]),
        )


def expected_results(
    graph: Graph,
    values: Sequence[Array],
    limit_s: float = inf,
    f32_operands: F32Operands = "f32",
    *,
    flushes: bool = False,
) -> tuple[Reference | Gap, ...]:
    """What the oracle says of each result, as far as it knows the operations behind it.

    `flushes` says that subnormal values are taken for zero.
    """
    missing = gaps(graph)
    known = [k for k, gap in enumerate(missing) if gap is None]
    part = needed(graph, [graph.results[k] for k in known])
    given = dict(zip(graph.arguments, values, strict=True))
    answers: Sequence[Reference | Gap]
    try:
        with flushing() if flushes else nullcontext(), rounding(f32_operands):
            answers = evaluate(part, [given[a] for a in part.arguments], limit_s=limit_s)
    except UnsupportedKernel as error:
        answers = (Gap(str(error)),) * len(known)
    except OutOfTime:
        reason = f"the oracle did not get through the program in {limit_s:.3g} s"
        answers = (Gap(reason),) * len(known)
    said: dict[int, Reference | Gap] = dict(zip(known, answers, strict=True))
    return tuple(said[k] if gap is None else gap for k, gap in enumerate(missing))


def allowed(dtype: str, default_error: float, numerics: Numerics) -> float:
    """The largest relative error that a tuned result may have."""
    return TIMES_DEFAULT[numerics] * max(EPS.get(dtype, 0.0), default_error)


def _share(known: Array) -> float:
    return float(known.mean()) if known.size else 1.0


def relative_error(expected: Array, got: Array) -> float:
    """Root mean square error over root mean square; what is expected is finite."""
    return apart(expected, got).error


def is_useful(reference: Reference, factor: float) -> bool:
    """Whether the bound is finite nearly everywhere, and small beside the values."""
    if reference.bound is None or not reference.bound.size:
        return True
    values = reference.value[np.isfinite(reference.value)]
    typical = np.sqrt(np.mean(np.square(values))) if values.size else 0.0
    return bool(factor * np.median(reference.bound) <= USEFUL * typical)
