"""Which operations a program may have: those that mean the same on one device of any process."""

import re
from typing import Any

import numpy as np

from hlotune.hlo.mlir.versions import ir
from hlotune.hlo.mlir.walking import operations_in
from hlotune.hlo.operations import COLLECTIVES, DIALECTS
from hlotune.schedules.errors import ProgramError

_MADE_BY_XLA = ("mhlo.fusion", "mhlo.copy", "mhlo.bitcast", "mhlo.async_", "mhlo.add_dependency")
"""What is left of a program that XLA has optimized."""
_GROUPS = ("replica_groups", "source_target_pairs")


def check_operations(function: Any) -> None:
    """Raises ProgramError for an operation that XLA does not take from elsewhere, that calls back
    into Python, or in which several devices take part."""
    for operation in operations_in(function, lambda name: True):
        name = operation.name
        if name == "stablehlo.custom_call":
            _check_custom_call(operation)
        elif name in COLLECTIVES:
            _check_collective(operation)
        elif name.partition(".")[0] not in DIALECTS and name != "mhlo.return":
            # the end of another one's region is left out: that one says more
            raise _not_stablehlo(name)


def _not_stablehlo(name: str) -> ProgramError:
    dialect = name.partition(".")[0]
    if name.startswith(_MADE_BY_XLA):
        advice = "give the program as it is before XLA optimizes it"
    elif dialect == "mhlo":
        advice = "write the program in StableHLO, which came in the place of MHLO"
    else:
        advice = f"lower the dialect {dialect} to StableHLO first"
    return ProgramError(f"expected operations of StableHLO, got {name}; {advice}")


def _check_custom_call(call: Any) -> None:
    target = ir.StringAttr(call.attributes["call_target_name"]).value
    if "python" in target and "callback" in target:
        raise ProgramError(
            "expected a program that runs without Python, got one that calls back into it "
            f"({target}); leave out callbacks, jax.debug.print among them"
        )


def _check_collective(operation: Any) -> None:
    """Raises ProgramError for a collective among several devices; among one it is allowed, since it
    is a copy then, and XLA makes one of it.
    """
    for name in _GROUPS:
        if name in operation.attributes and (devices := _devices(operation.attributes[name])) > 1:
            raise ProgramError(
                f"expected a program for one device, got {operation.name} among {devices} devices; "
                "lower the program for one device, without sharding"
            )


def _devices(groups: Any) -> int:
    """How many devices an attribute like `dense<[[0, 1]]>` speaks of; -1 stands for none."""
    if isinstance(groups, ir.DenseIntElementsAttr):
        return len({int(x) for x in np.array(groups).reshape(-1)} - {-1})
    return len(set(re.findall(r"\d+", str(groups).partition(":")[0])))
