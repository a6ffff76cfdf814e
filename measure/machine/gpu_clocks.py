"""The clocks, power and temperature of a GPU, by NVIDIA's management library."""

import ctypes
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
SM_CLOCK, MEMORY_CLOCK = 1, 2


class GpuClocks:
    """The first GPU of the machine; `read` gives nothing where there is none."""

    def __init__(self) -> None:
        self._library: Any = None
        self._device = ctypes.c_void_p()
        try:
            library = ctypes.CDLL(LIBRARY)
        except OSError:
            return
        ready = library.nvmlInit_v2() == 0
        if ready and library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self._device)) == 0:
            self._library = library

    def read(self) -> dict[str, float]:
        """`sm_mhz`, `memory_mhz`, `celsius`, `watts`, and `throttled`, a set of bits."""
        if self._library is None:
            return {}
        call = self._library
        asked = {
            "sm_mhz": self._number(call.nvmlDeviceGetClockInfo, SM_CLOCK),
            "memory_mhz": self._number(call.nvmlDeviceGetClockInfo, MEMORY_CLOCK),
            "celsius": self._number(call.nvmlDeviceGetTemperature, 0),
            "milliwatts": self._number(call.nvmlDeviceGetPowerUsage),
            "throttled": self._long(call.nvmlDeviceGetCurrentClocksThrottleReasons),
        }
        known = {name: value for name, value in asked.items() if value is not None}
        if "milliwatts" in known:
            known["watts"] = known.pop("milliwatts") / 1e3
        return known

    def _number(self, function: Any, *arguments: int) -> float | None:
        value = ctypes.c_uint()
        failed = function(self._device, *arguments, ctypes.byref(value))
        return None if failed else float(value.value)

    def _long(self, function: Any) -> float | None:
        value = ctypes.c_ulonglong()
        return None if function(self._device, ctypes.byref(value)) else float(value.value)
