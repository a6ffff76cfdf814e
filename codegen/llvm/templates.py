"""What a statement writes, taken down once with blanks for names, and filled in for its copies.

Copies of a statement differ in where they read and store and in the names of values, not in what is
done with these; nor do the candidates of a kernel that have a stage in common.  So the lines of its
values are found out once, on a `Draft`, and each copy is text put together.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from hlotune.codegen.llvm.function import Function, Module
from hlotune.codegen.llvm.math.values import Value

_BLANK = re.compile("\0(\\d+)\0")


@dataclass(frozen=True, slots=True)
class Template:
    """Text with blanks."""

    text: str
    """The text, with blanks that `%` fills in."""
    pick: Callable[[list[str]], Any]
    """What goes into the blanks, of all names of a statement."""

    def filled(self, names: list[str]) -> str:
        return str(self.text % self.pick(names))


@dataclass(frozen=True, slots=True)
class Read:
    """A load that is due now; what it gives is the next name."""

    load: int


@dataclass(frozen=True, slots=True)
class Old:
    """What a result has come to so far is the next name."""

    store: int


@dataclass(frozen=True, slots=True)
class Once:
    """An instruction without side effects that is written once in a block."""

    line: Template


@dataclass(frozen=True, slots=True)
class Block:
    """Lines, with as many names for what they compute."""

    lines: Template
    names: int
    declared: tuple[tuple[str, str], ...]
    """What they call, as modules declare it."""

    def write(self, f: Function, names: list[str]) -> None:
        """Into a function; appends to the names."""
        for name, text in self.declared:
            f.module.declare(name, text)
        names += f.names(self.names)
        f.write(self.lines.filled(names))


@dataclass(frozen=True, slots=True)
class Put:
    """A result, which is stored now; `name` tells which one it has, where it is no literal."""

    store: int
    value: Value
    name: int | None

    def value_of(self, names: list[str]) -> Value:
        if self.name is None:
            return self.value
        return Value(names[self.name], self.value.dtype, self.value.lanes)


Step = Read | Old | Once | Block | Put


class Draft(Function):
    """Takes down what is written to a function, with numbered blanks in the place of names."""

    def __init__(self, features: tuple[str, ...] = ()) -> None:
        super().__init__(Module(features=features), "")
        self.steps: list[Step] = []
        self._out = []
        self._named = 0
        """Names until the lines that are being written."""

    def name(self) -> str:
        self.count += 1
        return f"\0{self.count - 1}\0"

    def once(self, text: str) -> str:
        name = self.local.get(text)
        if name is None:
            name = self.local[text] = self._step(Once(_template(text)))
        return name

    def read(self, load: int) -> str:
        return self._step(Read(load))

    def old(self, store: int) -> str:
        return self._step(Old(store))

    def put(self, store: int, value: Value) -> None:
        self._close()
        found = _BLANK.fullmatch(value.name)
        self.steps.append(Put(store, value, int(found[1]) if found else None))

    def _step(self, step: Step) -> str:
        """Ends the lines before a step that gives a name of its own."""
        self._close()
        self.steps.append(step)
        self._named += 1
        return self.name()

    def _close(self) -> None:
        """Makes a block of the lines since the last step."""
        if self._out:
            lines = _template("\n".join(map(str, self._out)))
            declared = tuple(self.module.declarations.items())
            self.steps.append(Block(lines, self.count - self._named, declared))
            self.module.declarations.clear()
        self._out, self._named = [], self.count


def _template(text: str) -> Template:
    parts = _BLANK.split(text)
    numbers = [int(n) for n in parts[1::2]]
    pick = itemgetter(*numbers) if numbers else _nothing
    return Template("%s".join(p.replace("%", "%%") for p in parts[::2]), pick)


def _nothing(_: list[str]) -> tuple[()]:
    return ()
