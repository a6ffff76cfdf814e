"""What stands in the place of a site: a call of a kernel of ours, with its packed constants."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from hlotune.codegen.build import build
from hlotune.codegen.built import Built
from hlotune.codegen.runtime import dispatcher
from hlotune.codegen.runtime.hosts import serial
from hlotune.codegen.runtime.loader import Loaded, load
from hlotune.hlo.calling.callable import JittedProgram, jitted
from hlotune.hlo.calling.splice import splice
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import Program
from hlotune.hlo.graph import Literal
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.sites.sites import Site
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.verification.prepacking import prepack
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

    @property
    def packed_bytes(self) -> int:
        return sum(p.nbytes for p in self.packed)


def replacement(program: Program, site: Site, built: Built) -> Replacement:
    """A built kernel of a site, bound in this process.

    Raises:
        HlotuneError: the kernel cannot be loaded, or packs a constant whose value is unknown.
    """
    loaded = bound(built)
    graph, packed = graph_of(site.kernel), built.packed
    positions = sorted(p.argument for p in packed)
    values = [
        constant(program, site, k) if k in positions else np.empty(0)
        for k in range(len(graph.arguments))
    ]
    forms = prepack(loaded, values, serial())
    text = dispatcher.replacement(
        built.key,
        graph.argument_types,
        graph.result_types,
        built.scratch_bytes,
        {p.argument: p.bytes for p in packed},
    )
    return Replacement(site, text, tuple(forms[k].copy() for k in positions), built)


@cache
def built_here(kernel: Kernel, schedule: Schedule, target: Target) -> Built:
    """A kernel as machine code; built once a process.

    Raises:
        HlotuneError: there is no code for it, or the schedule does not apply any more.
    """
    return build(compute_of(graph_of(kernel)), schedule, target)


@cache
def bound(built: Built) -> Loaded:
    """A kernel in memory, which calls of its key run from now on; loaded once a process."""
    loaded = load(built)
    dispatcher.bind(built.key, loaded)
    return loaded


def constant(program: Program, site: Site, position: int) -> NDArray[Any]:
    """The value of a constant argument of a site.

    Raises:
        ProgramError: it is an argument of the program, which was loaded without values.
    """
    known = dict(site.constants).get(position)
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

    bytecode: bytes
    hidden: tuple[NDArray[np.uint8], ...]


def combined(program: Program, replacements: Sequence[Replacement]) -> Combined:
    if not replacements:
        return Combined(program.bytecode, ())
    spliced = splice(program, {r.site: r.text for r in replacements})
    waiting = {r.site: iter(r.packed) for r in replacements}
    return Combined(spliced.bytecode, tuple(next(waiting[site]) for site, _ in spliced.hidden))


def assembled(program: Program, replacements: Sequence[Replacement]) -> JittedProgram:
    """The program with these replacements as a jitted function of its own signature."""
    whole = combined(program, replacements)
    return jitted(program, whole.bytecode, hidden_values=whole.hidden)
