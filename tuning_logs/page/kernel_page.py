"""The page of one kernel: what it is, what was found, what holds it, and its code."""

from collections import Counter
from collections.abc import Iterator, Sequence

from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.target import Properties
from hlotune.tuning_logs.evidence import KernelEvidence, Point
from hlotune.tuning_logs.figures.canvas import Figure
from hlotune.tuning_logs.page import feature_words
from hlotune.tuning_logs.page.bounds import parts, verdict
from hlotune.tuning_logs.page.inner_loop import inner_loop, window
from hlotune.tuning_logs.page.markup import Markup, joined, tag
from hlotune.tuning_logs.page.nest_boxes import drawn, legend
from hlotune.tuning_logs.page.parts import (
    INSIDE,
    Places,
    anchor,
    figure,
    pairs,
    percent,
    table,
)
from hlotune.tuning_logs.page.regenerated import Missing, Regenerated
from hlotune.tuning_logs.render import kernel_time_text, ratio_text, time_text

Code = Regenerated | Missing | None
"""None where the kernel has no schedule of ours."""


def kernel_page(
    kernel: KernelEvidence, code: Code, trials: Figure | None, peaks: Properties | None,
    most_lines: int, around: Sequence[KernelEvidence], places: Places = INSIDE,
) -> Markup:  # fmt: skip
    """`around` are the kernels before and behind it in the report; `most_lines` of its LLVM text
    and of its assembly are shown.
    """
    report = kernel.report
    made = code if isinstance(code, Regenerated) else None
    return tag(
        "section",
        _ways(around, places),
        tag("h2", report.label or report.key[:8], id=f"{anchor(kernel)}-title"),
        _numbers(kernel),
        tag("h3", "What holds it"),
        *_bounds(kernel, made, peaks),
        tag("h3", "Trials"),
        figure(trials) if trials else tag("p", "No candidate of ours was measured."),
        *_failures([p for p in kernel.points if p.failure]),
        tag("h3", "What mattered"),
        *_features(made),
        tag("h3", "Schedule"),
        *schedule_steps(kernel.schedule),
        *_code(kernel, code, most_lines),
        tag("details", tag("summary", "StableHLO"), tag("pre", kernel.text, tabindex=0)),
        id=anchor(kernel), class_="page", aria_labelledby=f"{anchor(kernel)}-title",
    )  # fmt: skip


def _ways(around: Sequence[KernelEvidence], places: Places) -> Markup:
    links = (
        tag("a", f"{words}: {k.report.label or k.report.key[:8]}", href=places.of(k))
        for words, k in zip(("Before", "Next"), around, strict=False)
    )
    return tag(
        "nav", tag("a", "Overview", href=places.overview), *links, class_="pages",
        aria_label="Pages of kernels",
    )  # fmt: skip


def _numbers(kernel: KernelEvidence) -> Markup:
    report, champion, limit = kernel.report, kernel.report.champion, kernel.limit
    ratio = "not compared with the default in this run"
    if champion:
        ratio = ratio_text(champion.speedup, champion.speedup_low, champion.speedup_high)
    rate, score = report.flop_per_s, kernel.score
    return pairs(
        (
            ("decision", report.decision),
            ("taken back", report.withdrawn),
            ("best candidate", ratio),
            ("default", kernel_time_text(kernel.default_s)),
            ("used", kernel_time_text(report.used_s)),
            ("fastest trial", kernel_time_text(kernel.best_s)),
            ("limit", f"{time_text(limit.time_s)}, by {limit.bound}" if limit else "not known"),
            ("of the limit", percent(kernel.limit_share)),
            ("speed-of-light score", None if score is None else f"{score:.2f}"),
            ("rate", None if rate is None else f"{rate / 1e9:.1f} GFLOP/s"),
            ("of the peak", percent(report.share_of_peak) if report.share_of_peak else None),
            ("algorithm", report.algorithm),
            ("in the program", f"{report.sites} sites, {report.calls:g} calls a run"),
            ("trials", f"{report.trials}, {report.failures} failed"),
            ("key", report.key),
        )
    )


def _bounds(
    kernel: KernelEvidence, made: Regenerated | None, peaks: Properties | None
) -> Iterator[Markup]:
    """The facts of our code whose features are known: of its comparison, or its fastest trial."""
    champion = kernel.report.champion
    ours_s = champion.tuned_s if champion and kernel.report.algorithm != "xla" else kernel.best_s
    if not ours_s:
        yield tag("p", "There is no code of ours whose time could be explained.")
        return
    peak = peaks.flops_per_s.get(kernel.dtype or "") if peaks else None
    found = parts(kernel.limit, made.features if made else {}, peak, ours_s)
    yield tag("p", verdict(found))
    rows = [(p.name, time_text(p.time_s), percent(p.share), _basis(p.is_estimate)) for p in found]
    if rows:
        columns = ("<part", "time alone", "of the measured time", "<by")
        yield table(f"Against {time_text(ours_s)} of our code", columns, rows)


