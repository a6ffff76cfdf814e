"""Programs: from a JAX function or a file to a module in normal form.  Start at `load`."""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp

from hlotune.hlo.calling.arguments import names_of
from hlotune.hlo.calling.keys import NO_KEYS, Keys
from hlotune.hlo.canonical import fingerprint
from hlotune.hlo.frontends.checked_parse import parsed
from hlotune.hlo.frontends.file_kinds import FILES, check_kind, names_a_file
from hlotune.hlo.frontends.python_sources import (
    RAISED,
    call_factory,
    function_in,
    importable,
    imported,
    require_parameters,
)
from hlotune.hlo.frontends.short_loops import with_short_loops_unrolled
from hlotune.hlo.frontends.tracing import donated_of, hashable, traced_of, weak_of, without_weights
from hlotune.hlo.graph import Graph, TensorType, numpy_dtype
from hlotune.hlo.mlir import module as mlir
from hlotune.hlo.mlir.channels_last import with_channels_last
from hlotune.hlo.mlir.rewrite import Notes, normalise, take_donated, take_notes
from hlotune.hlo.mlir.values import TYPES
from hlotune.hlo.mlir.weights import Weights, take_out
from hlotune.hlo.sites.trip_counts import flows
from hlotune.schedules.errors import ProgramError
from hlotune.schedules.garbage import collected_later


@dataclass(frozen=True, eq=False)
class Program:
    """A StableHLO module in normal form, whose only function is `@main`."""

    name: str
    source: str
    """Where it came from: `path.py:name`, a file, or the qualified name of a function."""
    bytecode: bytes = field(repr=False)
    graph: Graph = field(repr=False)
    in_tree: Any = field(default=None, repr=False)
    """Pytree of `(args, kwargs)`; None where the program takes flat arrays."""
    out_tree: Any = field(default=None, repr=False)
    example_args: tuple[Any, ...] | None = field(default=None, repr=False)
    """What the program was loaded with: arrays, or shapes only."""
    names: tuple[str, ...] = ()
    """Names of arguments; "" for one that has none, and none at all of a file that has no names."""
    notes: Notes = field(default=Notes(), repr=False)
    """`remarks` has them, and more."""
    donated: tuple[int, ...] = field(default=(), repr=False)
    """Positions of arguments, flat, whose memory each call gives away, as `jax.jit` has it."""
    trips: Mapping[str, tuple[float, ...]] = field(default_factory=dict, repr=False)
    """How often loops and branches run that do not say it themselves, by their names in
    `hlo/sites/trip_counts.py`."""
    weights: Weights = field(default=(), repr=False)
    """Large constants, which lie beside the bytecode; the graph has them as any others."""
    keys: Keys = field(default=NO_KEYS, repr=False)
    """Leaves that were typed random keys; the program has their numbers."""
    weak: tuple[int, ...] = field(default=(), repr=False)
    """Results, flat, whose types give way to others, as those of Python's numbers do."""
    unrolled: bytes = field(default=b"", repr=False)
    """The module whose operations the graph numbers, where it differs from `bytecode`, which the
    default runs: its short loops are unrolled."""

    @property
    def cut(self) -> bytes:
        """The module that kernels are cut from, and put into."""
        return self.unrolled or self.bytecode

    @property
    def remarks(self) -> tuple[str, ...]:
        """What has to be said beside every figure of the program, as that values of it are
        missing or that its shardings are ignored."""
        said = (*self.notes.missing_values, *self.notes.others)
        if not self.weights:
            return said
        size = sum(w.nbytes for w in self.weights)
        return (
            *said,
            f"{len(self.weights)} weights ({size:,} bytes) are arguments of the default and of the "
            "tuned program: as constants in its text the default would hold several copies of them",
        )

    @cached_property
    def key(self) -> str:
        """Hash of the canonical text, values of constants included: 32 hex digits."""
        return fingerprint(self.graph)


def require_loaded(program: object) -> None:
    """Raises ProgramError for what `load` has yet to make a program of."""
    if not isinstance(program, Program):
        raise ProgramError(
            f"expected a program, got {type(program).__name__}; give what hlotune.load makes of it"
        )


