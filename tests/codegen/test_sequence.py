"""The words of a call site that runs several kernels."""

import pytest

from hlotune.codegen.runtime.sequence import Kind, Place, Step, keys_of, words_of

pytestmark = pytest.mark.smoke

FIRST = Step(
    key="first", arguments=(Place(Kind.OPERAND, 1), Place(Kind.PART, 2, 128)),
    results=(Place(Kind.SHARED, 64),), scratch_bytes=48, scratch_at=192,
)  # fmt: skip
SECOND = Step(
    key="größer", arguments=(Place(Kind.SHARED, 64),), results=(Place(Kind.RESULT, 0),),
    has_stacks=True,
)  # fmt: skip


def test_the_words_say_each_step_behind_the_other() -> None:
    assert keys_of([FIRST, SECOND]) == "firstgrößer"
    assert words_of([FIRST, SECOND]) == (
        "2 3 "
        f"5 48 192 0 2 1 4 {4 * (128 * 65536 + 2) + 3} 258 "  # the key has five letters
        "8 0 0 1 1 1 258 1"  # two letters of the key take two bytes
    )
