"""The forms of its program that a run tries: with champions more, and without some that won."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hlotune.hlo.sites.sites import Site
from hlotune.schedules.errors import WrongResult
from hlotune.schedules.steps.schedule import DEFAULT
from hlotune.search.finals.forms import (
    CONFIDENCE_OF_FIRST,
    FEW,
    MOST_TRIED,
    Compared,
    CompareForms,
    candidates,
    close,
    confidence_of,
    is_much,
    is_promising,
    likeliest,
    taken,
)
from hlotune.search.progress import FormTried, Progress
from hlotune.search.result import KernelResult, TuneResult
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.decisions import TOGETHER, own_final
from hlotune.tuning_logs.finals import Final, Whole
from hlotune.tuning_logs.revoke import bar_wrong

WRONG_TOGETHER = "tried with the other kernels, its champion makes the program wrong"
"""Why a champion that is not proven faster alone stays out of a program."""


@dataclass(kw_only=True)
class Trying:
    """Tries forms of a program, and notes what became of the champions, also where it is cut."""

    database: Database
    run: str
    result: TuneResult
    """The result of kernels that share no operations (`forms.apart`)."""
    compare: CompareForms
    tell: Progress
    stay: frozenset[str] = frozenset()
    """Keys of kernels that are not left out."""
    is_unrolled: bool = False
    """Whether kernels were cut from loops that the default has."""
    is_long: Callable[[], bool] = lambda: False
    """Whether calls of the program take so long that one form is tried at most."""
    places: Sequence[Site] = ()
    """The sites of the program, which say what kind its kernels are of."""
    added: dict[str, Final] = field(default_factory=dict, init=False)
    """The champions with which the program is proven faster, and which it has from now on."""
    left_out: dict[str, str] = field(default_factory=dict, init=False)
    """Keys of kernels whose champions make the program wrong, with the reason."""
    _failed: tuple[str, ...] = field(default=(), init=False)
    """Keys of the champions of the likeliest form, if the program is not faster with all these."""
    _is_first: bool = field(default=True, init=False)
    """Whether no form was compared yet."""

    def is_worth_it(self) -> bool:
        """Whether forms of a program are compared in which no champion won alone."""
        tried = candidates(self.result, None, is_unrolled=self.is_unrolled)
        are_few = self.is_unrolled or len(self.result.kernels) <= FEW
        return bool(tried) and (are_few or is_promising(self.result))

    def try_likeliest(self) -> None:
        """Tries the form that is most likely to be faster, before the default is compared; where
        calls take long, changes between threads cost nothing to speak of, and there is none.
        """
        tried = candidates(self.result, None, is_unrolled=self.is_unrolled)
        finals = self._finals(likeliest(tried, self.result, self.places))
        if not finals or self.is_long():
            return
        self._add(finals, CONFIDENCE_OF_FIRST, 1)
        if not self._is_first and not self.added:
            self._failed = tuple(finals)

    def to_drop(self, whole: Whole | None) -> tuple[str, ...]:
        """Adds the undecided champions with which the program is proven faster; returns the keys of
        kernels that won alone by little, without which it then is.
        """
        undecided = self._undecided(whole)
        little = [k for k in close(self.result) if k.key not in self.stay]
        if not undecided and not little:
            return ()
        most = 1 if self.is_long() else MOST_TRIED
        numbers = len(undecided), len(little)
        confidence = confidence_of(*numbers, most=most, is_first=self._is_first)
        self._add(undecided, confidence, most)
        return self._droppable(little, confidence, most)

    def _undecided(self, whole: Whole | None) -> dict[str, Final]:
        """This run's finals of kernels whose champions are to be tried in the program; those come
        first that may take most of it.
        """
        time_s = whole.paired.tuned_time_s if whole and whole.paired else None
        is_told = {*self.added, *self.left_out}
        found = candidates(self.result, time_s, is_unrolled=self.is_unrolled)
        tried = [k for k in found if k.key not in is_told]
        if _gains(whole) and not (time_s and is_much(tried, self.result, time_s)):
            return {}
        tried.sort(key=lambda k: -k.weight * k.default_s)
        return self._finals(tried)

    def _finals(self, kernels: Sequence[KernelResult]) -> dict[str, Final]:
        found = {k.key: own_final(self.database, self.run, k.key) for k in kernels}
        return {key: final for key, final in found.items() if final is not None}

    def _add(self, undecided: Mapping[str, Final], confidence: float, most: int) -> None:
        """Records the undecided champions with which the program is proven faster: they are used in
        this program.

        Where it is wrong with some, all that were tried with these stay out, and those to blame are
        barred; all of them are said to be wrong where none is to blame alone.
        """

        def with_more(base: Sequence[str], more: Sequence[str]) -> Compared | None:
            tried = {key: undecided[key] for key in more}
            try:
                with_base = {**self.added, **{key: undecided[key] for key in base}}
                found = self.compare(with_base, tried, confidence)
            except WrongResult as error:
                barred = bar_wrong(self.database, error, tried, run=self.run)
                reason = f"{WRONG_TOGETHER}: {error}"
                self.left_out.update(dict.fromkeys(barred or tried, reason))
                return None
            self._tell(found, more)
            return found

        failed = [key for key in self._failed if key in undecided]
        for key in taken(list(undecided), with_more, most, failed):
            together = replace(undecided[key], outcome=TOGETHER)
            self.database.record_final(self.run, self.database.kernel(key), together)
            self.added[key] = undecided[key]

    def _droppable(
        self, little: Sequence[KernelResult], confidence: float, most: int
    ) -> tuple[str, ...]:
        """Keys of kernels that won alone by little, without which the program is proven faster."""
        finals = self._finals(little)
        default = {key: replace(final, schedule=DEFAULT) for key, final in finals.items()}

        def without(base: Sequence[str], more: Sequence[str]) -> Compared | None:
            left = {key: default[key] for key in base}
            out = {key: default[key] for key in more}
            found = self.compare({**self.added, **left}, out, confidence)
            self._tell(found, more, without=True)
            return found

        return tuple(key for key in taken(list(default), without, most) if key in default)

    def _tell(self, found: Compared | None, keys: Sequence[str], *, without: bool = False) -> None:
        """Tells of a form that was compared; one that is the program as it is tells nothing."""
        if found is None or found.is_same:
            return
        self._is_first = False
        labels = {k.key: k.label for k in self.result.kernels}
        names = tuple(labels[key] for key in keys)
        self.tell(FormTried(labels=names, is_faster=found.is_faster, without=without))


def _gains(whole: Whole | None) -> bool:
    """Whether a program is proven faster, and gains at least half of what its kernels promise."""
    return bool(whole and whole.paired and whole.paired.low > 1 and not whole.falls_short)
