"""The child that tunes and times whole models: it owns the device."""

import importlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.device.child import serve
from benchmarks.device.crew import BROKEN
from benchmarks.device.measuring import L2_BYTES, MOST_SETS, ROUND_S, TRIAL_S
from benchmarks.device.programs import errors
from hlotune.codegen.backend import Signature
from hlotune.codegen.pallas.backend import module_of
from hlotune.codegen.pallas.elements import DTYPES
from hlotune.codegen.pallas.reshaped import with_types
from hlotune.deploy.replacement import assembled, built_here, replacement
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.graph import Graph
from hlotune.hlo.mlir.versions import loaded as compiled_for
from hlotune.hlo.sites.sites import Site, sites
from hlotune.measure.timing.device_times import times
from hlotune.measure.timing.xla import default_text
from hlotune.measure.verification.inputs import draw
from hlotune.schedules.spaces.gpu.searched import SearchedSpace, blocks_name
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.gpu import gpu_target_of
from hlotune.schedules.targets.target import Target
from hlotune.search.tasks import Covered, Task, tasks

Answer = Callable[[dict[str, Any]], dict[str, Any]]
Factory = tuple[Callable[..., Any], tuple[Any, ...]]
MOST_CANDIDATES = 40
TOGETHER = min(8, max(2, os.cpu_count() or 1))
"""Candidates that are compiled at the same time: XLA's compiler leaves Python's lock alone."""
ROUNDS = 5
LIMIT = 3e-2
"""Largest error of a result against XLA's, of the difference's norm over the norm."""


def resnet18() -> Factory:
    """With weights as arguments, for one image."""
    return _resnet(18)


def resnet50() -> Factory:
    """With weights as arguments, for one image."""
    return _resnet(50)


def _resnet(depth: int) -> Factory:
    from examples.layers import image
    from examples.resnet import forward, parameters

    return forward, (parameters(depth), image(1, 224, 3))


def bert_block() -> Factory:
    """One layer of BERT-base, 128 tokens."""
    from examples.bert_base import forward, model

    made: Any = model()[1]
    layers, x = made
    return lambda layer, tokens: forward([layer], tokens), (layers[0], x)


def bert_base() -> Factory:
    """BERT-base whole, 128 tokens."""
    from examples.bert_base import model

    made: Any = model()
    return made[0], tuple(made[1])


def rows() -> Factory:
    """Kernels of rows that programs have and no case does, each of 8192 by 4096 elements."""

    def function(x: jax.Array, scale: jax.Array, shift: jax.Array) -> tuple[jax.Array, ...]:
        wide = x.astype(jnp.float32)
        root = x * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-6).astype(x.dtype)
        masked = jax.nn.softmax(jnp.where(x > shift, x * 0.125, -1e9), axis=-1)
        return root * scale, masked, jax.nn.gelu(x + shift), jax.nn.logsumexp(wide, axis=-1)

    return function, _normal((8192, 4096), (4096,), (4096,))


def pooling() -> Factory:
    """Maxima and means of windows, as ResNets have them behind their first layer."""

    def function(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        low = jnp.asarray(-jnp.inf, x.dtype)
        window = (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0))
        return jax.lax.reduce_window(x, low, jax.lax.max, *window), x.mean(axis=(1, 2))

    return function, _normal((32, 112, 112, 64))


def biased_attention() -> Factory:
    """Attention of 16 heads with a bias of each pair of query and key."""

    def function(q: jax.Array, k: jax.Array, v: jax.Array, bias: jax.Array) -> jax.Array:
        return jax.nn.dot_product_attention(q, k, v, bias=bias)

    return function, _normal(*((1, 2048, 16, 64),) * 3, (1, 16, 2048, 2048))


def _normal(*shapes: tuple[int, ...]) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    return tuple(rng.standard_normal(s, dtype=np.float32) for s in shapes)


def gpt2_block() -> Factory:
    """GPT-2 with one of its layers, 1024 tokens, without the cache that it leaves."""
    from examples.gpt2 import FULL, parameters, read

    tokens = np.arange(FULL.positions, dtype=np.int32) % FULL.words
    weights = parameters(replace(FULL, layers=1))
    return lambda given, words: read(given, words, FULL.heads)[0], (weights, tokens)


