"""What stands in the place of a site: a call of a kernel of ours, with its packed constants."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from hlotune.codegen.backend import Signature
from hlotune.codegen.backends import backend_named
from hlotune.codegen.build import build
from hlotune.codegen.built import Built
from hlotune.codegen.runtime.abi import TARGET
from hlotune.codegen.runtime.merged_calls import merge_calls
from hlotune.hlo.calling.callable import JittedProgram, jitted
from hlotune.hlo.calling.donation import donated_pairs
from hlotune.hlo.calling.splice import splice
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import Program
from hlotune.hlo.graph import Graph, Literal, TensorType
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.mlir import module as mlir
from hlotune.hlo.mlir.ordered_writes import order_writes
from hlotune.hlo.sites.sites import Site
from hlotune.hlo.sites.stacks import Stack
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.schedules.errors import ProgramError
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.target import Target


@dataclass(frozen=True, slots=True, eq=False)
class Replacement:
    """A module whose `@main` stands for a site; `packed` are its further arguments, in order."""

    site: Site
    text: str
    packed: tuple[NDArray[np.uint8], ...] = ()
    built: Built | None = None
    """What the module calls; None where it is plain StableHLO."""
    stacks: tuple[Stack, ...] = ()
    """Those whose indices the module takes, behind the site's arguments."""

    @property
    def packed_bytes(self) -> int:
        return sum(p.nbytes for p in self.packed)


def replacement(program: Program, site: Site, built: Built) -> Replacement:
    """A built kernel of a site, which calls of the module run in this process from now on.

    Raises:
        HlotuneError: the kernel cannot be loaded, or packs a constant whose value is unknown.
    """
    types = region_of(program, site).types
    values = {p.argument: constant(program, site, p.argument) for p in built.packed}
    known = dict(site.constants)
    stacks = {k: s for k in sorted(values) if isinstance(s := known.get(k), Stack)}
    signature = Signature(
        tuple(types[v] for v in site.arguments),
        tuple(types[v] for v in site.results),
        in_place_of(program, site, built),
        {k: index_type(program, site, stack) for k, stack in stacks.items()},
    )
    code = backend_named(built.backend).replacement(loaded_here(built), signature, values)
    return Replacement(site, code.text, code.packed, built, tuple(stacks.values()))


def index_type(program: Program, site: Site, stack: Stack) -> TensorType:
    return region_of(program, site).types[stack.index]


def region_of(program: Program, site: Site) -> Graph:
    graph = program.graph
    for operation, region in zip(site.path[::2], site.path[1::2], strict=True):
        graph = graph.ops[operation].regions[region]
    return graph


def in_place_of(program: Program, site: Site, built: Built) -> tuple[tuple[int, int], ...]:
    """(result, argument) of a kernel for each of its results that the program's results have in
    the memory of an argument, where the kernel may write it there.
    """
    if site.path:
        return ()
    wanted = donated_pairs(program)
    return tuple(
        (r, a) for r, a in built.in_place if (site.results[r], site.arguments[a]) in wanted
    )


@cache
def built_here(kernel: Kernel, schedule: Schedule, target: Target) -> Built:
    """A kernel as code for a target; built once a process.

    Raises:
        HlotuneError: there is no code for it, or the schedule does not apply any more.
    """
    return build(compute_of(graph_of(kernel)), schedule, target)


@cache
def loaded_here(built: Built) -> Any:
    """A kernel in this process, as its backend has it; loaded once."""
    return backend_named(built.backend).load(built)


def constant(program: Program, site: Site, position: int) -> NDArray[Any]:
    """The value of a constant argument of a site; of a stack all parts, along a first axis.

    Raises:
        ProgramError: it is an argument of the program, which was loaded without values.
    """
    known = dict(site.constants).get(position)
    if isinstance(known, Stack):
        shape = graph_of(site.kernel).argument_types[position].shape
        return _value(program, site, position, known.source).reshape(-1, *shape)
    return _value(program, site, position, known)


def _value(
    program: Program, site: Site, position: int, known: Literal | int | None
) -> NDArray[Any]:
    if isinstance(known, Literal):
        return known.array()
    leaves = jax.tree.leaves(program.example_args or ())
    place = program.graph.arguments.index(known) if known is not None else len(leaves)
    if place >= len(leaves) or isinstance(leaves[place], jax.ShapeDtypeStruct):
        raise ProgramError(
            f"expected the value of constant argument {position} of {site.name}, got none; "
            "freeze the parameters, or load the program with example arguments"
        )
    return np.asarray(leaves[place])


@dataclass(frozen=True, slots=True)
class Combined:
    """A program with replacements in it, and the values of its hidden arguments."""

    module: mlir.Module
    hidden: tuple[NDArray[np.uint8], ...]


def combined(program: Program, replacements: Sequence[Replacement]) -> Combined:
    if not replacements:
        return Combined(mlir.parse(program.bytecode), ())
    spliced = splice(
        program, {r.site: r.text for r in replacements}, {r.site: r.stacks for r in replacements}
    )
    if any(r.built is not None and r.built.in_place for r in replacements):
        order_writes(spliced.module, TARGET)
    waiting = {r.site: iter(r.packed) for r in replacements}
    return Combined(spliced.module, tuple(next(waiting[site]) for site, _ in spliced.hidden))


def assembled(
    program: Program, replacements: Sequence[Replacement], target: Target
) -> JittedProgram:
    """The program with these replacements as a jitted function of its own signature."""
    whole = combined(program, replacements)
    hidden = merge_calls(whole.module, whole.hidden)
    return jitted(program, whole.module, hidden_values=hidden, platform=target.platform)
