"""What steps ask for that go along a tensor ahead of its loads: that places are known."""

from hlotune.schedules.errors import require
from hlotune.schedules.ir.expr import Load


def check_known_places(step: str, x: Load) -> None:
    """Raises ScheduleError where data decides which elements a load reads."""
    places = next((str(y) for y in x.lookups), "")
    require(not places, step, f"{x.tensor} is read at places that data decides: {places}")
