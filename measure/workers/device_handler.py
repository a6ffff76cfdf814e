"""The runner's side of a worker process: it alone holds jax, verifies kernels and times them."""

import gc
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache, lru_cache, wraps
from itertools import accumulate
from typing import Any

from hlotune.codegen.backends import backend_named
from hlotune.codegen.built import Built
from hlotune.codegen.runtime.malloc_settings import give_back
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.mlir.versions import run_in_the_calling_thread
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.bench import Bench
from hlotune.measure.timing.core_sharing_probe import ALONE_S, GIVES_UP_S, NEVER_APART, Probe
from hlotune.measure.timing.jax_bench import JaxBench, compile_together
from hlotune.measure.timing.modes import fast_time_s
from hlotune.measure.timing.peaks import host_properties
from hlotune.measure.timing.share_of_peak import TURNS, peak, reading
from hlotune.measure.timing.sifting import Asked, How, met
from hlotune.measure.timing.timing import (
    DEFAULT_EFFORT,
    ONCE_S,
    Apart,
    Effort,
    Subject,
    always_apart,
    interleaved,
    sampled,
    settled,
)
from hlotune.measure.trial import CacheMode, Clock, Failure, Measurement
from hlotune.measure.verification.agreement import agreement
from hlotune.measure.verification.buffers import Pages
from hlotune.measure.verification.shelf import Shelf
from hlotune.measure.verification.verify import Verdict, verify
from hlotune.measure.workers.channel import Handler, Message
from hlotune.measure.workers.wire import from_outcome
from hlotune.schedules.errors import BuildError, TargetError
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.kinds import target_of
from hlotune.schedules.targets.target import Properties, Target

Json = Mapping[str, Any]
MOST_KEPT_BYTES = 128 << 20
"""A kernel whose operands take more does not keep its place when another one is measured."""
_better_form: dict[tuple[str, CacheMode], int] = {}
"""Which form of a default with long calls is the better one, by kernel and cache mode."""
_last_bench: list[Any] = []
"""Kernel and cache mode of the last request, and the bytes of its operands."""


def handlers() -> Mapping[str, Handler]:
    run_in_the_calling_thread()
    return {
        "properties": _properties,
        "compile": _total(_compile),
        "verify": _total(_verify),
        "measure": _total(_measure),
        "default": _total(_default),
        "agreement": _total(_agreement),
        "compare": _total(_compare),
        "beside": _total(_beside),
        "forget": _total(_forget),
    }


def _total(handler: Handler) -> Handler:
    """XLA may refuse anything for any reason; the worker lives on."""

    @wraps(handler)
    def answer(request: Message) -> Message:
        try:
            return handler(request)
        except Exception as error:
            said = " ".join(f"{type(error).__name__}: {error}".split())
            return Message(from_outcome(Failure("device", said[:1000])))

    return answer


def _properties(request: Message) -> Message:
    """The peaks, measured anew where that is asked for, and whether the probe has given up."""
    target = _settled(request.header)
    if not isinstance(target, CpuTarget):
        return Message({**asdict(_documented(target)), NEVER_APART: False})
    probe = _probe(target)
    if request.header.get("anew"):
        host_properties.cache_clear()
    settled(probe.apart, 1.5 * GIVES_UP_S)  # a peak of threads on one core is none
    return Message({**asdict(host_properties(target)), NEVER_APART: probe.gave_up})


def _documented(target: Target) -> Properties:
    if target.peaks is None:
        raise TargetError(f"expected peaks of {target.title}, and neither maker nor we have any")
    return target.peaks


def _compile(request: Message) -> Message:
    """Compiles kernels together, for a device whose compiler takes long."""
    header = request.header
    target, benches = _settled(header), dict[str, JaxBench]()
    for text in header["kernels"]:
        benches[text] = benches.get(text) or JaxBench(Kernel(text), target, header["cache"])
    builts = _builts(header["sizes"], request.blob)
    compile_together([(benches[k], b) for k, b in zip(header["kernels"], builts, strict=True)])
    return Message({"is": "compiled"})


