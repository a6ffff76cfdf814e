"""The last word about a kernel: who is tested how, and what happens to those that fail."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hlotune.codegen.built import Built
from hlotune.hlo.kernel import Kernel
from hlotune.measure.timing.comparison import Comparison, ratio, shared
from hlotune.measure.trial import Candidate, Failure, FailureKind, Measurement, Trial
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import Split
from hlotune.search.finals.finals import Contender, Object, entrants, meetings, winner
from hlotune.search.tuner import KernelTuner
from tests.support.toy import ToySpace
from tests.support.tuners import Log, tuner

KERNEL = Kernel("func.func @kernel() { final }")
BUILT = Built(b"object", 0, (), 1, 1)
PAIRS = 31


def candidate(number: int) -> Candidate:
    return Candidate(KERNEL, Schedule("direct", (Split("out", "i0", (number,)),)))


def measured(*samples_s: float) -> Measurement:
    return Measurement(samples_s=samples_s)


@dataclass
class Referee:
    """Fails the numbers in `failing`, and whatever is timed together with one in `spoiling`."""

    failing: dict[int, FailureKind] = field(default_factory=dict)
    spoiling: frozenset[int] = frozenset()
    behind: frozenset[int] = frozenset()
    """Places of those that do not meet the default."""
    staying: int | None = None
    met: list[list[int]] = field(default_factory=list)

    def compare(
        self,
        kernel: Kernel,
        objects: Sequence[Object],
        *,
        pairs: int,
        staying: int | None = None,
    ) -> Comparison:
        numbers, self.staying = [number(c) for c, _ in objects], staying
        self.met.append(numbers)
        spoilt = bool(self.spoiling & set(numbers))
        outcomes = tuple(self._outcome(n, spoilt, pairs) for n in numbers)
        return Comparison(measured(*[2.0] * pairs), outcomes, self.behind)

    def _outcome(self, number: int, spoilt: bool, pairs: int) -> Measurement | Failure:
        if kind := self.failing.get(number):
            return Failure(kind, "failed")
        return Failure("crash", "spoilt") if spoilt else measured(*[1.0] * pairs)


def number(candidate: Candidate) -> int:
    step = candidate.schedule.steps[0]
    assert isinstance(step, Split)
    return step.factors[0]


def outcomes(referee: Referee, *numbers: int) -> dict[int, str]:
    """What `meetings` says of each: `timed`, or the kind of failure."""
    objects = [(candidate(n), BUILT) for n in numbers]
    found: dict[int, str] = {}
    for met in meetings(KERNEL, objects, referee, PAIRS):
        failed = None if isinstance(met, Contender) else met.outcome
        found[number(met.candidate)] = failed.kind if isinstance(failed, Failure) else "timed"
    return found


def test_a_champion_that_fails_does_not_stop_the_others() -> None:
    referee = Referee({1: "wrong_result"})
    assert outcomes(referee, 1, 2, 3) == {1: "wrong_result", 2: "timed", 3: "timed"}
    assert referee.met == [[1, 2, 3]]


def test_after_a_crash_that_took_all_down_each_is_timed_alone() -> None:
    referee = Referee({4: "wrong_result"}, spoiling=frozenset({2}))
    assert outcomes(referee, 1, 2, 3, 4) == {1: "timed", 2: "crash", 3: "timed", 4: "wrong_result"}
    assert referee.met == [[1, 2, 3, 4], [1], [2], [3]]


def test_one_that_crashes_is_not_timed_again() -> None:
    referee = Referee({1: "crash"})
    assert outcomes(referee, 1) == {1: "crash"}
    assert referee.met == [[1]]


def test_what_cannot_be_built_any_more_meets_nobody() -> None:
    referee = Referee()
    failure = Failure("build", "refused")
    (met,) = meetings(KERNEL, [(candidate(1), failure)], referee, PAIRS)
    assert not isinstance(met, Contender)
    assert met.outcome == failure
    assert referee.met == []


def test_who_did_not_meet_the_default_is_no_contender_and_has_not_failed() -> None:
    referee = Referee(behind=frozenset({0, 2}))
    assert outcomes(referee, 1, 2, 3) == {2: "timed"}
    assert referee.staying == 0
    assert outcomes(Referee({1: "wrong_result"}, behind=frozenset({2})), 1, 2, 3) == {
        1: "wrong_result",
        2: "timed",
    }


def test_the_standing_schedule_meets_the_default_whoever_is_faster() -> None:
    referee, objects = Referee(), [(candidate(n), BUILT) for n in (1, 2, 3)]
    for standing, staying in ((candidate(1).schedule, 1), (candidate(4).schedule, 0)):
        list(meetings(KERNEL, objects, referee, PAIRS, standing))
        assert referee.staying == staying


def contenders(default: Measurement, *samples: Measurement) -> list[Contender]:
    return [Contender(candidate(n), BUILT, default, m) for n, m in enumerate(samples)]


def ahead(count: int) -> Measurement:
    """Faster than one second in so many of the pairs, and slower in the others."""
    return measured(*[0.5] * count, *[2.0] * (PAIRS - count))


def test_several_share_the_error_that_one_alone_may_have() -> None:
    default = measured(*[1.0] * PAIRS)
    barely = ahead(22)
    assert ratio(default.samples_s, barely.samples_s).is_faster
    assert winner(contenders(default, barely)) is not None
    assert winner(contenders(default, barely, barely, barely)) is None


def test_the_fastest_of_those_proven_wins_and_of_near_equals_the_simpler_one() -> None:
    default = measured(*[1.0] * PAIRS)
    simple, hardly, faster = (measured(*[s] * PAIRS) for s in (0.5, 0.495, 0.45))
    first = winner(contenders(default, simple, hardly))
    assert first is not None
    assert number(first.candidate) == 0
    best = winner(contenders(default, simple, hardly, faster))
    assert best is not None
    assert number(best.candidate) == 2


def test_one_that_is_faster_in_most_rounds_wins_though_it_is_not_proven_to_be() -> None:
    """A busy machine hides which is faster: that it is simpler is no reason to prefer the other."""
    default, simple = measured(*[1.0] * PAIRS), measured(*[0.5] * PAIRS)
    often = measured(*[0.4] * 18, *[0.6] * (PAIRS - 18))
    assert not ratio(simple.samples_s, often.samples_s, shared(2)).is_faster
    best = winner(contenders(default, simple, often))
    assert best is not None
    assert number(best.candidate) == 1


def test_the_standing_schedule_gives_way_only_to_what_is_proven_faster() -> None:
    default, stands = measured(*[1.0] * PAIRS), measured(*[0.5] * PAIRS)
    often, always = measured(*[0.4] * 18, *[0.6] * (PAIRS - 18)), measured(*[0.4] * PAIRS)
    standing = candidate(0).schedule
    kept = winner(contenders(default, stands, often), standing=standing)
    replaced = winner(contenders(default, stands, often, always), standing=standing)
    assert kept is not None and number(kept.candidate) == 0
    assert replaced is not None and number(replaced.candidate) == 2


def test_of_those_timed_alone_the_larger_lower_bound_wins() -> None:
    a = Contender(candidate(1), BUILT, measured(*[1.0] * PAIRS), measured(*[0.5] * PAIRS))
    b = Contender(candidate(2), BUILT, measured(*[4.0] * PAIRS), measured(*[1.0] * PAIRS))
    assert winner([a, b]) is b
    assert winner([b, a]) is b


def test_the_slow_mode_of_a_default_makes_no_winner() -> None:
    """It runs in 1.3 seconds or in 2.5; a candidate of 1.5 beats the slow mode alone."""
    default = measured(*[1.3] * 8, *[2.5] * (PAIRS - 8))
    assert winner(contenders(default, measured(*[1.5] * PAIRS))) is None
    faster = contenders(default, measured(*[1.0] * PAIRS))
    assert winner(faster) is faster[0]
    assert faster[0].ratio(0.95).median == 1.3


def known(times_s: Sequence[float], first_s: float | None = None) -> KernelTuner:
    """A tuner with such trials of other schedules, and of its first candidate."""
    toy = ToySpace((10,) * 6, seed=11)
    tuning = tuner(Log(), toy)
    trials = [Trial(candidate(20 + n), measured(s)) for n, s in enumerate(times_s)]
    if first_s is not None:
        first = Candidate(KERNEL, toy.schedule(toy.heuristic()))
        trials.append(Trial(first, measured(first_s)))
    tuning.know(trials)
    return tuning


def test_champions_are_the_first_of_a_heat_and_the_simplest_is_tested_first() -> None:
    tuning = known([1.0, 1.1, 1.2, 1.3])
    order = [candidate(n) for n in (23, 22, 20, 21)]
    assert [number(c) for c in entrants(tuning, order, None)] == [20, 22, 23]


def test_without_a_heat_champions_are_the_fastest_by_their_trials() -> None:
    assert [number(c) for c in entrants(known([1.3, 1.0, 1.1, 1.2]), [], None)] == [21, 22, 23]


def test_the_first_candidate_is_a_champion_though_its_trial_was_of_a_slower_minute() -> None:
    tuning = known([1.0, 1.1, 1.2, 1.3], first_s=1.7)
    first = tuning.first_candidate()
    assert first is not None
    order, stands = [candidate(n) for n in (20, 21, 22)], candidate(23).schedule
    own = first.candidate.schedule
    alone, behind_it = ([c.schedule for c in entrants(tuning, order, s)] for s in (None, stands))
    assert {*alone} == {candidate(20).schedule, candidate(21).schedule, own}
    assert behind_it[0] == stands and {*behind_it[1:]} == {candidate(20).schedule, own}
    assert entrants(tuning, order, own)[0].schedule == own
    hopeless = known([1.0, 1.1, 1.2, 1.3], first_s=2.1)
    assert [number(c) for c in entrants(hopeless, order, None)] == [20, 21, 22]
    assert [number(c) for c in entrants(tuning, order, None, 1)] == [20], "one has room alone"
    assert [number(c) for c in entrants(tuning, order, stands, 1)] == [23, 20], "the best meets it"


def test_what_stood_takes_no_part_once_it_was_found_to_be_off_by_too_much() -> None:
    tuning = tuner(Log(), ToySpace((10,) * 6, seed=11), most_error=1e-5)
    off = Measurement(samples_s=(1.0,), numerics="strict", relative_error=1e-4)
    tuning.know([Trial(candidate(20), off), Trial(candidate(21), measured(1.1))])
    assert [number(c) for c in entrants(tuning, [], candidate(20).schedule)] == [21]
    assert tuning.is_denied(candidate(20).schedule) and not tuning.is_denied(candidate(21).schedule)


def test_what_stands_is_tested_first_and_takes_the_place_of_the_last() -> None:
    tuning = known([1.0, 1.1, 1.2, 1.3])
    order = [candidate(n) for n in (20, 21, 22)]
    stands = candidate(23).schedule
    assert [number(c) for c in entrants(tuning, order, stands)] == [23, 20, 21]
    assert [number(c) for c in entrants(tuning, order, candidate(21).schedule)] == [21, 20, 22]


def test_once_all_of_a_heat_have_failed_the_next_by_their_trials_are_champions() -> None:
    tuning = known([1.0, 1.1, 1.2, 1.3])
    order = [candidate(n) for n in (20, 21)]
    tuning.reject([Trial(c, Failure("wrong_result", "a lost tap")) for c in order])
    assert [number(c) for c in entrants(tuning, order, None)] == [22, 23]


def test_over_a_wrong_default_the_fastest_that_is_right_wins_however_slow_it_is() -> None:
    default = measured(*[1.0] * PAIRS)
    slow, slower = measured(*[2.0] * PAIRS), measured(*[3.0] * PAIRS)
    assert winner(contenders(default, slower, slow)) is None
    found = winner(contenders(default, slower, slow), over_wrong=True)
    assert found is not None and found.measured == slow
