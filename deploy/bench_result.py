"""What a comparison of a whole program found: its samples, its kernels, and both as JSON."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from hlotune.deploy.accuracy import Accuracy
from hlotune.deploy.apply import Explanation
from hlotune.deploy.bisection import Shortfall
from hlotune.measure.timing.comparison import Ratio, counted, speedup
from hlotune.measure.timing.modes import fast_time_s, slow_time_s
from hlotune.measure.trial import Failure
from hlotune.tuning_logs.finals import Paired


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """Blocking calls of the whole program.  Sample i of both is of the same pair."""

    program: str
    default_s: tuple[float, ...]
    tuned_s: tuple[float, ...]
    calls_per_sample: int
    accuracy: tuple[Accuracy, ...]
    drawn_arguments: tuple[int, ...]
    """Positions of arguments that were drawn at random, the example having no values there."""
    kernels: tuple[Explanation, ...]
    packed_bytes: int
    notes: tuple[str, ...] = ()
    """What has to be said beside all figures, as that constants of the program are missing."""
    shortfalls: tuple[Shortfall, ...] = ()
    again: Mapping[str, Paired | Failure] = field(default_factory=dict)
    """By kernel: what was put in against its default, as `kernel_times.timed_again` found it."""
    compile_s: float = 0.0
    """What XLA took to compile the tuned program; 0 where it had been compiled before."""
    checked_s: float = 0.0
    """What it took to compile the tuned program, to call it and to check its results."""

    @property
    def speedup(self) -> Ratio:
        """Median of the paired ratios, default over tuned, with its 95 % interval; of a default in
        two modes the slow one does not count."""
        return speedup(self.default_s, self.tuned_s)

    @property
    def promised_s(self) -> float:
        """What the records of the replaced kernels say that a run saves."""
        return sum(e.promised_s for e in self.kernels if e.status == "tuned")

    @property
    def slower(self) -> tuple[str, ...]:
        """Keys of kernels without which the program is proven faster."""
        names = {name for s in self.shortfalls if s.is_slower for name in s.sites}
        return tuple(dict.fromkeys(e.site.kernel.key for e in self.kernels if e.site.name in names))

    @property
    def gained_s(self) -> float:
        return gained_s(self.default_s, self.tuned_s)

    def measured(self, e: Explanation) -> Paired | Failure | None:
        """The comparison of the kernel at a site; None where it was not put in or timed again."""
        return self.again.get(e.site.kernel.key) if e.status == "tuned" else None

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON values; units are in the names."""
        found = self.speedup
        finite = math.isfinite(found.high)
        return {
            "program": self.program,
            "default_s": fast_time_s(self.default_s),
            "default_slow_s": slow_time_s(self.default_s),
            "tuned_s": median(self.tuned_s),
            "speedup": found.median,
            "speedup_low": found.low,
            "speedup_high": found.high if finite else None,
            "won": found.is_faster and any(e.status == "tuned" for e in self.kernels),
            "default_samples_s": list(self.default_s),
            "tuned_samples_s": list(self.tuned_s),
            "calls_per_sample": self.calls_per_sample,
            "promised_s": self.promised_s,
            "gained_s": self.gained_s,
            "packed_bytes": self.packed_bytes,
            "drawn_arguments": list(self.drawn_arguments),
            "notes": list(self.notes),
            "accuracy": [a.to_json() for a in self.accuracy],
            "kernels": [_kernel_json(e, self.measured(e)) for e in self.kernels],
            "shortfalls": [asdict(s) for s in self.shortfalls],
        }


def gained_s(default_s: Sequence[float], tuned_s: Sequence[float]) -> float:
    pairs = zip(counted(default_s, tuned_s), tuned_s, strict=True)
    return median(default - tuned for default, tuned in pairs)


def _kernel_json(e: Explanation, again: Paired | Failure | None) -> dict[str, Any]:
    failure = again if isinstance(again, Failure) else None
    return {
        "site": e.site.name,
        "kernel": e.site.kernel.key,
        "label": e.site.label,
        "weight": e.site.weight,
        "status": e.status,
        "reason": e.reason,
        "algorithm": e.algorithm,
        **_paired_json(again if isinstance(again, Paired) else None),
        "not_measured": f"{failure.kind}: {failure.message}" if failure else None,
        **{f"recorded_{name}": value for name, value in _paired_json(e.paired).items()},
    }


def _paired_json(paired: Paired | None) -> dict[str, float | None]:
    return {
        "default_s": paired.default_time_s if paired else None,
        "default_slow_s": slow_time_s(paired.default_s) if paired else None,
        "tuned_s": paired.tuned_time_s if paired else None,
        "speedup": paired.speedup if paired else None,
        "speedup_low": paired.low if paired else None,
        "speedup_high": paired.high if paired and math.isfinite(paired.high) else None,
    }
