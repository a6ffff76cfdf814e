"""All kernels that are cut out of a program, held against the oracle on guarded buffers."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from hlotune.codegen.build import build
from hlotune.codegen.runtime.hosts import serial
from hlotune.codegen.runtime.loader import KERNEL
from hlotune.codegen.runtime.loader import load as load_code
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.graph import Graph, numpy_dtype
from hlotune.hlo.oracle import Oracle
from hlotune.hlo.oracle.comparison import compare
from hlotune.hlo.sites.sites import Site, sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import host_target
from hlotune.measure.verification.buffers import guarded, rounded
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.in_place import Pair, in_place
from hlotune.schedules.steps.schedule import Schedule
from tests.support.random_programs import Array, Random, drawn_array


def loaded(function: Callable[..., Any], *arguments: Array) -> Program:
    with jax.enable_x64(True):
        return load(function, *arguments)


def wrong_results(program: Program, rng: Random, *, configs: int = 0) -> list[str]:
    """What is wrong of each kernel by its first candidates and by others drawn at random.

    Kernels that are left to the default compiler have no results. Results are also computed in
    the memory of arguments, where a nest lets them lie there.
    """
    return [
        f"{site.name} {words}" for site in sites(program) for words in _wrong(site, rng, configs)
    ]


def _wrong(site: Site, rng: Random, configs: int) -> Iterator[str]:
    graph = graph_of(site.kernel)
    try:
        compute = compute_of(graph)
        space = space_of(compute, host_target())
    except UnsupportedKernel:
        return
    kinds = [graph.types[a] for a in graph.arguments]
    values = [drawn_array(rng, k.shape, numpy_dtype(k.dtype), 0.01) for k in kinds]
    oracle = Oracle(graph, values)
    drawn = space.sample(configs, rng) if configs else space.firsts()[:0]
    some = np.concatenate([space.firsts(), drawn])
    for config in some[space.legal(some)]:
        schedule = space.schedule(config)
        shared = _disjoint(in_place(replay(compute, schedule, host_target())))
        for pairs in ((), shared) if shared else ((),):
            got = called_in_place(compute, schedule, values, pairs)
            where = " over its arguments" if pairs else ""
            yield from (f"{words}{where}" for words in _differences(oracle, graph, got))


def _disjoint(pairs: tuple[Pair, ...]) -> tuple[Pair, ...]:
    """Pairs that have no argument and no result in common, so that all are used in one call."""
    found = dict[int, int]()
    for result, argument in pairs:
        if result not in found and argument not in found.values():
            found[result] = argument
    return tuple(found.items())


def called_in_place(
    compute: Compute, schedule: Schedule, arguments: list[Array], pairs: tuple[Pair, ...]
) -> list[Array]:
    """The results of one call on guarded buffers, some of them those of arguments."""
    code = load_code(build(compute, schedule, host_target()))
    given = [guarded(a.nbytes, "behind") for a in arguments]
    for buffer, value in zip(given, arguments, strict=True):
        buffer.data[...] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    results = [guarded(t.bytes, "behind") for t in compute.results]
    for result, argument in pairs:
        results[result] = given[argument]
    scratch = guarded(rounded(code.built.scratch_bytes), "behind")
    into, out = ([b.address for b in part] for part in (given, results))
    assert code.call(KERNEL, into, out, scratch.address, serial()) == 0
    assert all(b.intact for b in (*given, *results, scratch)), "a write beside a buffer"
    kinds = zip(results, compute.results, strict=True)
    return [b.array(t.shape, numpy_dtype(t.dtype)) for b, t in kinds]


def _differences(oracle: Oracle, graph: Graph, got: list[Array]) -> Iterator[str]:
    for k, (kind, result) in enumerate(zip(graph.result_types, got, strict=True)):
        reference = oracle.region(k, tuple((0, n) for n in kind.shape))
        shaped = result.reshape(kind.shape).astype(numpy_dtype(kind.dtype))
        wrong = compare(reference, shaped, factor=4.0, exact=reference.exact)
        if wrong is not None:
            yield f"result {k}: {wrong}"