def _verify(request: Message) -> Message:
    header = request.header
    _settled(header)
    built = Built.from_bytes(request.blob)
    verdict = _verdict(header, built, None, thorough=header["thorough"])
    if isinstance(verdict, Failure):
        return Message(from_outcome(verdict))
    return Message({"is": "verdict", **asdict(verdict)})


def _verdict(header: Json, built: Built, loaded: Any, *, thorough: bool) -> Verdict | Failure:
    kernel, numerics = Kernel(header["kernel"]), header["numerics"]
    return verify(
        kernel,
        built,
        numerics=numerics,
        thorough=thorough,
        references=_shelf().of(kernel, target_of(header["target"]).f32_operands(numerics)),
        loaded=loaded,
        pages=_pages(),
    )


def _measure(request: Message) -> Message:
    """Verifies, then times."""
    header = request.header
    target = _settled(header)
    built = Built.from_bytes(request.blob)
    try:
        loaded = backend_named(built.backend).load(built)
    except BuildError as error:
        return Message(from_outcome(Failure("build", str(error))))
    verdict = _verdict(header, built, loaded, thorough=False)
    if isinstance(verdict, Failure):
        return Message(from_outcome(verdict))
    bench = _bench(Kernel(header["kernel"]), target, header["cache"])
    subject = bench.candidate(built, loaded=loaded)
    effort = _effort(Effort(**header["effort"]), target)
    _forget_probe(target)
    found = Measurement(
        samples_s=sampled(
            subject,
            clock=header["clock"],
            best_s=header["best_s"],
            effort=effort,
            apart=_apart(target),
        ),
        clock=header["clock"],
        cache=header["cache"],
        numerics=verdict.numerics,
        error=verdict.error,
        relative_error=verdict.relative_error,
    )
    return Message({**from_outcome(found), ALONE_S: _alone_s(target)})


def _default(request: Message) -> Message:
    header = request.header
    target = _settled(header)
    bench = _bench(Kernel(header["kernel"]), target, header["cache"])
    clock, apart = header["clock"], _apart(target)
    effort = _effort(DEFAULT_EFFORT, target)
    forms = [
        sampled(form, clock=clock, effort=effort, apart=apart) for form in bench.default(clock)
    ]
    samples = min(forms, key=fast_time_s)
    if fast_time_s(samples) >= ONCE_S:
        _better_form[header["kernel"], header["cache"]] = forms.index(samples)
    found = Measurement(
        samples_s=samples, clock=header["clock"], cache=header["cache"], numerics="strict"
    )
    return Message(from_outcome(found))


def _agreement(request: Message) -> Message:
    """How far XLA's own result is off, where the oracle knows the kernel.

    Nobody says so of other devices than the processor: XLA rounds operands there.
    """
    header = request.header
    target, kernel = _settled(header), Kernel(header["kernel"])
    bench = _bench(kernel, target, header["cache"])
    if not isinstance(bench, Bench):
        return Message({"is": "agreement"})
    found = agreement(bench.own_results, _shelf().of(kernel))
    return Message({"is": "agreement", **(asdict(found) if found else {})})


def _compare(request: Message) -> Message:
    """Samples of the default and of each candidate, in rounds."""
    header = request.header
    target = _settled(header)
    bench = _bench(Kernel(header["kernel"]), target, header["cache"])
    clock, apart = header["clock"], _apart(target)
    known = _better_form.get((header["kernel"], header["cache"]))
    if known is None:
        default = _better(bench.default(clock), clock, apart)
    else:
        default = bench.default(clock, is_long=True, baked=known > 0)[known]
    subjects = [default, *_candidates(bench, clock, header["sizes"], request.blob)]
    found = met(
        subjects,
        Asked(header["pairs"], header["limit_s"], header["brief_s"]),
        How(clock=clock, effort=_effort(DEFAULT_EFFORT, target), apart=apart),
        header["staying"],
    )
    return Message({"is": "comparison", **asdict(found)})


def _beside(request: Message) -> Message:
    """Samples of a candidate, in rounds with what the machine does no faster, and its rates."""
    header = request.header
    target = _settled(header)
    if not isinstance(target, CpuTarget):
        raise TargetError(f"expected a CPU to run multiply-adds on, got {target.title}")
    bench = _bench(Kernel(header["kernel"]), target, header["cache"])
    subject = bench.candidate(Built.from_bytes(request.blob))
    other, work = _no_faster(header, target)
    samples, other_s = interleaved(
        [subject, other],
        pairs=header["pairs"], limit_s=header["limit_s"], effort=TURNS, apart=_apart(target),
    )  # fmt: skip
    rates = [work / s for s in other_s]
    return Message({"is": "beside", "samples_s": samples, "work_per_s": rates})


