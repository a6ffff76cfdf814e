"""The words of a call site that runs several kernels, one behind the other.

XLA sees one call in the place of several: its operands are what these read from outside, its
results what is read of theirs, and a last one is the memory that they share: what one writes and
another reads, and their scratch.  `sequence.ll` reads the words:

    [steps, the most places of a step, then for each step:
     length of its key, bytes of its scratch, where that begins in the shared memory,
     1 where its last arguments say which part of packed ones it reads, arguments, results,
     a place for each argument and then for each result]

They are written as decimal numbers with spaces in between, as the text of an attribute, which all
forms of a program keep as it is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from hlotune.schedules.errors import ProgramError

MOST_OPERANDS = 1 << 16


class Kind(IntEnum):
    """What a place counts; a place's word is four times what it says, and this."""

    OPERAND, RESULT, SHARED, PART = range(4)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an argument or a result of a step lies."""

    kind: Kind
    at: int
    """Its number among operands or results; bytes into the shared memory; for a part, the number of
    the operand in which it lies."""
    offset: int = 0
    """Where a part begins in its operand, in bytes."""

    @property
    def word(self) -> int:
        if self.kind is not Kind.PART:
            return 4 * self.at + self.kind
        if self.at >= MOST_OPERANDS:
            raise ProgramError(
                f"expected at most {MOST_OPERANDS} operands of a call, got number {self.at}; leave "
                "a part of the program to the default compiler"
            )
        return 4 * (self.offset * MOST_OPERANDS + self.at) + self.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A call of one kernel."""

    key: str
    arguments: tuple[Place, ...]
    results: tuple[Place, ...]
    """Without the scratch."""
    scratch_bytes: int = 0
    scratch_at: int = 0
    has_stacks: bool = False


def keys_of(steps: Sequence[Step]) -> str:
    """The keys, one behind the other; the words say how long each is."""
    return "".join(s.key for s in steps)


def words_of(steps: Sequence[Step]) -> str:
    most = max(len(s.arguments) + len(s.results) for s in steps)
    words = (len(steps), most, *(word for s in steps for word in _words(s)))
    return " ".join(map(str, words))


def _words(step: Step) -> Iterator[int]:
    yield from (len(step.key.encode()), step.scratch_bytes, step.scratch_at, int(step.has_stacks))
    yield from (len(step.arguments), len(step.results))
    yield from (place.word for place in (*step.arguments, *step.results))