def small() -> Factory:
    """A layer with a norm behind it, for a run without a GPU."""
    rng = np.random.default_rng(0)
    w, b, x = (rng.normal(size=s).astype(np.float32) for s in ((64, 512), (512,), (512, 64)))

    def layer(w: jax.Array, b: jax.Array, x: jax.Array) -> jax.Array:
        y = jnp.maximum(x @ w + b, 0.0)
        return y - y.mean(-1, keepdims=True)

    return layer, (w, b, x)


@dataclass(frozen=True, slots=True, eq=False)
class _Loaded:
    """A model in this process."""

    program: Program
    tasks: tuple[Task, ...]
    target: Target


class Models:
    """One model at a time."""

    def __init__(self, target: Callable[[], Target]) -> None:
        self._target = target
        self._loaded: _Loaded | None = None

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        if question["do"] == "model":
            return self._load(question["factory"], question["element"], question["batch"])
        assert self._loaded is not None, "a model is loaded first"
        if question["do"] == "kernel":
            task = self._loaded.tasks[question["number"]]
            return _best(task, self._loaded.target, time.monotonic() + question["seconds"])
        schedules = {int(n): Schedule.from_json(s) for n, s in question["winners"].items()}
        return _whole(self._loaded, schedules)

    def _load(self, factory: str, element: str, batch: int) -> dict[str, Any]:
        """The kernels, those first whose default probably takes most of the program's time."""
        module, name = factory.split(":")
        function, arguments = getattr(importlib.import_module(module), name)()
        *rest, last = jax.tree.map(lambda x: _as_element(x, element), tuple(arguments))
        if batch > 1:
            last = np.repeat(last, batch, axis=0)
        program, target = load(function, *rest, last), self._target()
        found, skipped = tasks(sites(program), target)
        ordered = sorted(found, key=lambda t: -t.weight * _guess_s(t))
        self._loaded = _Loaded(program, tuple(ordered), target)
        labels = [t.label for t in ordered]
        return {"kernels": labels, "left": [f"{s.label}: {s.reason}" for s in skipped][:40]}


def _as_element(x: Any, element: str) -> Any:
    array = np.asarray(x)
    return array.astype(DTYPES[element]) if array.dtype.kind == "f" else array


def _guess_s(task: Task) -> float:
    space = task.space
    assert isinstance(space, SearchedSpace)
    return float(space.blocks.seconds(space.blocks.propose(1))[0])


def _best(task: Task, target: Target, until: float) -> dict[str, Any]:
    """The fastest right schedule of a kernel, beside XLA's default.

    `refused` counts the candidates that a compiler or the device refused, and `refusal` says why
    the last of them was.
    """
    default = _executed(default_text(task.kernel), target)
    sets = _operands(graph_of(task.kernel), target)
    wanted = default(*sets[0])
    best: dict[str, Any] = {"right": False, "tried": 0, "wrong": 0, "refused": 0}
    best["default_s"] = times(default, sets, *TRIAL_S).seconds
    for schedule, made in _candidates(task, target):
        if best["tried"] and time.monotonic() > until:
            break
        best["tried"] += 1
        try:
            if isinstance(made, Exception):
                raise made
            right = error_of(made(*sets[0]), wanted) < LIMIT
            seconds = times(made, sets, *TRIAL_S).seconds if right else math.inf
        except Exception as error:  # a compiler's, for any reason; not where the device is lost
            if any(sign in str(error) for sign in BROKEN):
                raise
            best |= {"refused": best["refused"] + 1}
            best["refusal"] = " ".join(str(error).split())[:300]
            continue
        best["wrong"] += not right
        if seconds < best.get("seconds", math.inf):
            best |= {"right": True, "seconds": seconds, "schedule": schedule.to_json()}
    return best


Made = Callable[..., "Together"] | Exception
"""A compiled candidate, or why it is none."""


def _candidates(task: Task, target: Target) -> Iterator[tuple[Schedule, Made]]:
    """The first schedules of a kernel's space, some of them compiled at the same time."""
    space, graph = task.space, graph_of(task.kernel)
    assert isinstance(space, SearchedSpace)
    signature = Signature(tuple(graph.argument_types), tuple(graph.result_types))

    def made(schedule: Schedule) -> Made:
        try:
            built = built_here(task.kernel, schedule, target)
            return _executed(with_types(module_of(built)[1], signature), target)
        except Exception as error:  # raised again where the candidate's turn comes
            return error

    configs = space.blocks.propose(MOST_CANDIDATES)
    schedules = [Schedule(blocks_name(*space.blocks.named(c), space.algorithm)) for c in configs]
    with ThreadPoolExecutor(TOGETHER) as threads:
        for first in range(0, len(schedules), TOGETHER):
            some = schedules[first : first + TOGETHER]
            yield from zip(some, threads.map(made, some), strict=True)


