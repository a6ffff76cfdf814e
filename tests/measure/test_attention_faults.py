"""Faults planted in kernels of attention: verification finds each of them and says where."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from hlotune.codegen.built import Built
from hlotune.codegen.llvm.compile import compile_object
from hlotune.codegen.llvm.emit import emit
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import Site, sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import TARGETS
from hlotune.measure.trial import Failure
from hlotune.measure.verification.references import References
from hlotune.measure.verification.verify import Verdict, verify
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.ir.compute import Stage
from hlotune.schedules.ir.expr import Affine, Apply, Const, Expr, map_all_loads
from hlotune.schedules.ir.monoids import MAX
from hlotune.schedules.ir.nest import LoopNest
from hlotune.schedules.patterns.attention import SCORES, VALUES
from tests.support.attentions import PROGRAMS, f32

TARGET = TARGETS["x86-64"]
Change = Callable[[Stage], Stage]


def sharp(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Causal with few keys and large scores: some rows have large negative ones alone."""
    scores = 32.0 * jnp.einsum("htd,hsd->hts", q, k)
    allowed = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jnp.einsum("hts,hsd->htd", jax.nn.softmax(jnp.where(allowed, scores, -1e30)), v)


def masked_rows(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Nothing is left of the first row: all its keys count alike."""
    scores = jnp.einsum("htd,hsd->hts", q, k)
    allowed = jnp.tril(jnp.ones(scores.shape[-2:], bool), -1)
    return jnp.einsum("hts,hsd->htd", jax.nn.softmax(jnp.where(allowed, scores, -1e30)), v)


SHAPES = (f32(3, 12, 32), f32(3, 12, 32), f32(3, 12, 8))


def site(function: Callable[..., jax.Array], shapes: Sequence[object] = SHAPES) -> Site:
    return next(s for s in sites(load(function, *shapes)) if s.pattern == "attention")


SITE, MERGED = site(sharp), site(*PROGRAMS["merged"])
REFERENCES, MERGED_REFERENCES = References(SITE.kernel), References(MERGED.kernel)


def checked(found: Site, references: References, change: Change | None = None) -> object:
    compute = compute_of(graph_of(found.kernel))
    space = space_of(compute, TARGET)
    schedule = space.schedule(space.heuristic())
    nest = replay(compute, schedule, TARGET)
    if change is not None:
        changed = [replace(s, stage=change(s.stage)) for s in nest.stages]
        assert [s.stage for s in changed] != [s.stage for s in nest.stages]
        nest = LoopNest(nest.compute, nest.target, tuple(changed))
    emitted = emit(nest)
    built = Built(compile_object(emitted.text, TARGET), emitted.scratch_bytes, (), 0, 2)
    return verify(found.kernel, replace(built, algorithm=schedule.algorithm),
                  references=references)  # fmt: skip


def _with(change: Callable[[Expr], Expr]) -> Change:
    """A change of each operation, from the outermost inwards."""

    def changed(e: Expr) -> Expr:
        e = change(e)
        return Apply(e.op, tuple(map(changed, e.args)), e.dtype) if isinstance(e, Apply) else e

    return lambda s: replace(s, values=tuple(map(changed, s.values)))


def _strictly(e: Expr) -> Expr:
    is_mask = isinstance(e, Apply) and e.op == "compare_GE"
    return Apply("compare_GT", e.args, e.dtype) if is_mask and isinstance(e, Apply) else e


def _neighbours_sum(s: Stage) -> Stage:
    if s.name != "out":
        return s
    sums = next(x for x in s.loads if "f" not in x.axes)
    other = replace(sums, index=(sums.index[0], Affine.axis("t") + -1))
    return replace(s, values=map_all_loads(s.values, {sums: other}))


def _one_key_less(s: Stage) -> Stage:
    if s.name != "values":
        return s
    (keys,) = s.reduce
    return replace(s, reduce=(replace(keys, extent=keys.extent - 1),))


def _from_zero(s: Stage) -> Stage:
    if s.combine is not MAX:
        return s
    zeros = lambda dtypes: tuple(Const(0, dtype) for dtype in dtypes)  # noqa: E731
    return replace(s, combine=replace(MAX, identities=zeros))


def _first_head(stage: str, tensor: str) -> Change:
    """One stage reads what belongs to the first head for all of them."""

    def change(s: Stage) -> Stage:
        moved = {
            x: replace(x, index=(*x.index[:2], Affine(), x.index[3]))
            for x in s.loads if x.tensor.startswith(tensor)
        }  # fmt: skip
        return replace(s, values=map_all_loads(s.values, moved)) if s.name == stage else s

    return change


def _other_batch(s: Stage) -> Stage:
    if s.name != "out":
        return s
    (store,) = s.stores
    tokens = Affine.of({"b0": -21, "t": 1}, 21)
    return replace(s, stores=(replace(store, index=(tokens, store.index[1])),))


FAULTS: dict[str, tuple[Change, str]] = {
    "the mask is off by one": (_with(_strictly), "elements wrong, worst at"),
    "a row is divided by its neighbour's sum": (_neighbours_sum, "elements wrong, worst at"),
    "the last key is lost": (_one_key_less, "elements wrong, worst at"),
    "the maximum begins at zero": (_from_zero, "expected 0, got nan"),
}  # fmt: skip


FAULTS_OF_MERGED: dict[str, Change] = {
    "all heads have the queries of the first": _first_head(SCORES, "a1"),
    "all heads have the keys of the first": _first_head("a2.packed", "a2"),
    "all heads have the values of the first": _first_head(VALUES, "a0"),
    "results of two batches change places": _other_batch,
}


@pytest.mark.parametrize("name", ["apart", "merged"])
def test_the_kernel_without_a_fault_is_right(name: str) -> None:
    given = {"apart": (SITE, REFERENCES), "merged": (MERGED, MERGED_REFERENCES)}
    found = checked(*given[name])
    assert isinstance(found, Verdict), found


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found(name: str) -> None:
    change, says = FAULTS[name]
    found = checked(SITE, REFERENCES, change)
    assert isinstance(found, Failure), found
    assert says in found.message, found.message


@pytest.mark.parametrize("name", FAULTS_OF_MERGED)
def test_each_fault_of_merged_heads_is_found(name: str) -> None:
    found = checked(MERGED, MERGED_REFERENCES, FAULTS_OF_MERGED[name])
    assert isinstance(found, Failure), found
    assert "elements wrong, worst at" in found.message, found.message


def test_a_row_with_nothing_left_is_what_the_program_says() -> None:
    found = site(masked_rows)
    assert not any(s.ends for s in compute_of(graph_of(found.kernel)).stages)
    verdict = checked(found, References(found.kernel))
    assert isinstance(verdict, Verdict), verdict
