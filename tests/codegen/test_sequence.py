"""The words of a call site that runs several kernels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlotune.codegen.runtime.sequence import Kind, Place, Step, keys_of, members, steps_of, words_of
from hlotune.hlo.graph import TensorType
from hlotune.hlo.mlir.custom_calls import Call
from hlotune.schedules.errors import ProgramError

pytestmark = pytest.mark.smoke

F32, BYTE = TensorType((8,), "f32"), TensorType((), "ui8")
FIRST = Step(
    key="first", arguments=(Place(Kind.OPERAND, 1), Place(Kind.OPERAND, 0)),
    results=(Place(Kind.SHARED, 64),), scratch_bytes=48, scratch_at=128,
)  # fmt: skip
SECOND = Step(
    key="größer", arguments=(Place(Kind.SHARED, 64),), results=(Place(Kind.RESULT, 0),),
    has_stacks=True,
)  # fmt: skip
WORDS = "2 3 5 48 128 0 2 1 4 0 258 8 0 0 1 1 1 258 1"

PLACES = st.lists(st.builds(Place, st.sampled_from(Kind), st.integers(0, 1 << 40)), max_size=3)
STEPS = st.lists(
    st.builds(
        Step,
        key=st.text(max_size=4).filter(lambda x: x.isprintable()),
        arguments=PLACES.map(tuple),
        results=PLACES.map(tuple),
        scratch_bytes=st.integers(0, 99),
        scratch_at=st.integers(0, 99),
        has_stacks=st.booleans(),
    ),
    min_size=1,
    max_size=4,
)


def test_the_words_say_each_step_behind_the_other() -> None:
    assert (keys_of([FIRST, SECOND]), words_of([FIRST, SECOND])) == ("firstgrößer", WORDS)


@given(STEPS)
def test_steps_are_read_back_as_they_were_written(steps: list[Step]) -> None:
    assert steps_of(keys_of(steps), words_of(steps)) == tuple(steps)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("firstgrößer", WORDS[:-2]),
        ("firstgrößer", f"{WORDS} 0"),
        ("firstgrößer", ""),
        ("firstgrößer", "two 3"),
        ("firstgrößer", WORDS.replace(" ", "  ", 1)),
        ("firstgrößer", f"3{WORDS[1:]}"),
        ("firstgrößer", f"-{WORDS}"),
        ("firstgrößer", WORDS.replace("2 3 5", "2 4 5")),
        ("firstgrößer", WORDS.replace("2 3 5", "2 3 6")),
        ("firstgrößer", WORDS.replace("128 0 2 1", "128 0 99999999 1")),
        ("firstgrößer", WORDS.replace("128 0 2 1", "128 0 -1 1")),
        ("firstgrößer", WORDS.replace("1 4 0", "1 7 0")),
        ("firstgrößer and more", WORDS),
        ("first", WORDS),
    ],
)
def test_words_that_no_steps_have_are_refused(keys: str, words: str) -> None:
    with pytest.raises(ProgramError, match=r"expected words that tell .* make the file again"):
        steps_of(keys, words)


def site(
    arguments: int = 2, shared_bytes: int = 192, stated_bytes: int | None = None, results: int = 1
) -> Call:
    stated = shared_bytes if stated_bytes is None else stated_bytes
    config: dict[str, str | int] = {"keys": "firstgrößer", "words": WORDS, "scratch_bytes": stated}
    shared = TensorType((shared_bytes,), "ui8")
    return Call(config, (F32,) * arguments, (*(F32,) * results, shared))


def test_a_site_of_several_kernels_has_a_call_for_each() -> None:
    assert members(site()) == (
        Call(
            {"key": "first", "scratch_bytes": 48, "stacks": 0},
            (F32, F32), (BYTE, TensorType((48,), "ui8")),
        ),
        Call({"key": "größer", "scratch_bytes": 0, "stacks": 1}, (BYTE,), (F32,)),
    )  # fmt: skip


def test_a_site_of_one_kernel_is_its_own_call() -> None:
    one = Call({"key": "one", "scratch_bytes": 0}, (F32,), (F32,))
    assert members(one) == (one,)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (site(arguments=1), "expected operand 1 of kernel first among 1, got none"),
        (site(results=0), "expected result 0 of kernel größer among 0, got none"),
        (site(shared_bytes=64), "expected bytes 128 to 176 of kernel first .* got 64 bytes"),
        (site(shared_bytes=160), "expected bytes 128 to 176 of kernel first .* got 160 bytes"),
        (site(stated_bytes=4096), "expected bytes 128 to 176 of kernel first .* got 0 bytes"),
    ],
)
def test_a_step_that_reads_what_the_site_has_not_is_refused(wrong: Call, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        members(wrong)