def _executed(text: str, target: Target) -> Callable[..., "Together"]:
    execute = compiled_for(text, target.platform).execute
    return lambda *operands: Together(execute(list(operands)))


class Together(list[jax.Array]):
    """The results of one call."""

    def block_until_ready(self) -> None:
        for result in self:
            result.block_until_ready()


def _operands(graph: Graph, target: Target) -> list[tuple[jax.Array, ...]]:
    """Sets of operands on the device that together exceed its last cache."""
    values = draw(graph, "normal", np.random.default_rng(0))
    device = jax.devices(target.platform)[0]
    moved = sum(t.bytes for t in (*graph.argument_types, *graph.result_types))
    count = max(1, min(MOST_SETS, math.ceil(3 * L2_BYTES / max(1, moved))))
    return [tuple(jax.device_put(v, device) for v in values) for _ in range(count)]


def error_of(results: Sequence[jax.Array], wanted: Sequence[jax.Array]) -> float:
    """The largest of all results: the norm of the difference over the norm of what is wanted.

    Elements that are wanted to be infinite or NaN (roots of inputs drawn at random) have to be the
    same, and are left out.  The error is infinite where one is not, or where a result is infinite
    or NaN at another element; it is NaN where some result has no element to be compared.
    """
    pairs = zip(results, wanted, strict=True)
    return float(np.max([_one_error(*map(jnp.asarray, pair)) for pair in pairs]))  # NaN stays


def _one_error(result: jax.Array, wanted: jax.Array) -> float:
    known = jnp.isfinite(wanted)
    alike = (result == wanted) | (jnp.isnan(result) & jnp.isnan(wanted))
    same = jnp.where(known, jnp.isfinite(result), alike)
    if not same.all():
        return math.inf
    parts = (jnp.where(known, x, jnp.zeros_like(x)) for x in (result, wanted))
    return float(errors(*parts)[0])


def _whole(model: _Loaded, schedules: dict[int, Schedule]) -> dict[str, Any]:
    """The program with these schedules, beside the default; both in turns."""
    by_kernel = {model.tasks[n].kernel: s for n, s in schedules.items()}
    chosen, covered = list[Site](), Covered()
    for site in sites(model.program):
        if site.kernel in by_kernel and not covered.overlaps(site):
            chosen.append(site)
            covered.add(site)
    built = {k: built_here(k, s, model.target) for k, s in by_kernel.items()}
    made = [replacement(model.program, site, built[site.kernel]) for site in chosen]
    forms = [assembled(model.program, some, model.target) for some in ([], made)]
    device = jax.devices(model.target.platform)[0]
    assert model.program.example_args is not None
    arguments = jax.device_put(model.program.example_args, device)
    calls = [_flat(form) for form in forms]
    wanted, result = (call(*arguments) for call in calls)
    error = error_of(result, wanted)
    bursts: list[list[float]] = [[], []]
    for turn in range(ROUNDS):
        for k in (0, 1) if turn % 2 == 0 else (1, 0):
            bursts[k].append(times(calls[k], [tuple(arguments)], *ROUND_S).queue_s)
    default_s, seconds = (float(np.median(b)) for b in bursts)
    return {
        "right": error < LIMIT, "relative_error": error, "seconds": seconds,
        "default_s": default_s, "rounds_s": bursts[1], "default_rounds_s": bursts[0],
        "put_in": len(by_kernel), "sites": len(chosen),
    }  # fmt: skip


def _flat(form: Callable[..., Any]) -> Callable[..., Together]:
    return lambda *arguments: Together(jax.tree.leaves(form(*arguments)))


def _target_here() -> Target:
    return gpu_target_of(jax.devices()[0].device_kind)


def _or_end(answer: Answer) -> Answer:
    """Ends the process where it has lost its device: a new one gets it again."""

    def answered(question: dict[str, Any]) -> dict[str, Any]:
        try:
            return answer(question)
        except Exception as error:
            if any(sign in str(error) for sign in BROKEN):
                print(error, file=sys.stderr, flush=True)
                os._exit(3)
            raise

    return answered


if __name__ == "__main__":
    serve(_or_end(Models(_target_here).answer))
