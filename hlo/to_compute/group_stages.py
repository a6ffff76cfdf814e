"""The stages of a kernel of elementwise operations and reductions, or of several products.

    pre*     tables of constants, what varies along fewer axes than its user, and values that take
             functions to compute and that several stages read
    reduce*  one for each reduction, its prologue in its value
    product* one for each product of two operands, their prologues in its value
    out*     the results, those over the same axes in one stage; the largest last

Axes that the operations walk together have the same name in all stages, until all stages are there.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hlotune.hlo.graph import Graph, Op
from hlotune.hlo.to_compute.assembly import Assembly, identity
from hlotune.hlo.to_compute.axis_names import axis_names
from hlotune.hlo.to_compute.contractions import numbers
from hlotune.hlo.to_compute.conversions import converted, narrowed, short_name, unsupported, widened
from hlotune.hlo.to_compute.copied_results import without_copies
from hlotune.hlo.to_compute.cumulative import Cumulative, cumulative
from hlotune.hlo.to_compute.expressions import Held
from hlotune.hlo.to_compute.factored_sums import fewest_passes
from hlotune.hlo.to_compute.index_maps import Domain, Index, SplitAxis
from hlotune.hlo.to_compute.indexed import scatter_windows
from hlotune.hlo.to_compute.kept_values import REDUCTIONS, SCATTER, argument_groups, kept_values
from hlotune.hlo.to_compute.large_values import large_values
from hlotune.hlo.to_compute.product_stages import product_stage
from hlotune.hlo.to_compute.prologues import varying
from hlotune.hlo.to_compute.reductions import (
    counts_along,
    monoid_of,
    parts_of,
    scattered_by,
    without_unit_reductions,
)
from hlotune.hlo.to_compute.updates import merges
from hlotune.hlo.to_compute.windows import Windows, selection, sliced
from hlotune.schedules.dtypes import accumulator, is_float
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store
from hlotune.schedules.ir.expr import Affine, Apply, Const, Expr, Load
from hlotune.schedules.ir.monoids import SELECTED, SUM, Monoid

Cut = tuple[str, int]
"""An axis, and the extent of the inner one of the two that it is split into."""


def group_compute(graph: Graph) -> Compute:
    """The compute of a kernel of elementwise operations and reductions.

    Raises UnsupportedKernel.
    """
    graph = without_unit_reductions(graph)
    names, cuts = axis_names(graph), list[Cut]()
    while True:
        assembly = _Group(graph, names=names, cuts=tuple(cuts))
        try:
            assembly.assemble()
        except SplitAxis as wanted:
            if wanted.axis in assembly.lookups.values():
                raise UnsupportedKernel(
                    "expected the dimensions of what is read at places that data decides, got a "
                    "reshape of them; the kernel stays with the default compiler"
                ) from None
            cuts.append((wanted.axis, wanted.inner))
        else:
            whole = Compute(assembly.tensors(), tuple(assembly.stages))
            return without_copies(fewest_passes(whole, tied_axes(graph, names)))


def tied_axes(graph: Graph, names: Mapping[int, tuple[str, ...]]) -> dict[str, str]:
    """For each name of an axis one that it shares with those of slices of the same tensor."""
    loose, found = axis_names(graph, loose=True), dict[str, str]()
    for value, own in names.items():
        found.update(zip(own, loose[value], strict=True))
    return found


@dataclass(slots=True)
class _Group(Assembly):
    names: dict[int, tuple[str, ...]] = field(kw_only=True)
    cuts: tuple[Cut, ...] = field(kw_only=True)

    def assemble(self) -> None:
        kept = kept_values(self.graph) | large_values(self.graph)
        for op in self.graph.ops:
            if found := cumulative(self.graph, op):
                self.scan(op, found)
            elif short_name(op) == SCATTER:
                self.scattered(op)
            elif short_name(op) in REDUCTIONS:
                self.reduction(op)
            elif short_name(op) == "dot_general":
                self.stages.append(product_stage(self, op))
            elif kept & set(op.results):
                self.whole(op.results[0])
        scattered = {r for op in self.graph.ops if merges(op) for r in op.results}
        alike, owner = defaultdict[object, list[int]](list), argument_groups(self.graph)
        for k, value in enumerate(self.graph.results):
            if value in scattered:
                self.scatter(k, value)
                continue
            alike[frozenset(self.axes(value)), owner[value]].append(k)
        ordered = sorted(alike.values(), key=lambda ks: self.graph.result_types[ks[0]].elements)
        for n, positions in enumerate(ordered):
            last = n + 1 == len(ordered)
            self.out(positions, "out" if last else f"out{n}")

    def axes(self, value: int) -> dict[str, int]:
        """Names and extents of the dimensions of a value, without those of extent 1."""
        pairs = zip(self.names[value], self.graph.types[value].shape, strict=True)
        return {name: n for name, n in pairs if n > 1}

    def domain(
        self, value: int, reduced: tuple[int, ...] = (), taps: Sequence[Axis] = ()
    ) -> Domain:
        """The axes of a value, some of its dimensions reduced, with all cuts made.

        `taps` are more axes to reduce over.
        """
        pairs = zip(self.names[value], self.graph.types[value].shape, strict=True)
        axes = [Axis(name, n) for name, n in pairs]
        parallel = [a for d, a in enumerate(axes) if d not in reduced]
        return self.cut(Domain.of(parallel, [*(axes[d] for d in reduced), *taps]))

    def cut(self, domain: Domain) -> Domain:
        """The domain with all cuts made."""
        for name, inner in self.cuts:
            if name in domain.extents:
                domain = domain.split(name, inner)
        return domain

    def index(self, value: int, domain: Domain) -> Index:
        """The index of a value over a domain that has all its dimensions."""
        return tuple(domain.places[name] for name in self.names[value])

    def scatter(self, position: int, value: int) -> None:
        """The stages of a result of a scatter: one for its operand, and one that merges updates.

        Updates that would leave the operand change nothing.
        """
        op = next(op for op in self.graph.ops if value in op.results)
        operand, _, updates = op.operands
        dtype = self.graph.types[value].dtype
        self.out([position], f"onto{position}", of=operand)
        windows = scatter_windows(self.graph, op)
        rank = len(self.graph.types[updates].shape)
        domain = self.domain(updates, tuple(d for d in range(rank) if d not in windows))
        reader, axes = self.reader(domain), domain.parallel + domain.reduce
        index = self.index(updates, domain)
        places, lookups, inside = reader.updated(op, index)
        monoid = scattered_by(op, dtype)
        identity_of = monoid.identities((dtype,))[0]
        if is_float(dtype) and monoid is SUM:
            identity_of = Const(-0.0, dtype)  # the other zero makes a zero positive
        given: Expr = reader.read(updates, index)
        for condition in inside:
            given = Apply("select", (condition, given, identity_of), dtype)
        given, domain = self.hoist(given, axes), domain.filled()
        store = Store(f"y{position}", places, lookups)
        self.stages.append(
            Stage(
                f"scatter{position}", domain.parallel, domain.reduce, (store,), (given,), monoid,
                onto=True,
            )
        )  # fmt: skip

    def reduction(self, op: Op) -> None:
        """The stage of a reduction, or of a windowed one, whose results are held."""
        count = len(op.results)
        inits = op.operands[count:]
        dtypes = [accumulator(self.graph.types[r].dtype) for r in op.results]
        starts = [
            converted(self.reader(Domain.of(())).read(v, ()), d)
            for v, d in zip(inits, dtypes, strict=True)
        ]
        monoid = monoid_of(op, dtypes, starts, counted=self.is_counted(op))
        parts = parts_of(op.regions[0], dtypes) or ()
        is_window = short_name(op) == "reduce_window"
        if is_window and monoid.identities(tuple(dtypes)) != tuple(starts):
            raise UnsupportedKernel(
                f"expected a window that begins at what changes nothing, got {starts[0]} of a "
                f"{monoid}; the kernel stays with the default compiler"
            )
        read = self.read_window if is_window else self.read_whole
        domain, found = read(op, starts)
        axes = domain.parallel + domain.reduce
        values = [converted(self.hoist(v, axes), d) for v, d in zip(found, dtypes, strict=True)]
        names, domain, stores = self.kept(op), domain.filled(), []
        for k, (result, start, dtype) in enumerate(zip(op.results, starts, dtypes, strict=True)):
            name = self.hold(result, names, domain.parallel, dtype)
            stores.append(Store(name, identity(domain.parallel)))
            if parts and parts[k].identities((dtype,)) != (start,):
                self.held[result] = replace(self.held[result], monoid=parts[k], start=start)
        stage = f"reduce{len(self.stages)}"
        self.stages.append(
            Stage(stage, domain.parallel, domain.reduce, tuple(stores), tuple(values), monoid)
        )

    def is_counted(self, op: Op) -> bool:
        """Whether the second part of a reduction is the position along it."""
        if short_name(op) != "reduce" or len(op.results) != 2:
            return False
        reduced = numbers(op, "dimensions")
        return len(reduced) == 1 and counts_along(self.graph, op.operands[1], reduced[0])

    def kept(self, op: Op) -> tuple[str, ...]:
        """Names of the dimensions of a reduction's results."""
        if short_name(op) == "reduce_window":
            return self.names[op.results[0]]
        reduced = numbers(op, "dimensions")
        return tuple(a for d, a in enumerate(self.names[op.operands[0]]) if d not in reduced)

    def read_whole(self, op: Op, starts: Sequence[Expr]) -> tuple[Domain, list[Expr]]:
        """What a reduction goes over, with its domain."""
        inputs = op.operands[: len(op.results)]
        domain = self.domain(inputs[0], numbers(op, "dimensions"))
        reader = self.reader(domain)
        return domain, [reader.read(v, self.index(v, domain)) for v in inputs]

    def read_window(self, op: Op, starts: Sequence[Expr]) -> tuple[Domain, list[Expr]]:
        """The same of a windowed one; results vary along the axes only that its values vary along.

        Windows begin as many elements before the operand as are padded.
        """
        windows = Windows.of(op, self.names[op.results[0]])
        domain = self.domain(op.results[0], taps=windows.taps)
        index = windows.read(domain.places)
        reader, inputs = self.reader(domain), op.operands[: len(op.results)]
        values = [
            reader.windowed(op, v, index, start) for v, start in zip(inputs, starts, strict=True)
        ]
        used = frozenset[str]().union(*map(varying, values))
        parallel = tuple(a for a in domain.parallel if a.name in used)
        return replace(domain, parallel=parallel), values

    def scattered(self, op: Op) -> None:
        """The stages of select_and_scatter: which element each window selects, and their sums.

        Each element of the result adds up what the windows give that have selected it: those that
        have it as one of their elements are as many as taps.
        """
        _, source, start = op.operands
        windows = Windows.of(op, self.names[source])
        numbers = Load(self.table(windows.elements), (windows.number,), "i32")
        chosen = self.chosen(op, windows, numbers)
        value, first = sliced(self.graph, op.results[0])
        domain = self.domain(value, taps=windows.taps)
        own = zip(self.index(value, domain), first, strict=True)
        reached = windows.reaching([e + n for e, n in own])
        reader = self.reader(domain)
        here = Apply(
            "compare_EQ", (reader.spread(chosen, reached, windows.strides, -1), numbers), "i1"
        )
        given = widened(reader.spread(self.stored(source), reached, windows.strides, 0))
        nothing = converted(Const(0, "i32"), given.dtype)
        values = Apply("select", (here, given, nothing), given.dtype)
        domain = domain.filled()
        name = self.hold(value, self.names[value], domain.parallel, given.dtype)
        begin = converted(self.reader(Domain.of(())).read(start, ()), given.dtype)
        if begin != nothing:
            self.held[value] = replace(self.held[value], monoid=SUM, start=begin)
        store = Store(name, identity(domain.parallel))
        self.stages.append(
            Stage(f"reduce{len(self.stages)}", domain.parallel, domain.reduce, (store,), (values,),
                  SUM)
        )  # fmt: skip

    def chosen(self, op: Op, windows: Windows, numbers: Load) -> Load:
        """The stage that finds the element that each window selects, as a load without an index."""
        operand, source, _ = op.operands
        direction = selection(op)
        if direction is None:
            raise unsupported(op)
        domain = self.domain(source, taps=windows.taps)
        read = self.reader(domain).read(operand, windows.read(domain.places))
        domain = domain.filled()
        value = self.hoist(read, domain.parallel + domain.reduce)
        shape, place = self.graph.types[source].shape, self.index(source, domain)
        stores = tuple(
            Store(self.temporary("pre", shape, dtype), place) for dtype in (value.dtype, "i32")
        )
        self.stages.append(
            Stage(f"reduce{len(self.stages)}", domain.parallel, domain.reduce, stores,
                  (value, numbers), SELECTED[direction])
        )  # fmt: skip
        return Load(stores[1].tensor, (), "i32")

    def stored(self, value: int) -> Load:
        """A load without an index of a tensor of a value's shape: a stage stores what has none."""
        kind, arguments = self.graph.types[value], self.graph.arguments
        if value in arguments:
            return Load(f"a{arguments.index(value)}", (), kind.dtype)
        domain, dtype = self.domain(value), accumulator(kind.dtype)
        place = self.index(value, domain)
        expr = self.hoist(self.reader(domain).read(value, place), domain.parallel)
        name = self.temporary("pre", kind.shape, dtype)
        self.stage(domain.filled().parallel, (Store(name, place),), (converted(expr, dtype),))
        return Load(name, (), dtype)

    def scan(self, op: Op, found: Cumulative) -> None:
        """The stage of a cumulative reduction, whose results are held.

        Raises UnsupportedKernel where it begins at another value than the identity, or goes along
        an axis that a reshape cuts.
        """
        inputs = op.operands[: len(op.results)]
        dtypes = [accumulator(self.graph.types[r].dtype) for r in op.results]
        domain, axis = self.domain(inputs[0], (found.dimension,)), self.names[inputs[0]]
        monoid = self._begun_at_nothing(op, dtypes, domain)
        (r,) = domain.reduce
        along = Affine.axis(r.name, -1) + (r.extent - 1) if found.reverse else Affine.axis(r.name)
        turned = {**domain.places, axis[found.dimension]: along}
        walked = Domain(domain.parallel, domain.reduce, turned)
        reader = self.reader(walked)
        values = [
            converted(
                self.hoist(reader.read(v, self.index(v, walked)), domain.parallel + domain.reduce),
                d,
            )
            for v, d in zip(inputs, dtypes, strict=True)
        ]
        ordered = tuple(
            a for name in axis for a in (*domain.parallel, r) if f"{a.name}.".startswith(f"{name}.")
        )
        index = tuple(along if a is r else Affine.axis(a.name) for a in ordered)
        stores = tuple(
            Store(self.hold(v, axis, ordered, d), index)
            for v, d in zip(op.results, dtypes, strict=True)
        )
        filled = domain.filled()
        self.stages.append(
            Stage(f"scan{len(self.stages)}", filled.parallel, (r,), stores, tuple(values), monoid)
        )

    def _begun_at_nothing(self, op: Op, dtypes: Sequence[str], domain: Domain) -> Monoid:
        """The monoid of a cumulative reduction along the one axis that a domain reduces."""
        starts = [
            converted(self.reader(Domain.of(())).read(v, ()), d)
            for v, d in zip(op.operands[len(op.results) :], dtypes, strict=True)
        ]
        monoid = monoid_of(op, dtypes, starts)
        if len(domain.reduce) != 1 or monoid.identities(tuple(dtypes)) != tuple(starts):
            raise UnsupportedKernel(
                "expected a cumulative reduction along one axis that begins at nothing, got "
                f"{monoid} along {len(domain.reduce)} from {', '.join(map(str, starts))}; "
                "the kernel stays with the default compiler"
            )
        return monoid

    def whole(self, value: int) -> None:
        """The stage of a value that several stages read."""
        domain, dtype = self.domain(value), accumulator(self.graph.types[value].dtype)
        expr = self.reader(domain).read(value, self.index(value, domain))
        stored = converted(self.hoist(expr, domain.parallel), dtype)
        parallel = domain.filled().parallel
        name = self.hold(value, self.names[value], parallel, dtype)
        self.stage(parallel, (Store(name, identity(parallel)),), (stored,))

    def hold(self, value: int, own: tuple[str, ...], axes: tuple[Axis, ...], dtype: str) -> str:
        """A temporary for a value over the axes of its stage, its dimensions of those names."""
        name = self.temporary("pre", tuple(a.extent for a in axes), dtype)
        parts = tuple(
            tuple(a.extent for a in axes if f"{a.name}.".startswith(f"{d}.")) for d in own
        )
        self.held[value] = Held(name, dtype, parts)
        return name

    def out(self, positions: list[int], name: str, of: int | None = None) -> None:
        """The stage of results over the same axes; what it stores is the value `of`, if any."""
        domain = self.domain(self.graph.results[positions[0]])
        reader = self.reader(domain)
        stores, values = list[Store](), list[Expr]()
        for k in positions:
            value = self.graph.results[k]
            index = tuple(
                domain.places[a] if n > 1 else Affine()
                for a, n in zip(self.names[value], self.graph.types[value].shape, strict=True)
            )
            read = reader.read(value if of is None else of, index)
            expr = self.hoist(read, domain.parallel)
            stores.append(Store(f"y{k}", index))
            values.append(narrowed(expr, self.graph.types[value].dtype))
        self.stages.append(Stage(name, domain.filled().parallel, (), tuple(stores), tuple(values)))
