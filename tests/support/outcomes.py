"""What became of a candidate, as one kind of outcome or the other."""

from hlotune.measure.trial import Candidate, Failure, Measurement
from hlotune.schedules.steps.schedule import Schedule
from tests.support.tiny_dot import kernel

DIRECT = Candidate(kernel(), Schedule("direct"))


def failure(outcome: object) -> Failure:
    assert isinstance(outcome, Failure), outcome
    return outcome


def measured(outcome: object) -> Measurement:
    assert isinstance(outcome, Measurement), outcome
    return outcome
