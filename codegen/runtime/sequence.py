"""The words of a call site that runs several kernels, one behind the other.

XLA sees one call in the place of several: its operands are what these read from outside, its
results what is read of theirs, and a last one is the memory that they share: what one writes and
another reads, and their scratch.  `sequence.ll` reads the words, and a file's are checked when it
is loaded.

    [steps, the most places of a step, then for each step:
     length of its key, bytes of its scratch, where that begins in the shared memory,
     1 where its last arguments say which part of packed ones it reads, arguments, results,
     a place for each argument and then for each result]

They are written as decimal numbers with spaces in between, as the text of an attribute, which all
forms of a program keep as it is.  A place is four times a number: of an operand; with one more, of
a result; with two more, of bytes into the shared memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from hlotune.hlo.graph import TensorType
from hlotune.hlo.mlir.custom_calls import Call
from hlotune.schedules.errors import ProgramError


class Kind(IntEnum):
    """What a place counts."""

    OPERAND, RESULT, SHARED = range(3)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an argument or a result of a step lies."""

    kind: Kind
    at: int
    """Its number among operands or results, or bytes into the shared memory."""


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
    yield from (4 * p.at + p.kind for p in (*step.arguments, *step.results))


def steps_of(keys: str, words: str) -> tuple[Step, ...]:
    """What was written as these keys and words.

    Raises:
        ProgramError: they do not belong together, or end too early.
    """
    names, found = keys.encode(), list[Step]()
    try:
        count, _, *rest = (int(word) for word in words.split(" "))
        for _ in range(count):
            length, scratch_bytes, scratch_at, has_stacks, arguments, results = _taken(rest, 6)
            places = [Place(Kind(w % 4), w // 4) for w in _taken(rest, arguments + results)]
            if min((length, arguments, results, scratch_bytes, scratch_at)) < 0:
                raise ValueError
            step = Step(
                key=names[:length].decode(), arguments=tuple(places[:arguments]),
                results=tuple(places[arguments:]), scratch_bytes=scratch_bytes,
                scratch_at=scratch_at, has_stacks=bool(has_stacks),
            )  # fmt: skip
            names = names[length:]
            found.append(step)
        if names or keys_of(found) != keys or words_of(found) != words:
            raise ValueError
    except (ValueError, IndexError) as error:
        raise ProgramError(
            f"expected words that tell {len(keys)} letters of keys apart and end behind the last "
            f"step, got {words!r:.60}; make the file again"
        ) from error
    return tuple(found)


def _taken(words: list[int], count: int) -> list[int]:
    """The first words, which are gone from then on.  Raises IndexError where there are fewer."""
    if not 0 <= count <= len(words):
        raise IndexError
    taken = words[:count]
    del words[:count]
    return taken


def members(call: Call) -> tuple[Call, ...]:
    """The calls of one kernel each that a call site makes, with the types that they are given.

    What lies in shared memory has the type of a single byte, as the words do not say how much it
    is; a step's scratch is its last result, as that of a single call.

    Raises:
        ProgramError: a step reads or writes what the site does not have.
    """
    if "words" not in call.config:
        return (call,)
    steps = steps_of(str(call.config.get("keys", "")), str(call.config["words"]))
    return tuple(_member(call, step) for step in steps)


def _member(call: Call, step: Step) -> Call:
    shared = call.config.get("scratch_bytes", 0)
    given = call.results[-1:] if shared else ()
    shared_bytes = given[0].shape[0] if given and given[0] == _bytes(int(str(shared))) else 0
    own = call.results[: len(call.results) - len(given)]

    def kind(place: Place) -> TensorType:
        if place.kind is Kind.SHARED:
            return _in_shared(step, place.at, 1, shared_bytes)
        known = call.arguments if place.kind is Kind.OPERAND else own
        if place.at >= len(known):
            raise ProgramError(
                f"expected {place.kind.name.lower()} {place.at} of kernel {step.key} among "
                f"{len(known)}, got none; make the file again"
            )
        return known[place.at]

    scratch = []
    if step.scratch_bytes:
        _in_shared(step, step.scratch_at, step.scratch_bytes, shared_bytes)
        scratch = [_bytes(step.scratch_bytes)]
    return Call(
        {"key": step.key, "scratch_bytes": step.scratch_bytes, "stacks": int(step.has_stacks)},
        tuple(map(kind, step.arguments)),
        (*map(kind, step.results), *scratch),
    )


def _in_shared(step: Step, at: int, size: int, shared_bytes: int) -> TensorType:
    """The type of a byte; raises ProgramError where so many do not lie in the shared memory."""
    if at + size > shared_bytes:
        raise ProgramError(
            f"expected bytes {at} to {at + size} of kernel {step.key} in the shared memory, got "
            f"{shared_bytes} bytes of it; make the file again"
        )
    return TensorType((), "ui8")


def _bytes(size: int) -> TensorType:
    return TensorType((size,), "ui8")
