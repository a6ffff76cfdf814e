"""Where the figures of a report come from: target, versions, flags, seeds, noise."""

from collections.abc import Iterator

from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.tuning_logs.evidence import Evidence
from hlotune.tuning_logs.page.markup import Child, Markup, joined, tag
from hlotune.tuning_logs.page.parts import pairs
from hlotune.tuning_logs.render import load_text, pace_text, took_text


def provenance(found: Evidence, version: str) -> Markup:
    """`version` is that of the hlotune that writes the report."""
    return joined(
        tag("h2", "Provenance", id="provenance"),
        pairs(origins(found, version)),
    )


def origins(found: Evidence, version: str) -> Iterator[tuple[str, Child]]:
    """By name."""
    yield from _run(found)
    yield from _target(found)
    yield from _versions(found, version)


def _run(found: Evidence) -> Iterator[tuple[str, Child]]:
    report = found.report
    yield "run", report.run
    yield "program", report.program or "kernels alone"
    yield "source", report.source
    yield "started", f"{report.started[:19]} UTC"
    finished = f"{report.finished[:19]} UTC" if report.finished else "it has not finished"
    yield "finished", finished
    if report.wall_s is not None:
        yield "took", took_text(report.wall_s, report.waited_s, report.away_s)
    yield "seed", str(report.seed)
    yield "numerics", report.numerics
    yield "cache mode", report.cache
    yield "options", ", ".join(f"{k} {v}" for k, v in sorted(found.options.items()) if v)
    load = load_text(report.others_share)
    yield "other processes", load or "not known"
    yield "pace", pace_text(report).strip() or "it was not compared between batches"


def _target(found: Evidence) -> Iterator[tuple[str, Child]]:
    report, target, peaks = found.report, found.target, found.peaks
    yield "target", f"{report.target}, fingerprint {report.fingerprint}"
    if isinstance(target, CpuTarget):
        l1, l2, l3 = (f"{size / 1024:g} KiB" for size in target.caches_bytes)
        yield "cores", f"{target.cores} cores, {report.threads} threads used"
        yield "caches", f"L1 {l1}, L2 {l2}, L3 {l3}"
        yield "triple", target.triple
        extensions = [x for x in target.features if x.startswith(("avx", "amx", "sve", "neon"))]
        yield "vector extensions", ", ".join(extensions)
    if peaks:
        rates = ", ".join(f"{kind} {p / 1e9:.0f} GFLOP/s" for kind, p in peaks.flops_per_s.items())
        yield (
            "measured peaks",
            f"{rates}; memory {peaks.read_bytes_per_s / 1e9:.1f} GB/s; "
            + (f"clock {peaks.clock_hz / 1e9:.2f} GHz"),
        )


def _versions(found: Evidence, version: str) -> Iterator[tuple[str, Child]]:
    versions = found.report.toolchain
    for name, value in sorted(versions.items()):
        if name != "xla_flags":
            yield name, value
    yield "XLA_FLAGS", versions.get("xla_flags") or "none"
    yield "report written by", f"hlotune {version}"
