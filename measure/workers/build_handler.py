"""The builder's side of a worker process: schedules in, machine code out."""

import time
from collections.abc import Mapping
from functools import lru_cache

from hlotune.codegen.build import build
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.trial import Failure
from hlotune.measure.workers.channel import Handler, Message
from hlotune.measure.workers.wire import from_outcome, to_candidate
from hlotune.schedules.errors import BuildError, ScheduleError, UnsupportedKernel
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.targets.kinds import target_of


def handlers() -> Mapping[str, Handler]:
    return {"build": _build}


@lru_cache(maxsize=8)
def _compute(kernel: Kernel) -> Compute:
    return compute_of(graph_of(kernel))


def _build(request: Message) -> Message:
    target = target_of(request.header["target"])
    try:
        candidate = to_candidate(request.header["candidate"])
        start = time.perf_counter()
        built = build(_compute(candidate.kernel), candidate.schedule, target)
        seconds = time.perf_counter() - start
        return Message({"is": "built", "build_s": seconds}, built.to_bytes())
    except (ScheduleError, UnsupportedKernel) as error:
        return Message(from_outcome(Failure("schedule", str(error))))
    except BuildError as error:
        return Message(from_outcome(Failure("build", str(error))))
    except Exception as error:  # a fault of ours in one schedule must not cost the others a worker
        message = f"code generation failed: {type(error).__name__}: {error}"
        return Message(from_outcome(Failure("build", message)))