def load(
    source: Callable[..., Any] | str | Path,
    *example_args: Any,
    argument_types: Sequence[str] = (),
    dims: Mapping[str, int] | None = None,
    trips: Mapping[str, Sequence[float]] | None = None,
) -> Program:
    """Reads a program.

    Arguments that the source donates (a function of `jax.jit` or `hlotune.jit` with
    `donate_argnums` or `donate_argnames`, a file of such a function) are donated by the program.

    `source` is a function; or `path.py:name` or `package.module:name`, where `name` is a factory
    that takes nothing and returns `(function, example_args)`, or a function when arguments are
    given here; or the path of a StableHLO file (text, bytecode or portable artifact), an HLO
    file (text, or a protocol buffer as XLA dumps it), an ONNX model or a file of
    `torch.export.save`.  A `torch.nn.Module` is a function; its parameters are constants.
    Arguments are `example_args`, or `argument_types` like `f32[8,784]`; a file takes none.  `dims`
    are sizes of symbolic dimensions, by name: of a file's, and of `batch` in `f32[batch,784]`;
    `load_variants` takes several sizes of each.  `Program.remarks` says what was left out, as
    shardings.  `trips` says how often loops run that do
    not say it themselves, as in `{"while0": [50]}`, or with the name "" for all of them, and how
    large the share of each branch is, as in `{"if0": [0.9, 0.1]}`.

    Raises:
        ProgramError: the source is no program, or one that hlotune does not take.
    """
    named = {name: one_size(name, size) for name, size in (dims or {}).items()}
    arguments = example_args or tuple(argument(t, named) for t in argument_types)
    in_types = {s for t in argument_types for s in _sizes_of(t)}
    with collected_later():
        program = _loaded(source, arguments, {n: s for n, s in named.items() if n not in in_types})
    told = {name: tuple(map(float, numbers)) for name, numbers in (trips or {}).items()}
    flows(program.graph, told)
    return replace(program, trips=told)


def _loaded(
    source: Callable[..., Any] | str | Path, arguments: tuple[Any, ...], dims: Mapping[str, int]
) -> Program:
    if callable(source):
        _check_no_sizes(dims, _qualified_name(source))
        if is_module(source):
            return from_module(source, arguments).program
        return _from_function(source, arguments, _qualified_name(source))
    text = str(source)
    if names_a_file(text):
        return _from_file(Path(text), arguments, dims)
    _check_no_sizes(dims, text)
    where, _, name = text.rpartition(":")
    if text.endswith(".py") and Path(text).is_file():
        raise ProgramError(
            f"expected a function of {text}, as in {text}:model, got the file alone; "
            "name the function after a colon"
        )
    if not where or not name:
        raise ProgramError(
            f"expected a function, path.py:name, package.module:name or a file {' '.join(FILES)}, "
            f"got {text!r}; "
            "name the function after a colon, or check the path"
        )
    with importable(where):
        found = function_in(imported(where), where, name)
        if arguments:
            require_parameters(found, text, len(arguments))
        function, arguments = (found, arguments) if arguments else call_factory(found, text)
        if is_module(function):
            return replace(from_module(function, arguments).program, name=name, source=text)
        return _from_function(function, arguments, text)


@dataclass(frozen=True, slots=True)
class LoadedModule:
    """A program and the function that it was traced from, which knows the results' structure."""

    program: Program
    function: Any


def from_module(module: Any, arguments: tuple[Any, ...], source: str | None = None) -> LoadedModule:
    """The program of a `torch.nn.Module`, and how its results are put together.

    Parameters and buffers are its constants.  `source` is what messages call it, by default its
    class.  Raises ProgramError.
    """
    # by its name: the one module that needs torch, which is there if a module of it is
    modules = importlib.import_module("hlotune.hlo.frontends.pytorch.modules")
    source = source or _qualified_name(type(module))
    given = modules.tensors_in(arguments)
    refused: ProgramError | None = None
    exports = modules.exports(module, given, source)
    while True:
        try:
            exported = next(exports, None)
        except ProgramError as error:  # of torch: it exports nothing, or has no other form of it
            exported, refused = None, refused or error
        if exported is None:
            break
        try:
            function = modules.ModuleFunction(exported, source, modules.signature_of(module))
            with jax.enable_x64(True):
                program = _from_function(
                    function, modules.arrays(given), source, images=with_channels_last
                )
            return LoadedModule(program, function)
        except ProgramError as error:
            refused = error if refused is None or modules.lacks_rules(refused) else refused
    assert refused is not None
    raise refused


def is_module(source: Any) -> bool:
    """Whether it is a `torch.nn.Module`; torch is not imported for that."""
    torch = sys.modules.get("torch")
    kind = getattr(getattr(torch, "nn", None), "Module", None)
    return kind is not None and isinstance(source, kind)


def one_size(name: str, size: object) -> int:
    """The size of a dimension; raises ProgramError for several, or what is none."""
    if type(size) is not int or size < 0:
        raise ProgramError(
            f"expected one size of the dimension {name}, a whole number, got {size!r}; "
            "hlotune.load_variants takes several"
        )
    return size