def _basis(is_estimate: bool) -> str:
    return "estimate, rates of no processor in particular" if is_estimate else "measured peaks"


def _failures(failed: Sequence[Point]) -> Iterator[Markup]:
    if failed:
        counts = Counter(p.failure or "" for p in failed)
        last = {p.failure or "": p.message.strip() for p in failed}
        rows = [(kind, str(count), last[kind]) for kind, count in counts.most_common()]
        yield table("Candidates that failed", ("<kind", "count", "<the latest message"), rows)


def _features(made: Regenerated | None) -> Iterator[Markup]:
    said = (
        (*feature_words.facts(made.features), *feature_words.correlations(made.correlated))
        if made
        else ()
    )
    if said:
        yield tag("ul", *(tag("li", words) for words in said))
    else:
        yield tag("p", "Nothing is known: today's space does not have the schedule, or no feature "
                  "goes with the speed of enough trials.")  # fmt: skip


def schedule_steps(text: str | None) -> Iterator[Markup]:
    """A recorded schedule as its steps, a line each."""
    if text is None:
        yield tag("p", "No schedule of ours was measured.")
        return
    try:
        schedule = Schedule.from_json(text)
    except ScheduleError as error:
        yield tag("p", f"It cannot be read: {error}")
        return
    steps = "\n".join(map(str, schedule.steps)) or "no step"
    yield tag("p", f"Algorithm {schedule.algorithm}, {len(schedule.steps)} steps.")
    yield tag("pre", steps, class_="steps", tabindex=0)


def _code(kernel: KernelEvidence, code: Code, most_lines: int) -> Iterator[Markup]:
    if code is None:
        return
    if isinstance(code, Missing):
        yield tag("h3", "Code")
        yield tag("p", f"Nest and code are not shown: {code.reason}.")
        return
    yield tag("h3", "Loop nest")
    yield legend()
    yield drawn(code.boxes)
    yield tag("h3", "Code")
    yield tag("p", _origin(kernel, code))
    if most_lines:
        yield _assembly(kernel, code.assembly, most_lines)
        yield _listing("LLVM text", "--llvm", kernel, code.llvm, most_lines)
    else:
        yield tag("p", f"It is left out, as the page would grow too large: {_how(kernel, '')}.")


def _origin(kernel: KernelEvidence, code: Regenerated) -> str:
    if kernel.code is None:
        return "It was made again from the record; no hash of verified code stands there."
    if kernel.code == code.code:
        return "It was made again from the record, and is the machine code that was verified."
    return (
        "It was made again from the record by this version of hlotune, and differs from the "
        "machine code that was verified."
    )


def _assembly(kernel: KernelEvidence, text: str, most_lines: int) -> Markup:
    """The inner loop by itself, then the whole text with the loop marked."""
    loop, lines = inner_loop(text), text.splitlines()
    first, end = window(len(lines), loop, most_lines)
    cut = _cut(kernel, "--asm", len(lines), end - first)
    summary = tag("summary", "Assembly, the inner loop marked" if loop else "Assembly")
    if loop is None:
        whole = tag("pre", "\n".join(lines[first:end]), tabindex=0)
        return joined(
            tag("p", "No loop was found in it."), tag("details", summary, cut, whole, class_="code")
        )
    marked = "\n".join(lines[max(first, loop.first) : min(loop.last + 1, end)])
    before, behind = lines[first : loop.first], lines[loop.last + 1 : end]
    whole = tag(
        "pre", *(f"{x}\n" for x in before), tag("mark", marked), *(f"{x}\n" for x in behind),
        tabindex=0,
    )  # fmt: skip
    alone = tag("pre", marked, tabindex=0)
    said = (
        f"The inner loop has {loop.instructions} instructions: {loop.multiply_adds} multiply-adds, "
        f"{loop.from_memory} with an operand in memory, {loop.stack} of them on the stack."
    )
    return joined(tag("p", said), alone, tag("details", summary, cut, whole, class_="code"))


def _listing(title: str, option: str, kernel: KernelEvidence, text: str, most_lines: int) -> Markup:
    lines = text.splitlines()
    end = min(len(lines), most_lines)
    cut = _cut(kernel, option, len(lines), end)
    shown = tag("pre", "\n".join(lines[:end]), tabindex=0)
    return tag("details", tag("summary", title), cut, shown, class_="code")


def _cut(kernel: KernelEvidence, option: str, lines: int, shown: int) -> Markup | None:
    if lines == shown:
        return None
    return tag("p", f"{shown} of {lines} lines: {_how(kernel, option)}.", class_="muted")


def _how(kernel: KernelEvidence, option: str) -> str:
    command = f"tune show {kernel.report.key[:8]} {option or '--asm --llvm'}"
    return f"`{command}` prints all of the fastest schedule's"
