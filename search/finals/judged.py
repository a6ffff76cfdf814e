"""The result of a run with what the comparison of its whole program says."""

from dataclasses import replace

from hlotune.search.finals.comparing import Verdict
from hlotune.search.progress import Finished, KernelSkipped
from hlotune.search.result import TuneResult
from hlotune.tuning_logs.finals import Summary, Whole


def judged(result: TuneResult, verdict: Verdict) -> TuneResult:
    """The result of the kernels with what the comparison of the whole program says."""
    lost = {*verdict.wrong, *verdict.slower}
    won = {k.key for k in result.won}.union(verdict.together, verdict.in_use) - lost
    result = replace(
        result,
        kernels=tuple(replace(k, won=k.key in won) for k in result.kernels),
        interrupted=result.interrupted or verdict.interrupted,
        wrong=verdict.wrong,
        wrong_sites=verdict.wrong_sites,
        wrong_anyway=verdict.wrong_anyway,
        unproven=verdict.whole.unproven if verdict.whole else "",
        skipped=result.skipped + tuple((e.label, e.reason) for e in left_out(result, verdict)),
    )
    if verdict.whole is None or (paired := verdict.whole.paired) is None:
        return result
    return replace(result, speedup=paired.speedup, speedup_low=paired.low, speedup_high=paired.high)


def left_out(result: TuneResult, verdict: Verdict) -> list[KernelSkipped]:
    """The kernels whose champions stay out of the program because it is wrong with them."""
    reasons = verdict.left_out
    return [
        KernelSkipped(label=k.label, reason=reasons[k.key])
        for k in result.kernels
        if k.key in reasons
    ]


def summary(result: TuneResult, whole: Whole | None) -> Summary:
    return Summary(
        wall_s=result.wall_s,
        waited_s=result.waited_s,
        away_s=result.away_s,
        others_share=result.others_share,
        overrun=result.overrun,
        fastest_probe_s=min(result.probe_s, default=None),
        slowest_probe_s=max(result.probe_s, default=None),
        whole=whole.paired if whole else None,
        error=whole.error if whole else None,
        default_error=whole.default_error if whole else None,
        wrong_default=result.wrong_default,
        unproven=result.unproven,
        skipped=result.skipped,
    )


def finished_event(result: TuneResult) -> Finished:
    return Finished(
        trials=result.trials,
        won=len(result.won),
        kernels=len(result.kernels),
        speedup=result.speedup,
        speedup_low=result.speedup_low,
        speedup_high=result.speedup_high,
        wall_s=result.wall_s,
        waited_s=result.waited_s,
        away_s=result.away_s,
        overrun=result.overrun,
        unproven=result.unproven,
    )
