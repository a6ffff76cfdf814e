"""The first page of a report: the verdict, the figures of the whole run, and its provenance."""

from collections.abc import Iterator, Mapping, Sequence

from hlotune.tuning_logs.evidence import Evidence, KernelEvidence
from hlotune.tuning_logs.figures.canvas import Figure
from hlotune.tuning_logs.page.markup import Child, Markup, joined, tag
from hlotune.tuning_logs.page.model_quality import model_quality
from hlotune.tuning_logs.page.parts import INSIDE, Places, figure, pairs, percent, table
from hlotune.tuning_logs.page.provenance import provenance
from hlotune.tuning_logs.page.regenerated import Missing, Regenerated
from hlotune.tuning_logs.render import (
    BEYOND,
    QUIET,
    kernel_time_text,
    load_text,
    modes_text,
    pace_text,
    ratio_text,
    seldom_text,
    time_text,
    took_text,
)
from hlotune.tuning_logs.report import Report

SCORE = (
    "The limit is the least time that the measured peaks allow: all arithmetic at the peak of its "
    "type, or all arguments and results at the bandwidth of memory where they do not fit into the "
    "last cache. It is an under-estimate of what can be reached. The speed-of-light score is the "
    "part of the way from the default to the limit that was gone: 0 at the default, 1 at the "
    "limit, more where an algorithm such as Winograd's does less arithmetic than the kernel states."
)
CLOCKS = (
    "Times of kernels are of calls of each alone, its constants cold; those of the program are "
    "calls as a user makes them."
)


def overview(
    found: Evidence,
    figures: Sequence[Figure],
    code: Mapping[str, Regenerated | Missing],
    version: str,
    places: Places = INSIDE,
) -> Markup:
    """The section of the whole run; `version` is that of the hlotune that writes it."""
    report = found.report
    return tag(
        "section",
        verdict(report),
        _facts(found),
        *_notes(report),
        tag("h2", "Default against tuned", id="default-against-tuned"),
        *(figure(f) for f in figures if f.name in ("speedups", "times")),
        _kernel_table(found, places),
        tag("h2", "How near to the limit", id="limit"),
        tag("p", SCORE),
        *(figure(f) for f in figures if f.name in ("limits", "roofline")),
        tag("h2", "The search", id="search"),
        *(figure(f) for f in figures if f.name == "search"),
        model_quality(found, code),
        *_failures(report),
        *_left_alone(report),
        provenance(found, version),
        id="overview", class_="page", aria_label="Overview",
    )  # fmt: skip


def headline(report: Report) -> tuple[str, str]:
    """The verdict in a few words, and whether it is `good`, `bad`, or nothing is proven."""
    whole = report.whole
    if whole is None:
        return f"{report.won} of {len(report.kernels)} kernels are faster", ""
    if whole.speedup_low > 1:
        return f"{whole.speedup:.2f} times as fast", "good"
    if whole.speedup_high < 1 and not report.won:
        return "XLA keeps all of it", ""
    if whole.speedup_high < 1:
        return f"{1 / whole.speedup:.2f} times as slow", "bad"
    return "No difference is proven", ""


def verdict(report: Report) -> Markup:
    """What a run proved of the whole program."""
    words, colour = headline(report)
    whole = report.whole
    if whole is None:
        detail = (
            _sentence(f"The whole program: {report.unproven}")
            if report.unproven
            else "The whole program was not timed in this run, so that nothing is proven of it."
            if report.program
            else "These kernels were tuned alone: there is no program to be timed."
        )
        if report.finished is None:
            detail += " The run has not finished."
    else:
        ratio = ratio_text(whole.speedup, whole.speedup_low, whole.speedup_high)
        seldom = seldom_text(whole.default_samples_s, whole.tuned_samples_s)
        detail = (
            f"The whole program: default {time_text(whole.default_s)}, tuned "
            f"{time_text(whole.tuned_s)}; {ratio}{seldom}, from "
            f"{len(whole.default_samples_s)} pairs of samples, default and tuned in turns."
        )
    return joined(tag("p", words, class_=f"verdict {colour}".strip()), tag("p", detail))


