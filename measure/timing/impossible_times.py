"""Times that cannot be true: shorter than the arithmetic takes at the target's peak."""

import re

from hlotune.codegen.built import Built
from hlotune.hlo.kernel import Kernel
from hlotune.measure.timing.comparison import Beside
from hlotune.measure.trial import Failure, Measurement
from hlotune.schedules.targets.target import Properties, Target

POSSIBLE = 0.93
"""Below this share of FLOPs over peak a time cannot be true."""


def peak_type(kernel: Kernel, target: Target, properties: Properties) -> str | None:
    """The type with the highest peak among the kernel's that have units; None where one has no
    known peak.

    Bytes have some of their own: dots of four multiply-adds a lane.
    """
    known = properties.flops_per_s
    stand_ins = {} if "bf16" in known else {"bf16": "f32"}
    stand_ins |= target.stand_ins | {"f32": target.f32_operands("standard")}
    found = set(re.findall(r"x?(bf16|f16|f32|f64|i8)>", kernel.text))
    used = {stand_ins.get(t, t) for t in found}
    return max(used, key=known.__getitem__) if used and used <= known.keys() else None


def beats_peak(beside: Beside, flops: int) -> bool:
    """Whether a kernel is too fast beside multiply-adds that were timed in turns with it.

    In the pairs, and beside the fastest of all turns: another process on a processor slows down
    multiply-adds of many milliseconds more than a short kernel.
    """
    is_above = flops / beside.time_s * POSSIBLE > max(beside.work_per_s)
    return is_above and beside.share(flops).low * POSSIBLE > 1


def too_fast(found: Measurement, built: Built, peak: float | None) -> Failure:
    return Failure(
        "device",
        f"expected at least {built.flops / (peak or 1.0):.3g} s for {built.flops} operations at "
        f"this machine's peak, got {found.time_s:.3g} s twice; the schedule leaves work out, or "
        "counts operations that it does not do",
    )
