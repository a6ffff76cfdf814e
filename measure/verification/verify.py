"""Whether a built kernel does what its text says, and with what error.

`rounds.py` says with which inputs and on which hosts it is called, `answers.py` what it should
give, `guarded_calls.py` calls it.
"""

from contextlib import closing
from dataclasses import dataclass
from typing import Any

from hlotune.codegen.backends import backend_named
from hlotune.codegen.built import Built
from hlotune.hlo.kernel import Kernel
from hlotune.measure.trial import Failure
from hlotune.measure.verification.answers import rounds_with_cases
from hlotune.measure.verification.buffers import Pages
from hlotune.measure.verification.deviation import largest_error, relative_error
from hlotune.measure.verification.guarded_calls import results_of
from hlotune.measure.verification.references import References
from hlotune.schedules.algorithms.table import algorithm_of
from hlotune.schedules.errors import BuildError, UnsupportedKernel, WrongResult
from hlotune.schedules.numerics import NUMERICS, Numerics

TOLERANCE: dict[Numerics, float] = {"strict": 1.0, "standard": 8.0, "fast": 64.0}
"""How many times the oracle's bound an element may be off; the least setting first."""

CANCELS = (
    "expected a schedule that only reorders sums, as strict numerics ask, got {algorithm}, which "
    "cancels or rounds: allow standard numerics, or search without it"
)
IS_LOOSE = (
    "expected a schedule whose error is for {asked} numerics, got {algorithm}, which amplifies "
    "rounding more: allow fast numerics, or search without it"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The kernel is right."""

    error: float
    """Largest deviation from the oracle, in units of the tolerance of `standard`."""
    numerics: Numerics
    """The least setting under which it is right."""
    relative_error: float = 0.0
    """Largest deviation over the largest value of its result, with normal inputs."""


def verify(
    kernel: Kernel,
    built: Built,
    *,
    numerics: Numerics = "standard",
    thorough: bool = False,
    references: References | None = None,
    loaded: Any = None,
    pages: Pages | None = None,
) -> Verdict | Failure:
    """Holds what a kernel makes of two input sets, with `thorough` of five, against the oracle.

    Of one more where an algorithm does more than reorder sums, and a lost term may hide in them; of
    ordered ones where it looks for the largest or the least of many.

    Args:
        numerics: the setting under which the kernel is to be right.
        thorough: for winners: more sets, extreme values, one thread, shuffled tasks, guards at
            both ends.
        references: those of the kernel, when they are at hand.
        loaded: the built kernel, when its backend has loaded it into this process.
        pages: memory for buffers, which lose what they hold.
    """
    references, pages = references or References(kernel), pages or Pages()
    if refusal := _refusal(built.algorithm, numerics):
        return Failure("wrong_result", refusal)
    outputs = algorithm_of(built.algorithm).outputs
    worst = relative = 0.0
    try:
        loaded = loaded or backend_named(built.backend).load(built)
        with closing(rounds_with_cases(built, thorough, references, outputs)) as both:
            for round_, case in both:
                results = results_of(loaded, built, case, references.graph, round_, pages)
                factor = TOLERANCE["standard" if round_.kind == "few" else numerics]
                worst = max(worst, largest_error(case, results, factor, reorders=not outputs))
                for sums in case.sums:
                    sums.check(results, case.kind, reorders=not outputs)
                if round_.kind == "normal":
                    relative = max(relative, relative_error(case, results))
    except BuildError as error:
        return Failure("build", str(error))
    except (UnsupportedKernel, WrongResult) as error:
        return Failure("wrong_result", str(error))
    return Verdict(worst / TOLERANCE["standard"], _least(built.algorithm, worst), relative)


def _refusal(name: str, numerics: Numerics) -> str:
    """Why a setting of numerics does not allow an algorithm, whatever its results; or ""."""
    if algorithm_of(name).is_allowed(numerics):
        return ""
    return (CANCELS if numerics == "strict" else IS_LOOSE).format(algorithm=name, asked=numerics)


def _least(name: str, worst: float) -> Numerics:
    """The least setting that allows an algorithm and its largest error in bounds of the oracle."""
    by_error: Numerics = next((n for n, most in TOLERANCE.items() if worst <= most), "fast")
    return max(by_error, algorithm_of(name).numerics, key=NUMERICS.index)