def argument(text: str, dims: Mapping[str, int] = MappingProxyType({})) -> jax.ShapeDtypeStruct:
    """The argument that `f32[8,784]` describes, or `f32[batch,784]` with a size of `batch`."""
    dtype, bracket, rest = text.strip().partition("[")
    sizes = [str(dims.get(s, s)) for s in _sizes_of(text)]
    if dtype not in TYPES or not bracket or not rest.endswith("]"):
        raise ProgramError(
            f"expected an argument type like f32[8,784], got {text!r}; element types are "
            f"{', '.join(TYPES)}"
        )
    if (unknown := next((s for s in sizes if not s.isdecimal()), None)) is not None:
        raise ProgramError(
            f"expected whole numbers as sizes, as in f32[8,784], got {unknown!r} in {text!r}; a "
            f"kernel is tuned for one shape: give each size, here or as in --dim {unknown}=8"
        )
    return shape_of(TensorType(tuple(map(int, sizes)), dtype))


def _sizes_of(text: str) -> list[str]:
    """The sizes in `f32[batch,784]`."""
    return [
        s.strip() for s in text.strip().partition("[")[2].removesuffix("]").split(",") if s.strip()
    ]


def shape_of(kind: TensorType) -> jax.ShapeDtypeStruct:
    """JAX's description of a tensor type."""
    dtype = jnp.dtype(numpy_dtype(kind.dtype))
    return jax.ShapeDtypeStruct(kind.shape, dtype)  # type: ignore[no-untyped-call]


def _qualified_name(function: Callable[..., Any]) -> str:
    module = getattr(function, "__module__", None) or "?"
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{module}:{name}"


def _from_function(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    source: str,
    images: Callable[[mlir.Module], mlir.Module] = lambda module: module,
) -> Program:
    """The program of a function.

    Args:
        images: brings the images of a module in normal form into another layout.
    """
    try:
        traced, numbers, keys = traced_of(hashable(function), arguments)
        lowered, weights = without_weights(traced)
        donated = donated_of(function, arguments)
    except ProgramError:
        raise
    except RAISED as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
        many = f"{len(arguments)} argument" + "s" * (len(arguments) != 1)
        raise ProgramError(
            f"expected a function that JAX can trace with {many}, got {reason}; check the function "
            "and its example arguments; a static argument, or one that is no array, is bound "
            "first, as by functools.partial"
        ) from error
    module = mlir.copied(lowered.compiler_ir("stablehlo"))
    normalise(module)
    module = images(module)
    notes, _, weights = take_notes(module), take_donated(module), take_out(module.op, weights)
    bytecode = module.bytecode()
    unrolled, graph = _unrolled(bytecode, module, weights)
    in_tree, leaves = jax.tree.structure((arguments, {})), len(jax.tree.leaves(arguments))
    if len(graph.arguments) != leaves:
        raise ProgramError(
            f"expected a function of its {leaves} arguments alone, got one "
            "that closes over values of an outer transformation; give them as arguments"
        )
    return Program(
        source.rpartition(":")[2], source, bytecode, graph,
        in_tree, jax.tree.structure(traced.out_info), numbers,
        names_of(function, len(arguments)), notes, donated, weights=weights, keys=keys,
        weak=weak_of(jax.tree.leaves(traced.out_info)), unrolled=unrolled,
    )  # fmt: skip


def _unrolled(bytecode: bytes, module: mlir.Module, weights: Weights) -> tuple[bytes, Graph]:
    """The module without its short loops, b"" where it has none, and the graph of what is cut."""
    graph = mlir.graph(module, weights=weights)
    unrolled = with_short_loops_unrolled(module, graph)
    if unrolled is None:
        return b"", graph
    return unrolled.bytecode(), mlir.graph(unrolled, weights=weights)


def _check_no_sizes(dims: Mapping[str, int], source: str) -> None:
    if dims:
        raise ProgramError(
            f"expected sizes of symbolic dimensions alone, got {', '.join(dims)} with {source}, "
            "whose arguments have sizes; leave that out"
        )


def _from_file(path: Path, arguments: Sequence[Any], dims: Mapping[str, int]) -> Program:
    check_kind(path)
    if arguments:
        raise ProgramError(
            f"expected no arguments with {path}, a file that has its types in it, got "
            f"{len(arguments)}; leave them out"
        )
    read = parsed(path, dims)
    bytecode = read.bytecode
    module = mlir.parse(bytecode)
    notes, donated, weights = take_notes(module), take_donated(module), take_out(module.op)
    if notes != Notes() or donated or weights:
        bytecode = module.bytecode()
    unrolled, graph = _unrolled(bytecode, module, weights)
    return Program(
        path.stem, str(path), bytecode, graph,
        names=read.names, notes=notes, donated=donated, weights=weights, unrolled=unrolled,
    )  # fmt: skip