def _forget(request: Message) -> Message:
    """Frees operands, buffers and what the oracle gave, and the memory of earlier kernels."""
    for kept in (_made_bench, _pages, _shelf):
        kept.cache_clear()
    _last_bench.clear()
    gc.collect()
    give_back()
    return Message({"is": "forgotten"})


def _no_faster(header: Json, target: CpuTarget) -> tuple[Subject, int]:
    """Multiply-adds of a type, or a read of so many bytes, and how much of that a call does."""
    if "bytes" in header:
        return reading(header["bytes"], target)
    return peak(header["dtype"], target)


def _better(forms: tuple[Subject, ...], clock: Clock, apart: Apart) -> Subject:
    """The default's form with the least median, by a few calls in turns; of long calls by one."""
    if len(forms) == 1:
        return forms[0]
    first_s = [form.call() for form in forms]
    if min(first_s) >= ONCE_S:
        return forms[first_s.index(min(first_s))]
    samples = interleaved(forms, pairs=7, limit_s=0.3, least=3, clock=clock, apart=apart)
    return forms[min(range(len(forms)), key=lambda i: fast_time_s(samples[i]))]


def _candidates(
    bench: Bench | JaxBench, clock: Clock, sizes: list[int], blob: bytes
) -> list[Subject]:
    builts = _builts(sizes, blob)
    return [bench.candidate(b, f"candidate.{n}", clock=clock) for n, b in enumerate(builts)]


def _builts(sizes: list[int], blob: bytes) -> list[Built]:
    """The kernels that follow each other in the bytes of a request."""
    ends = list(accumulate(sizes))
    return [Built.from_bytes(blob[e - size : e]) for e, size in zip(ends, sizes, strict=True)]


def _settled(header: Json) -> Target:
    """The request's target.  Of a CPU the process is bound to its processors, before threads
    start.
    """
    target = target_of(header["target"])
    if isinstance(target, CpuTarget):
        _bind_to_processors(target.threads)
    return target


def _effort(effort: Effort, target: Target) -> Effort:
    """What was asked for; of another device than a CPU, whose samples are bursts, one a sample."""
    return effort if isinstance(target, CpuTarget) else replace(effort, most_calls=1)


@cache
def _bind_to_processors(threads: int) -> None:
    host_target(threads)  # raises where there are not so many
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def _apart(target: Target) -> Apart:
    return _probe(target).apart if isinstance(target, CpuTarget) else always_apart


def _forget_probe(target: Target) -> None:
    if isinstance(target, CpuTarget):
        _probe(target).forget()


def _alone_s(target: Target) -> list[float]:
    """Times of the probe on one thread, since it was told to forget; none where there is none."""
    return _probe(target).alone_s() if isinstance(target, CpuTarget) else []


@cache
def _probe(target: CpuTarget) -> Probe:
    return Probe(target, tell=lambda: None)  # the runner does: nobody reads what is printed here


def _bench(kernel: Kernel, target: Target, cache: CacheMode) -> Bench | JaxBench:
    """What belongs to a kernel on the device.  Large operands go when another kernel comes."""
    if _last_bench and _last_bench[0] != (kernel, cache) and _last_bench[1] > MOST_KEPT_BYTES:
        _made_bench.cache_clear()
    graph = graph_of(kernel)
    _last_bench[:] = (kernel, cache), sum(t.bytes for t in graph.argument_types)
    return _made_bench(kernel, target, cache)


@lru_cache(maxsize=2)
def _made_bench(kernel: Kernel, target: Target, cache: CacheMode) -> Bench | JaxBench:
    if isinstance(target, CpuTarget):
        return Bench(kernel, target, cache)
    return JaxBench(kernel, target, cache)


@cache
def _pages() -> Pages:
    return Pages()


@cache
def _shelf() -> Shelf:
    return Shelf()
