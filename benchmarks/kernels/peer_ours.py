"""XLA's side and ours, in one process: `jax.jit`, and what `hlotune.apply` makes of records.

Plain loops over as many bytes (`plain.py`) run in it too.  It is started as `python -m
benchmarks.kernels.peer_ours FOLDER`, with the databases of the cases.  Where arguments are donated,
ours is `hlotune.jit`.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

import hlotune
from benchmarks.kernels import plain
from benchmarks.kernels.case import Case
from benchmarks.kernels.cases import CASES
from benchmarks.kernels.onnx_graph import restored, stored
from benchmarks.kernels.peer import Array, Prepared, serve
from benchmarks.kernels.tuning import database_of, first_database_of
from benchmarks.peers.worker import Unsupported


class Ours:
    version = f"{hlotune.__version__} with jaxlib {version('jaxlib')}"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(
        self, case: str, form: str, inputs: Sequence[Array], types: Sequence[str], model: str
    ) -> Prepared:
        found = CASES[case]
        if form in plain.FORMS:
            return plain_loop(form, found)
        jax.config.update("jax_enable_x64", found.has_wide_numbers)  # type: ignore[no-untyped-call]
        given = [jax.device_put(restored(x, t)) for x, t in zip(inputs, types, strict=True)]
        if form == "xla":
            return prepared(found, found.compiled(), given)
        where = first_database_of if form == "first" else database_of
        database = where(self.folder, case)
        if (
            not database.exists()
            and form == "tuned"
            and first_database_of(self.folder, case).exists()
        ):
            raise Unsupported("it was not tuned beyond its first candidates")
        function, note = tuned(found, given, database)
        return prepared(found, function, given, note)


def tuned(case: Case, given: Sequence[Any], database: Path) -> tuple[Callable[..., Any], str]:
    """What a user calls, and why XLA keeps it; "" where a kernel of ours is in it."""
    if not database.exists():
        return case.compiled(), "left to XLA: nothing was tuned"
    program = hlotune.load(case.compiled(), *given)
    made = hlotune.apply(program, database=database)
    if not made.sites:
        reasons = "; ".join(dict.fromkeys(e.reason for e in made.explain()))
        return case.compiled(), f"left to XLA: {reasons or 'no kernel was cut'}"
    if not case.donated:
        return made, ""
    donated = tuple(range(case.donated))
    return hlotune.jit(case.jax, database=database, donate_argnums=donated), ""


def prepared(
    case: Case, function: Callable[..., Any], given: Sequence[Any], note: str = ""
) -> Prepared:
    call = blocking(function, given, case.donated)
    first = [stored(np.array(x)) for x in call()]
    return Prepared(call, lambda: first, note)


def plain_loop(form: str, case: Case) -> Prepared:
    """A plain loop of as many bytes, which says how many these are; in place where the case is."""
    moved = case.argument_bytes + case.result_bytes
    if form in plain.JITTED:
        made = plain.jitted(form, moved, in_place=case.donated > 0)
        size = made.bytes
        call: Callable[[], object] = blocking(made.function, [made.argument], int(made.donates))
    else:
        call, size = plain.loop(form, moved)
    call()
    return Prepared(call, list, str(size))


def blocking(
    function: Callable[..., Any], given: Sequence[Any], donated: int
) -> Callable[[], list[Any]]:
    """Calls that return when all results are there; the first of these replace what is donated."""
    state, rest = list(given[:donated]), given[donated:]

    def call() -> list[Any]:
        made = jax.tree.leaves(function(*state, *rest))
        for x in made:
            x.block_until_ready()
        state[:] = made[:donated]
        return made

    return call


if __name__ == "__main__":
    serve(Ours(Path(sys.argv[1])))
