"""The table of kinds of target, targets by name, and how records store a target.

Adding a kind takes a file with its class, and a row in `KINDS`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from hlotune.schedules.errors import TargetError
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.gpu import GPU_TARGETS, GpuTarget
from hlotune.schedules.targets.target import Target
from hlotune.schedules.targets.tpu import TPU_TARGETS, TpuTarget

Json = Mapping[str, Any]

CPU, GPU, TPU = "cpu", "gpu", "tpu"
KINDS: dict[str, type[Target]] = {CPU: CpuTarget, GPU: GpuTarget, TPU: TpuTarget}
"""The class of each kind of target."""

NAMED: dict[str, Target] = {**GPU_TARGETS, **TPU_TARGETS}
"""Devices that are known by name, here or not; `tune run --target` takes them."""

SCHEMA = 2
"""The schema of a stored target, as its field `schema`; targets without one are of schema 1."""


def _with_schema(stored: Json) -> Json:
    """Schema 2 says its number.  In schema 1 all targets were CPUs, which have the same fields."""
    return {**stored, "schema": 2}


MIGRATIONS: dict[int, Callable[[Json], Json]] = {1: _with_schema}
"""What makes a stored target of each older schema one of the next."""


def stored(target: Target) -> dict[str, Any]:
    """A target as records and workers' requests have it: JSON values."""
    return {"schema": SCHEMA, **target.identity}


def migrated(data: Json) -> Json:
    """A stored target of any schema in that of this version.

    Raises TypeError where the schema is newer, or no number.
    """
    schema = data.get("schema", 1)
    if type(schema) is not int or not 1 <= schema <= SCHEMA:
        raise TypeError(
            f"expected a target of schema 1 to {SCHEMA}, got schema {schema!r}; upgrade hlotune"
        )
    for version in range(schema, SCHEMA):
        data = MIGRATIONS[version](data)
    return data


def target_of(data: Json) -> Target:
    """The target that was stored.

    Raises KeyError or TypeError where fields are missing or unknown, or no kind is called so.
    """
    identity = {k: v for k, v in migrated(data).items() if k != "schema"}
    kind = identity["kind"]
    if kind not in KINDS:
        raise TypeError(f"expected a target of kind {', '.join(KINDS)}, got {kind!r}")
    return KINDS[kind].of(identity)


def named_target(name: str) -> Target:
    """The device of that name, present or not.  Raises TargetError where none is known."""
    if name not in NAMED:
        raise TargetError(f"expected a target of {', '.join(NAMED)}, got {name!r}")
    return NAMED[name]
