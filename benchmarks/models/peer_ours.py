"""XLA's side and ours, in one process: `jax.jit`, and what `hlotune` makes of records.

    xla            the program as its example has it, with constant weights if it has any
    xla arguments  the network with its weights as arguments, of those that the peers run
    options        the program with the options of XLA that `tune xla` found for it
    tuned          the program with the kernels that the database of the run has for it
    nudged         as xla, with inputs that are moved by one rounding; it is not timed

A step of training donates its state, which its first result replaces, on both sides.  The model
that is asked for is the database of the run of the tuner.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

import hlotune
from benchmarks.kernels.peer import Array, Prepared, serve
from benchmarks.models.examples import EXAMPLES, Example
from benchmarks.models.networks import NETWORKS
from benchmarks.peers.worker import Unsupported
from hlotune.deploy.conditioning import DRAWS, nudged
from hlotune.deploy.plain_values import distance
from hlotune.deploy.replacement import Replacement, assembled, built_here, replacement
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import Program
from hlotune.hlo.sites.sites import sites
from hlotune.schedules.errors import HlotuneError
from hlotune.schedules.spaces.xla_options.table import Value
from hlotune.tuning_logs.best_options import best_options
from hlotune.tuning_logs.database import Database

Called = tuple[Callable[..., Any], str]
"""What a user calls, and what has to be said of it."""


class Ours:
    version = f"{hlotune.__version__} with jaxlib {version('jaxlib')}"

    def prepare(
        self, case: str, form: str, inputs: Sequence[Array], types: Sequence[str], model: str
    ) -> Prepared:
        example = EXAMPLES[case]
        if form == "arguments":
            if case not in NETWORKS:
                raise Unsupported("an example of one form")
            network = NETWORKS[case]
            return prepared(example, jax.jit(network.forward), (network.weights(), network.x()))
        if form == "nudged":
            return nudged_xla(example)
        if form != "xla" and not Path(model).exists():
            raise Unsupported("it was not tuned")
        function, given = example.made()
        if form == "tuned":
            made, note = ours(example, Path(model))
        else:
            options = found_options(Path(model)) if form == "options" else {}
            made, note = default(example, function, options), said_options(options)
        return prepared(example, made, given, note)


def nudged_xla(example: Example) -> Prepared:
    """What XLA gives for nudged inputs, each result of the draw that takes it furthest.

    Raises Unsupported where roundings decide nothing.
    """
    if not example.has_ties:
        raise Unsupported("an example without ties")
    function, given = example.made()
    leaves, tree = jax.tree.flatten(given)
    jitted_function = jax.jit(function)
    exact = _stored_results(jitted_function(*given))
    furthest = exact
    for seed in range(DRAWS):
        found = _stored_results(jitted_function(*jax.tree.unflatten(tree, nudged(leaves, seed))))
        furthest = [
            max(best, x, key=partial(distance, e))
            for e, best, x in zip(exact, furthest, found, strict=True)
        ]
    return Prepared(lambda: None, lambda: furthest)


def default(
    example: Example, function: Callable[..., Any], options: Mapping[str, Value]
) -> Callable[..., Any]:
    """`jax.jit` of the function of an example, or of the program without its large weights."""
    if example.weights_outside:
        return jitted(example.program(), compiler_options=options or None)
    found: Callable[..., Any] = example.jitted(function, options)
    return found


def found_options(database: Path) -> Mapping[str, Value]:
    """The options of XLA that are proven faster than none.

    Raises Unsupported where there are none.
    """
    with Database(database, create=False) as records:
        runs = records.query("select * from runs order by started")
        found = best_options(records, runs[0]) if runs else None
    if found is None or found.low <= 1:
        raise Unsupported("no options of XLA are proven faster than none")
    return found.options


def said_options(options: Mapping[str, Value]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(options.items()))


def ours(example: Example, database: Path) -> Called:
    """The program with kernels of ours; what XLA keeps is `jax.jit` of the function."""
    program = example.program()
    if example.schedules_of:
        return borrowed(program, EXAMPLES[example.schedules_of].program(), database)
    made = hlotune.apply(program, database=database)
    if made.sites:
        return made, ""
    reasons = "; ".join(dict.fromkeys(e.reason for e in made.explain()))
    return example.jitted(example.made()[0]), f"left to XLA: {reasons or 'no kernel was cut'}"


def borrowed(program: Program, smaller: Program, database: Path) -> Called:
    """A program with the schedules that were found for another batch of it, site by site."""
    found = hlotune.apply(smaller, database=database)
    schedules = {e.site.name: e.schedule for e in found.explain() if e.status == "tuned"}
    made: list[Replacement] = []
    refused: list[str] = []
    for site in sites(program):
        schedule = schedules.get(site.name)
        if schedule is None:
            continue
        try:
            built = built_here(site.kernel, schedule, found.target)
            made.append(replacement(program, site, built))
        except HlotuneError as error:
            refused.append(f"{site.label}: {error}")
    note = f"{len(made)} of {len(schedules)} sites have the schedules of another batch"
    return assembled(program, made, found.target), "; ".join([note, *refused[:3]])


def prepared(
    example: Example, function: Callable[..., Any], given: Sequence[Any], note: str = ""
) -> Prepared:
    """Calls on arrays that are on the device; of a training step, each on the state behind the
    last."""
    arguments = [jax.tree.map(jax.device_put, x) for x in given]

    def call() -> Any:
        made = function(*arguments)
        for x in jax.tree.leaves(made):
            x.block_until_ready()
        if example.trains:
            arguments[0] = made[0]
        return made

    first = _stored_results(call())
    return Prepared(call, lambda: first, note)


def _stored_results(made: Any) -> list[Array]:
    return [_stored(np.array(x)) for x in jax.tree.leaves(made)]


def _stored(array: Array) -> Array:
    """The array as files of NumPy have it: bf16 as f32."""
    return array.astype(np.float32) if array.dtype == jax.numpy.bfloat16 else array


if __name__ == "__main__":
    serve(Ours())
