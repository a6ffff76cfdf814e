"""Leave to use the registers of a matrix unit, which Linux gives to a process that asks.

They are so large that threads have room for them only then; it holds for all threads, those that
run already too.  A processor may have the unit and the system, or a sandbox, refuse it.
"""

import ctypes
import os
from functools import cache

from hlotune.schedules.errors import BuildError

_ARCH_PRCTL = 158
_REQUEST_PERMISSION = 0x1023
_TILE_DATA = 18


@cache
def refusal() -> str:
    """Why this process may not use tiles; "" where it may, from now on."""
    system = ctypes.CDLL(None, use_errno=True)
    asked = system.syscall(
        ctypes.c_long(_ARCH_PRCTL), ctypes.c_long(_REQUEST_PERMISSION), ctypes.c_long(_TILE_DATA)
    )
    return os.strerror(ctypes.get_errno()) if asked else ""


def require_tiles(name: str) -> None:
    """Raises BuildError where an object that uses tiles would be killed."""
    if refusal():
        raise BuildError(
            f"expected leave to use the matrix unit for {name!r}, got {refusal()!r} from the "
            "system; tune the kernel again in a process like this one, which then goes without"
        )
