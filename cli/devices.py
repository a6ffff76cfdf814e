"""The device that a command is asked for by name, where it has to be on this machine."""

import os
import re
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hlotune.schedules.targets.target import Target

FINGERPRINT = re.compile(r"[0-9a-f]{16}")
"""What `tune targets` shows of a machine and its threads."""

Device = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FINGERPRINT",
        help="A device of this machine by name (cuda:h200, ...); or the fingerprint that this "
        "machine must have (tune targets).  [default: this machine's CPU]",
        show_default=False,
    ),
]


def here(text: str) -> "Target":
    """The device of a name, or the CPU of a fingerprint, on this machine.

    Raises TargetError where it is not here.
    """
    from hlotune.schedules.errors import TargetError
    from hlotune.schedules.targets.kinds import NAMED, named_target

    if text not in NAMED and not FINGERPRINT.fullmatch(text) and ":" not in text:
        raise TargetError(
            f"expected a device of {', '.join(NAMED)}, or the fingerprint of this machine's CPU, "
            f"got {text!r}; `tune targets` shows the fingerprint"
        )
    if FINGERPRINT.fullmatch(text):
        from hlotune.measure.machine.targets import require_host

        return require_host(text)
    device = named_target(text)
    leave_device_memory()
    from hlotune.measure.machine.devices import target_here

    return target_here(device)


def leave_device_memory() -> None:
    """Makes this process take a device's memory as it needs it: a worker measures on it, too."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def leave_device(target: "Target") -> None:
    """Makes this process leave a device that it does not need to its worker: a TPU, which one
    process has to itself, and most of a GPU's memory.
    """
    from hlotune.schedules.targets.tpu import TPU_PLATFORM

    leave_device_memory()
    if target.platform == TPU_PLATFORM:
        from hlotune.measure.machine.devices import leave_devices

        leave_devices()


def asked_for(text: str | None) -> "Target | None":
    """The device of a name; None where none is named, for this machine's CPU."""
    return None if text is None else here(text)
