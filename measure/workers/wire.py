"""Values of this room as JSON and back, for the channel between processes."""

from dataclasses import asdict
from typing import Any

from hlotune.hlo.kernel import Kernel
from hlotune.measure.trial import Candidate, Failure, Measurement, Outcome
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.kinds import stored
from hlotune.schedules.targets.target import Target

Json = dict[str, Any]


def from_candidate(candidate: Candidate) -> Json:
    return {"kernel": candidate.kernel.text, "schedule": candidate.schedule.to_json()}


def to_candidate(data: Json) -> Candidate:
    return Candidate(Kernel(data["kernel"]), Schedule.from_json(data["schedule"]))


def from_target(target: Target) -> Json:
    return stored(target)


def from_outcome(outcome: Outcome) -> Json:
    kind = "failure" if isinstance(outcome, Failure) else "measurement"
    return {"is": kind, **asdict(outcome)}


def to_outcome(data: Json) -> Outcome:
    values = {k: v for k, v in data.items() if k != "is"}
    if data["is"] == "failure":
        return Failure(**values)
    return Measurement(**{**values, "samples_s": tuple(values["samples_s"])})
