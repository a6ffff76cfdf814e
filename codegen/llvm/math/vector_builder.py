"""Short names for the floating-point instructions that functions are written in.

Sums and products carry `contract`, so that a target with a fused multiply-add takes it; `fma` asks
for it where a result would be wrong without.  Rounding to an integer goes through a number so large
that its last bit is one: its bits then hold the integer, and no target needs an instruction for it.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.math.values import literal, suffix, vector

MANTISSA = {"float": 23, "double": 52}
BIAS = {"float": 127, "double": 1023}
WIDTH = {"float": 4, "double": 8}
DTYPE = {"float": "f32", "double": "f64"}
INTEGER = {"float": "i32", "double": "i64"}
WHOLE = 64
"""Bytes of the longest vector of a register."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """Writes instructions on `lanes` numbers of a type, `float` or `double`.

    Operands and results are SSA names or literals.
    """

    f: Function
    element: str
    lanes: int

    @property
    def type(self) -> str:
        return vector(self.element, self.lanes)

    @property
    def integers(self) -> str:
        return vector(INTEGER[self.element], self.lanes)

    @property
    def mantissa(self) -> int:
        """Bits of the fraction."""
        return MANTISSA[self.element]

    @property
    def smallest(self) -> float:
        """The least normal number."""
        return 2.0 ** (1 - BIAS[self.element])

    def bits_of(self, number: float) -> int:
        """The bit pattern of a number, as an integer without sign."""
        forms = {"float": ("<f", "<I"), "double": ("<d", "<Q")}[self.element]
        return int(struct.unpack(forms[1], struct.pack(forms[0], number))[0])

    def float_with_bits(self, bits: int) -> float:
        """The number that has a bit pattern, of which the lowest bits count."""
        forms = {"float": ("<f", "<I"), "double": ("<d", "<Q")}[self.element]
        whole = bits % (1 << 8 * WIDTH[self.element])
        return float(struct.unpack(forms[0], struct.pack(forms[1], whole))[0])

    # floats ---------------------------------------------------------------------------------------

    def number(self, number: float) -> str:
        return literal(number, DTYPE[self.element], self.lanes).name

    def add(self, a: str, b: str) -> str:
        return self.f.op(f"fadd contract {self.type} {a}, {b}")

    def subtract(self, a: str, b: str) -> str:
        return self.f.op(f"fsub contract {self.type} {a}, {b}")

    def multiply(self, a: str, b: str) -> str:
        return self.f.op(f"fmul contract {self.type} {a}, {b}")

    def divide(self, a: str, b: str) -> str:
        return self.f.op(f"fdiv {self.type} {a}, {b}")

    def negate(self, a: str) -> str:
        return self.f.op(f"fneg {self.type} {a}")

    def multiply_add(self, a: str, b: str, c: str) -> str:
        """a * b + c, fused where the target does that."""
        return self.add(self.multiply(a, b), c)

    def fma(self, a: str, b: str, c: str) -> str:
        """a * b + c, rounded once on every target."""
        return self._intrinsic("fma", a, b, c)

    def exact_product(self, a: str, b: str) -> tuple[str, str]:
        """A product and its rounding error."""
        product = self.f.op(f"fmul {self.type} {a}, {b}")
        return product, self.fma(a, b, self.negate(product))

    def exact_sum(self, a: str, b: str) -> tuple[str, str]:
        """A sum and its rounding error."""
        total = self.f.op(f"fadd {self.type} {a}, {b}")
        b_seen = self.f.op(f"fsub {self.type} {total}, {a}")
        a_seen = self.f.op(f"fsub {self.type} {total}, {b_seen}")
        b_lost = self.f.op(f"fsub {self.type} {b}, {b_seen}")
        a_lost = self.f.op(f"fsub {self.type} {a}, {a_seen}")
        return total, self.f.op(f"fadd {self.type} {a_lost}, {b_lost}")

    def polynomial(self, x: str, coefficients: Sequence[float]) -> str:
        total = self.number(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            total = self.multiply_add(total, x, self.number(c))
        return total

    def polynomial_by_halves(self, x: str, coefficients: Sequence[float]) -> str:
        """The even and the odd terms apart: half the operations that wait for one another."""
        square = self.multiply(x, x)
        even, odd = (self.polynomial(square, coefficients[k::2]) for k in (0, 1))
        return self.multiply_add(odd, x, even)

    def magnitude(self, x: str) -> str:
        return self._intrinsic("fabs", x)

    def with_sign(self, magnitude: str, sign: str) -> str:
        return self._intrinsic("copysign", magnitude, sign)

    def square_root(self, x: str) -> str:
        return self._intrinsic("sqrt", x)

    def _intrinsic(self, name: str, *args: str) -> str:
        full = f"llvm.{name}.{suffix(self.element, self.lanes)}"
        return self.f.intrinsic(full, self.type, *((self.type, a) for a in args))

    # conditions: false where an operand is no number ----------------------------------------------

    def compare(self, how: str, a: str, b: str) -> str:
        """`how` is `lt`, `gt`, `eq` and so on."""
        return self.f.op(f"fcmp o{how} {self.type} {a}, {b}")

    def both(self, a: str, b: str) -> str:
        return self.f.op(f"and {vector('i1', self.lanes)} {a}, {b}")

    def either(self, a: str, b: str) -> str:
        return self.f.op(f"or {vector('i1', self.lanes)} {a}, {b}")

    def differ(self, a: str, b: str) -> str:
        """Where one of two conditions holds."""
        return self.f.op(f"xor {vector('i1', self.lanes)} {a}, {b}")

    def opposite(self, a: str) -> str:
        return self.f.op(
            f"xor {vector('i1', self.lanes)} {a}, {literal(-1, 'i1', self.lanes).name}"
        )

    def select(self, condition: str, a: str, b: str) -> str:
        return self._select(self.type, condition, a, b)

    def at_most(self, x: str, limit: float) -> str:
        """The lesser of both; what is no number stays."""
        above = self.compare("gt", x, self.number(limit))
        return self.select(above, self.number(limit), x)

    def at_least(self, x: str, limit: float) -> str:
        below = self.compare("lt", x, self.number(limit))
        return self.select(below, self.number(limit), x)

    # bits -----------------------------------------------------------------------------------------

    def integer(self, number: int) -> str:
        return literal(number, INTEGER[self.element], self.lanes).name

    def bits(self, x: str) -> str:
        return self.f.op(f"bitcast {self.type} {x} to {self.integers}")

    def of_bits(self, x: str) -> str:
        return self.f.op(f"bitcast {self.integers} {x} to {self.type}")

    def on_bits(self, op: str, a: str, b: str | int) -> str:
        """An instruction of LLVM on integers: `add`, `and`, `shl`, `ashr`."""
        return self.f.op(
            f"{op} {self.integers} {a}, {self.integer(b) if isinstance(b, int) else b}"
        )

    def bits_are(self, how: str, a: str, b: int) -> str:
        return self.f.op(f"icmp {how} {self.integers} {a}, {self.integer(b)}")

    def select_bits(self, condition: str, a: str, b: str) -> str:
        return self._select(self.integers, condition, a, b)

    def _select(self, kind: str, condition: str, a: str, b: str) -> str:
        mask = vector("i1", self.lanes)
        return self.f.op(f"select {mask} {condition}, {kind} {a}, {kind} {b}")

    def nearest(self, x: str, unit: float = 1.0) -> tuple[str, str]:
        """The nearest multiple of a power of two, as a float and, in units, as an integer.

        Right below 2^51 units (2^22 of a float); of a larger integer only the low bits are right.
        """
        large = 1.5 * 2.0**self.mantissa * unit
        shifted = self.add(x, self.number(large))
        rounded = self.f.op(f"fsub {self.type} {shifted}, {self.number(large)}")
        return rounded, self.on_bits("sub", self.bits(shifted), self.bits_of(large))

    def times_power_of_two(self, x: str, exponent: str) -> str:
        """x * 2^exponent (integers) for a normal x whose product is normal."""
        return self.of_bits(
            self.on_bits("add", self.bits(x), self.on_bits("shl", exponent, self.mantissa))
        )

    @property
    def fuses(self) -> bool:
        """Whether a fused multiply-add is known to be one instruction."""
        return "fma" in self.f.module.features

    @property
    def scales(self) -> bool:
        """Whether one instruction multiplies a vector by powers of two, rounding once."""
        features, bits = self.f.module.features, 8 * WIDTH[self.element] * self.lanes
        narrow = bits in (128, 256) and "avx512vl" in features
        return "avx512f" in features and (bits % 512 == 0 or narrow)

    def rounded(self, x: str) -> str:
        """The nearest integer, as a float."""
        return self._intrinsic("nearbyint", x)

    def scaled(self, x: str, exponent: str) -> str:
        """x * 2^exponent for an integer as a float, where `scales`; rounded once."""
        if self.lanes <= WHOLE // WIDTH[self.element]:
            return self._scaled(x, exponent)
        return self.by_whole_vectors(Lanes._scaled, x, exponent)

    def _scaled(self, x: str, exponent: str) -> str:
        bits = 8 * WIDTH[self.element] * self.lanes
        short = {"float": "ps", "double": "pd"}[self.element]
        mask = f"i{max(8, self.lanes)}"
        lanes = [(self.type, x), (self.type, exponent), (self.type, "zeroinitializer")]
        arguments = [*lanes, (mask, "-1"), *([("i32", "4")] if bits == 512 else [])]
        name = f"llvm.x86.avx512.mask.scalef.{short}.{bits}"
        return self.f.intrinsic(name, self.type, *arguments)

    def by_whole_vectors(self, write: Callable[..., str], *operands: str, size: int = WHOLE) -> str:
        """What is written on vectors of `size` bytes, of operands with any number of lanes.

        Args:
            write: takes the `Lanes` of a whole vector, and its operands.
        """
        whole = Lanes(self.f, self.element, size // WIDTH[self.element])
        if self.lanes == whole.lanes:
            return write(whole, *operands)
        parts = [
            write(whole, *(self._part(x, k, whole.lanes) for x in operands))
            for k in range(0, self.lanes, whole.lanes)
        ]
        return self._together(parts, whole.lanes)

    def _part(self, x: str, start: int, lanes: int) -> str:
        """Lanes from one on; those beyond the vector are undefined."""
        places = (str(k) if k < self.lanes else "poison" for k in range(start, start + lanes))
        order = ", ".join(f"i32 {k}" for k in places)
        return self.f.op(
            f"shufflevector {self.type} {x}, {self.type} poison, <{lanes} x i32> <{order}>"
        )

    def _together(self, parts: list[str], lanes: int) -> str:
        """Vectors of so many lanes one behind the other."""
        while len(parts) > 1:
            kind, order = (
                vector(self.element, lanes),
                ", ".join(f"i32 {k}" for k in range(2 * lanes)),
            )
            parts = [
                self.f.op(f"shufflevector {kind} {a}, {kind} {b}, <{2 * lanes} x i32> <{order}>")
                for a, b in zip(parts[::2], [*parts[1::2], "poison"], strict=False)
            ]
            lanes *= 2
        wide = Lanes(self.f, self.element, lanes)
        return parts[0] if lanes == self.lanes else wide._part(parts[0], 0, self.lanes)

    def reciprocal_of_sum(self, a: str, b: str) -> str:
        """1 / (a + b) for positive numbers whose sum is normal, as is its reciprocal.

        By an estimate of 14 bits and one step of Newton's with what the sum lost to rounding, for
        vectors of floats where `scales`; it is off by little more than half of the last place.
        """
        total = self.add(a, b)
        large = self.select(self.compare("gt", a, b), a, b)
        small = self.select(self.compare("lt", a, b), a, b)
        lost = self.subtract(small, self.subtract(total, large))
        near = self.by_whole_vectors(Lanes._near_reciprocal, total)
        back = self.negate(near)
        off = self.fma(back, lost, self.fma(back, total, self.number(1)))
        return self.fma(off, near, near)

    def _near_reciprocal(self, x: str) -> str:
        operands = [(self.type, x), (self.type, "zeroinitializer"), ("i16", "-1")]
        return self.f.intrinsic("llvm.x86.avx512.rcp14.ps.512", self.type, *operands)

    def power_of_two(self, exponent: str) -> str:
        """2^exponent where that is normal."""
        biased = self.on_bits("add", exponent, BIAS[self.element])
        return self.of_bits(self.on_bits("shl", biased, self.mantissa))

    def float_of(self, integer: str) -> str:
        """A signed integer of few bits as a float; many processors cannot convert 64 bits."""
        large = 1.5 * 2.0**self.mantissa
        return self.subtract(
            self.of_bits(self.on_bits("add", integer, self.bits_of(large))), self.number(large)
        )
