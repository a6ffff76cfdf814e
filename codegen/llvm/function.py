"""LLVM text of one function, with what is computed hoisted to the loop that it varies in.

LLVM's IR passes are not run on kernels (they undo good register tiles), so addresses and conditions
must be placed well here: `hoisted` puts an instruction at the head of the innermost loop whose
variable it reads, once.  Integer values are `Affine` expressions over SSA names, whose ranges are
known.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from hlotune.schedules.ir.expr import Affine, Terms
from hlotune.schedules.targets.machine_rates import COMMON, MachineRates

Lines = list["str | Lines"]
_NAME = re.compile(r"%[\w.]+")


@dataclass(slots=True)
class Variable:
    """An integer SSA value."""

    depth: int
    """How many loops stand around its definition."""
    range: tuple[int, int]
    """Least and largest value."""
    multiple: int = 1
    """A number that divides it."""


@dataclass(frozen=True, slots=True)
class Head:
    """What stands at the head of an open loop, for all of its body."""

    lines: Lines
    values: dict[str, str] = field(default_factory=dict)
    """By instruction."""
    integers: dict[Affine, str] = field(default_factory=dict)
    """Operands that the body asked for before, though they may stand further out."""
    pointers: dict[tuple[str, Terms, int], tuple[str, int]] = field(default_factory=dict)
    """The same, by base, terms of the offset, and depth of the base."""


@dataclass(slots=True)
class Register:
    value: str
    type: str


@dataclass(slots=True)
class Module:
    """What functions of one module share: declarations and globals, and facts of the target."""

    declarations: dict[str, str] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    features: tuple[str, ...] = ()
    """LLVM features of the target that its functions may use beyond what LLVM selects itself."""
    rates: MachineRates = COMMON

    def declare(self, name: str, text: str) -> None:
        self.declarations[name] = text

    def __str__(self) -> str:
        return "\n\n".join(["\n".join(self.declarations.values()), *self.functions]) + "\n"


class Function:
    """A function being written: the current block, open loops, registers that loops must carry."""

    def __init__(self, module: Module, header: str) -> None:
        self.module = module
        self.header = header
        self.count = 0
        self.block = "entry"
        self.variables: dict[str, Variable] = {}
        self.registers: dict[object, Register] = {}
        self.local: dict[str, str] = {}
        self.kept: dict[object, object] = {}
        """Values that may be used again in this block only."""
        self.floor = 0
        """The least depth that loads may be hoisted to: what they read is in memory by then."""
        self.zeros_alike = False
        """Whether the larger of two zeros may be either, in what is written now."""
        self.loses_nan = False
        """Whether extremes may pass over what is no number, in what is written now."""
        self.at_most_one = False
        """Whether exponentials are of numbers that are zero or less, in what is written now."""
        self._body: Lines = []
        self._out = self._body
        self._heads: list[Head] = []
        self._depths: dict[str, int] = {}
        """By name, the depth that what was hoisted stands at."""
        self._open_head()

    # text -----------------------------------------------------------------------------------------

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def names(self, count: int) -> list[str]:
        """So many new names, one after the other."""
        first = self.count + 1
        self.count += count
        return [f"%v{n}" for n in range(first, self.count + 1)]

    def emit(self, line: str) -> None:
        self._out.append(f"  {line}")

    def write(self, lines: str) -> None:
        """Lines that are complete, as `emit` makes them."""
        self._out.append(lines)

    def op(self, text: str) -> str:
        result = self.name()
        self._out.append(f"  {result} = {text}")
        return result

    def once(self, text: str) -> str:
        """The value of an instruction without side effects, written once in a block."""
        name = self.local.get(text)
        if name is None:
            name = self.local[text] = self.op(text)
        return name

    def once_for_its_operands(self, text: str) -> str:
        """As `once`; where its operands were hoisted, ahead of the same loops as the innermost of
        them, as LLVM leaves comparisons of scalars and what is made of them in the loop."""
        depths = [self._depths.get(name) for name in _NAME.findall(text)]
        known = [d for d in depths if d is not None]
        if known and len(known) == len(depths) and max(known) < self.depth:
            return self.hoisted(max(known), text)
        return self.once(text)

    def forget(self) -> None:
        """Ends the reuse of values in this block: what was loaded need not stay in registers."""
        self.local, self.kept = {}, {}

    def fence(self) -> None:
        """Keeps loads on their side: what one step loads is not held through others.

        LLVM's scheduler would move the loads of all unrolled steps to the front, and spill the
        register tile to make room for them.
        """
        self.forget()
        self.barrier()

    def barrier(self) -> None:
        """The same, while values that were loaded before may be used again."""
        self.emit('call void asm sideeffect "", "~{memory}"()')

    def hoisted(self, depth: int, text: str) -> str:
        """The value of an instruction whose operands are known at loop depth `depth`."""
        head = self._heads[depth]
        name = head.values.get(text)
        if name is None:
            name = head.values[text] = self.name()
            self._depths[name] = depth
            head.lines.append(f"  {name} = {text}")
        return name

    def intrinsic(
        self, name: str, result: str, *arguments: tuple[str, str], flags: str = ""
    ) -> str:
        types = ", ".join(t for t, _ in arguments)
        self.module.declare(name, f"declare {result} @{name}({types})")
        call = f"{result} @{name}({', '.join(f'{t} {v}' for t, v in arguments)})"
        call = f"call {flags} {call}" if flags else f"call {call}"
        if result == "void":
            self.emit(call)
            return ""
        return self.op(call)

    def larger(self, a: str, b: str) -> str:
        return self.intrinsic("llvm.smax.i64", "i64", ("i64", a), ("i64", b))

    def smaller(self, a: str, b: str) -> str:
        return self.intrinsic("llvm.smin.i64", "i64", ("i64", a), ("i64", b))

    def finish(self, result: str = "ret void") -> None:
        self.emit(result)
        body = "\n".join(_flat(self._body))
        self.module.functions.append(f"{self.header} {{\nentry:\n{body}\n}}")

    # integers -------------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        return len(self._heads) - 1

    def variable(
        self, name: str, range_: tuple[int, int], *, multiple: int = 1, depth: int | None = None
    ) -> Affine:
        at = self.depth if depth is None else depth
        self.variables[name] = Variable(at, range_, multiple)
        return Affine.axis(name)

    def bounds(self, value: Affine) -> tuple[int, int]:
        low = high = value.constant
        for name, c in value.terms:
            least, most = self.variables[name].range
            if c < 0:
                least, most = most, least
            low, high = low + c * least, high + c * most
        return low, high

    def depth_of(self, value: Affine) -> int:
        depth = 0
        for name, _ in value.terms:
            depth = max(depth, self.variables[name].depth)
        return depth

    def multiple_of(self, value: Affine, factor: int) -> bool:
        """Whether the variable part of a value is known to be a multiple of `factor`."""
        return all(c * self.variables[n].multiple % factor == 0 for n, c in value.terms)

    def integer(self, value: Affine) -> str:
        """An i64 operand: a literal, or the SSA name of the sum."""
        known = self._heads[-1].integers
        if value not in known:
            known[value] = self._sum(value)
        return known[value]

    def _sum(self, value: Affine) -> str:
        total, depth = "", 0
        for name, c in self._by_depth(value):
            depth, term = max(depth, self.variables[name].depth), self._term(name, c)
            total = self.hoisted(depth, f"add nsw i64 {total}, {term}") if total else term
        if not total:
            return str(value.constant)
        if not value.constant:
            return total
        return self.hoisted(depth, f"add nsw i64 {total}, {value.constant}")

    def pointer(self, base: str, offset: Affine, depth: int = 0) -> tuple[str, int]:
        """A base known at `depth` plus a byte offset, its constant left out: (pointer, depth)."""
        known, key = self._heads[-1].pointers, (base, offset.terms, depth)
        if key not in known:
            known[key] = self._moved(base, offset, depth)
        return known[key]

    def _moved(self, pointer: str, offset: Affine, depth: int) -> tuple[str, int]:
        for name, c in self._by_depth(offset):
            depth, step = max(depth, self.variables[name].depth), self._term(name, c)
            pointer = self.hoisted(depth, f"getelementptr inbounds i8, ptr {pointer}, i64 {step}")
        return pointer, depth

    def _term(self, name: str, coefficient: int) -> str:
        """A multiple of a variable, at its depth."""
        if coefficient == 1:
            return name
        return self.hoisted(self.variables[name].depth, f"mul nsw i64 {name}, {coefficient}")

    def _by_depth(self, value: Affine) -> list[tuple[str, int]]:
        return sorted(value.terms, key=lambda t: (self.variables[t[0]].depth, t[0]))

    # control --------------------------------------------------------------------------------------

    def loop(
        self,
        low: str,
        high: str,
        step: int,
        range_: tuple[int, int],
        body: Callable[[Affine], None],
        *,
        nonempty: bool,
        multiple: int = 1,
    ) -> None:
        """`for v in low..high step`; registers alive before it are carried around it as phis.

        Those that the body makes anew with other lanes are of an earlier tile, and end here.
        """
        before, head, exit_ = self.block, self._label("loop"), self._label("done")
        if nonempty:
            self.emit(f"br label %{head}")
        else:
            enter = self.op(f"icmp slt i64 {low}, {high}")
            self.emit(f"br i1 {enter}, label %{head}, label %{exit_}")
        start = dict(self.registers)
        self._start(head)
        phis: Lines = []
        self._out.append(phis)
        variable = self.name()
        carried = {key: Register(self.name(), r.type) for key, r in start.items()}
        self.registers = dict(carried)
        self._open_head()
        body(self.variable(variable, range_, multiple=multiple))
        following = self.op(f"add nsw i64 {variable}, {step}")
        again = self.op(f"icmp slt i64 {following}, {high}")
        latch, end = self.block, {key: self.registers[key] for key in start}
        self.emit(f"br i1 {again}, label %{head}, label %{exit_}")
        self._heads.pop()
        phis.append(f"  {variable} = phi i64 [ {low}, %{before} ], [ {following}, %{latch} ]")
        kept = {key: r for key, r in start.items() if end[key].type == r.type}
        for key, r in kept.items():
            value = f"[ {r.value}, %{before} ], [ {end[key].value}, %{latch} ]"
            phis.append(f"  {carried[key].value} = phi {r.type} {value}")
        self._start(exit_)
        if nonempty:
            self.registers = {key: end[key] for key in kept}
        else:
            self.registers = self._merge(kept, before, end, latch)

    def when(self, condition: str, body: Callable[[], None]) -> None:
        """Runs the body where the condition holds.

        Registers made inside end with it, those from outside go on.
        """
        inside, exit_ = self._label("when"), self._label("end")
        outer, before = dict(self.registers), self.block
        self.emit(f"br i1 {condition}, label %{inside}, label %{exit_}")
        self._start(inside)
        with self.settled():
            body()
        changed, last = {key: self.registers[key] for key in outer}, self.block
        self.emit(f"br label %{exit_}")
        self._start(exit_)
        self.registers = self._merge(outer, before, changed, last)

    def _merge(
        self, start: dict[object, Register], before: str, end: dict[object, Register], latch: str
    ) -> dict[object, Register]:
        merged = {}
        for key, r in start.items():
            if end[key].type != r.type:
                continue
            incoming = f"[ {r.value}, %{before} ], [ {end[key].value}, %{latch} ]"
            merged[key] = Register(self.op(f"phi {r.type} {incoming}"), r.type)
        return merged

    def _label(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def _start(self, label: str) -> None:
        self._out.append(f"{label}:")
        self.block = label
        self.forget()

    @contextmanager
    def head_here(self) -> Iterator[None]:
        """Meanwhile what would be hoisted into the innermost loop's head is written from here on.

        For values that are made here, as a place that was just loaded.
        """
        self._open_head()
        yield
        self._heads.pop()

    @contextmanager
    def settled(self) -> Iterator[None]:
        """Meanwhile loads are hoisted no further out than to here.

        What stands before may write what they read, and behind a condition addresses may be valid
        that are not valid where it does not hold.
        """
        before = self.floor
        with self.head_here():
            self.floor = self.depth
            yield
        self.floor = before

    def _open_head(self) -> None:
        lines: Lines = []
        self._out.append(lines)
        self._heads.append(Head(lines))


def _flat(lines: Lines) -> Iterator[str]:
    for line in lines:
        if isinstance(line, str):
            yield line
        else:
            yield from _flat(line)
