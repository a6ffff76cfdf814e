"""What comparing the whole program is asked for, and what comes of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import Protocol

from hlotune.search.finals.form_costs import FormCosts
from hlotune.search.finals.forms import Compared
from hlotune.tuning_logs.finals import Final, Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of comparing the whole program."""

    whole: Whole | None = None
    """None where it was not compared, or not to the end."""
    wrong: tuple[str, ...] = ()
    """Keys of kernels whose champions were to blame for wrong results, and were taken back."""
    wrong_sites: tuple[str, ...] = ()
    """The sites of these kernels in the program."""
    slower: tuple[str, ...] = ()
    """Keys of kernels that went back to their defaults, because the program is slower with them."""
    together: tuple[str, ...] = ()
    """Keys of kernels that are not proven faster alone, and with which the program is."""
    in_use: tuple[str, ...] = ()
    """Keys of kernels that did not win in this run, and are in the program since an earlier one."""
    wrong_anyway: str = ""
    """What is wrong in the program though no champion is to blame."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Keys of kernels whose champions were tried with others and made the program wrong, with the
    reason; they keep their defaults.
    """
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Within:
    """The seconds that comparing a program of long calls may take."""

    usual_s: float
    proving_s: float
    """The same where its rounds prove something."""


ANY = Within(inf, inf)


Place = tuple[tuple[int, ...], int]
"""An operation of a program: its region's path, as in `Site.path`, and its number there."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What the champions so far would make of a program."""

    saved_s: float = 0.0
    """The seconds that they save of a call."""
    replaced: frozenset[Place] = frozenset()
    """Its operations that are theirs, which XLA need not compile."""


AS_DEFAULT = Expected()


class Comparing(Protocol):
    """Compares the whole program with the default."""

    def prepare(self, oracle_limit_s: float) -> None:
        """Does what can be done before there are champions; else `compare` does it."""
        ...

    @property
    def is_long(self) -> bool:
        """Whether calls of the program take so long that there are few of them."""
        ...

    def due_s(
        self, timing_s: float, expected: Expected = AS_DEFAULT, within: Within = ANY
    ) -> float:
        """The seconds that a comparison is expected to take, where timing takes `timing_s` at most.
        Long calls have fewer rounds where all of it would take more than is `within`.
        """
        ...

    def form_costs(self, confidence: float, expected: Expected = AS_DEFAULT) -> FormCosts:
        """What comparing two forms of the program with some confidence is expected to take."""
        ...

    def compare(
        self,
        limit_s: float,
        oracle_limit_s: float | None = None,
        also: Mapping[str, Final] = MappingProxyType({}),
        left_s: Callable[[], float] | None = None,
    ) -> Whole | None:
        """Times both for so many seconds at most; None where nothing was replaced.

        `also` are finals of kernels whose champions are put in too, by their keys.  Where `left_s`
        says how many seconds are left, no long call is made for which there are too few.

        Where nothing is prepared, the oracle has `oracle_limit_s`, or its usual time.  Raises
        WrongResult.
        """
        ...

    def is_faster(
        self,
        base: Mapping[str, Final],
        more: Mapping[str, Final],
        confidence: float,
        limit_s: float,
        oracle_limit_s: float | None = None,
    ) -> Compared | None:
        """Whether the program is proven faster with the champions of `more` than without them; None
        where the limit has no time for that.

        Those that won, and those of `base`, are in both forms.  Raises WrongResult.
        """
        ...


CompareWhole = Callable[[Mapping[str, Final]], Whole | None]
"""Compares the whole program with the champions that won, and with some others."""