def _facts(found: Evidence) -> Markup:
    report = found.report
    took = "it has not finished"
    if report.wall_s is not None:
        took = took_text(report.wall_s, report.waited_s, report.away_s)
    failed = sum(line.count for line in report.failures)
    facts = [
        ("kernels faster", f"{report.won} of {len(report.kernels)}"),
        ("speed-of-light score", _score(found.kernels)),
        ("trials", f"{report.trials}, {failed} failed" if failed else str(report.trials)),
        ("time of the run", took),
        ("error of the tuned program", _error(report)),
    ]
    return tag("dl", *(tag("div", tag("dt", n), tag("dd", v)) for n, v in facts), class_="facts")


def _score(kernels: Sequence[KernelEvidence]) -> str:
    """The score of all compared kernels with a limit, each as often as it is called."""
    known = [
        (k.calls, k.default_s, k.report.used_s, k.limit.time_s)
        for k in kernels
        if k.limit and k.default_s and k.report.used_s
    ]
    way = sum(calls * (default - limit) for calls, default, _, limit in known)
    gone = sum(calls * (default - used) for calls, default, used, _ in known)
    return f"{gone / way:.2f}" if way > 0 else "-"


def _error(report: Report) -> str:
    if report.relative_error is None:
        return "not checked"
    if report.default_relative_error is None:
        return f"{report.relative_error:.2g} against the default"
    return f"{report.relative_error:.2g} (default {report.default_relative_error:.2g})"


def _notes(report: Report) -> Iterator[Markup]:
    """What has to be said beside the figures."""
    pace = pace_text(report).strip()
    beyond = any((k.share_of_peak or 0) > 1 for k in report.kernels)
    busy = load_text(report.others_share) if (report.others_share or 0.0) > QUIET else ""
    said: list[str] = [*report.notes, report.overrun, busy, pace]
    said += [BEYOND] if beyond else []
    named = [(f"the default of {k.key[:8]}", k.champion) for k in report.kernels]
    for what, timed in (*named, ("the default program", report.whole)):
        said.append(modes_text(what, timed.default_samples_s) if timed else "")
    for words in said:
        if words:
            yield tag("p", _sentence(words), class_="note")


def _sentence(words: str) -> str:
    words = words.strip()
    return f"{words[0].upper()}{words[1:]}{'' if words.endswith('.') else '.'}"


def _kernel_table(found: Evidence, places: Places) -> Markup:
    columns = (
        "<kernel", "calls", "default", "used", "speedup", "best, 95 %", "GFLOP/s", "of peak",
        "of the limit", "score", "<decision",
    )  # fmt: skip
    rows = [_kernel_row(k, places) for k in found.kernels]
    return joined(table("All kernels, those that take most time first", columns, rows),
                  tag("p", CLOCKS, class_="muted"))  # fmt: skip


def _kernel_row(kernel: KernelEvidence, places: Places) -> tuple[Child, ...]:
    report = kernel.report
    champion, rate, score = report.champion, report.flop_per_s, kernel.score
    more = report.withdrawn or (report.algorithm if report.won else None)
    return (
        tag("a", report.label or report.key[:8], href=places.of(kernel)),
        f"{report.calls:g}",
        kernel_time_text(kernel.default_s),
        kernel_time_text(report.used_s),
        f"{report.speedup:.2f}",
        f"{champion.speedup_low:.2f} to {champion.speedup_high:.2f}" if champion else "-",
        "-" if rate is None else f"{rate / 1e9:.1f}",
        percent(report.share_of_peak),
        percent(kernel.limit_share),
        "-" if score is None else f"{score:.2f}",
        f"{report.decision}: {more}" if more else report.decision,
    )


def _failures(report: Report) -> Iterator[Markup]:
    if report.failures:
        yield tag("h2", "Failed candidates", id="failures")
        rows = [(f.kind, str(f.count), f.kernel[:8], f.message.strip()) for f in report.failures]
        columns = ("<kind", "count", "<kernel", "<the latest message")
        yield table("Candidates that failed, by kind, with an example each", columns, rows)


def _left_alone(report: Report) -> Iterator[Markup]:
    if report.skipped:
        yield tag("h2", "Left to the default compiler", id="left-alone")
        yield pairs((skip.label or "a kernel", skip.reason) for skip in report.skipped)
