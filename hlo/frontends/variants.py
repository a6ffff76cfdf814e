"""A program once for each combination of sizes of its symbolic dimensions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.frontends.symbolic_sizes import combinations


def load_variants(
    source: Callable[..., Any] | str | Path,
    *,
    dims: Mapping[str, Sequence[int]],
    argument_types: Sequence[str] = (),
    trips: Mapping[str, Sequence[float]] | None = None,
) -> tuple[Program, ...]:
    """The program for each combination of sizes, as `load` reads it for one.

        programs = hlotune.load_variants("model.onnx", dims={"batch": (1, 8, 32)})

    Kernels that are the same in several of them have their records in common.  `save_artifact`
    takes the tuned functions of all of them, and the artifact calls the one of the shapes that it
    is given.

    Raises:
        ProgramError: as of `load`; or there are no sizes of some dimension, or too many in all.
    """
    found = []
    for sizes in combinations(dims):
        program = load(source, argument_types=argument_types, dims=sizes, trips=trips)
        label = " ".join(f"{name}={size}" for name, size in sizes.items())
        found.append(replace(program, name=f"{program.name} {label}".strip()))
    return tuple(found)
