"""Shardings, which say how tensors are divided among devices.

hlotune computes a program on one device.  Where shardings only annotate the program, its results
do not depend on them: they are left out, and a note says so.  Where a part of the program is
computed by each device for itself, as `jax.shard_map` makes it, the program is refused.
"""

from collections.abc import Iterator
from typing import Any

from hlotune.hlo.mlir.module import Module
from hlotune.hlo.mlir.versions import ir
from hlotune.hlo.mlir.walking import operations_in
from hlotune.hlo.operations import COLLECTIVES
from hlotune.schedules.errors import ProgramError

PARTITIONS, REPLICAS = "mhlo.num_partitions", "mhlo.num_replicas"
ANNOTATIONS = ("sdy.sharding_constraint", "sdy.reshard", "sdy.propagation_barrier")
"""Operations whose result is their operand."""
ANNOTATING_CALL = "Sharding"
"""The target of custom calls whose result is their operand."""
_SHARDING = ("sdy.sharding", "mhlo.sharding")
_BY_EACH_DEVICE = COLLECTIVES | {
    "sdy.manual_computation", "stablehlo.partition_id", "stablehlo.replica_id",
}  # fmt: skip
_BY_EACH_DEVICE_CALLS = ("SPMDFullToShardShape", "SPMDShardToFullShape")


def ignored_shardings(module: Module) -> tuple[str, ...]:
    """Notes on the shardings of a module that was just read; from then on it is for one partition.

    Raises:
        ProgramError: devices compute parts of it for themselves, or it has replicas.
    """
    partitions, replicas = _count(module, PARTITIONS), _count(module, REPLICAS)
    if replicas != 1:
        raise ProgramError(
            f"expected a program for one device, got {REPLICAS} = {replicas}; lower it without "
            "replicas"
        )
    operations = operations_in(module.op.operation, lambda name: True)
    _check_no_parts(operations, partitions)
    if PARTITIONS in module.op.operation.attributes:
        one = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 1)
        module.op.operation.attributes[PARTITIONS] = one
    shardings = sum(map(_shardings_of, operations))
    if partitions == 1 and not shardings:
        return ()
    count = "1 sharding is" if shardings == 1 else f"{shardings} shardings are"
    made = f", which was made for {partitions} devices," if partitions > 1 else ""
    return (f"{count} ignored: hlotune computes this program{made} on one device",)


def _count(module: Module, name: str) -> int:
    attributes = module.op.operation.attributes
    return int(ir.IntegerAttr(attributes[name]).value) if name in attributes else 1


def _check_no_parts(operations: list[Any], partitions: int) -> None:
    for operation in operations:
        name, call = operation.name, target_of(operation)
        is_a_part = partitions > 1 and name in _BY_EACH_DEVICE
        if is_a_part or name == "sdy.manual_computation" or call in _BY_EACH_DEVICE_CALLS:
            among = f" among {partitions} devices" if partitions > 1 else ""
            raise ProgramError(
                f"expected a program for one device, got {call or name}{among}, a part that each "
                "device computes for itself; lower it for one device, without shard_map and pmap"
            )


def target_of(operation: Any) -> str:
    """The target of a custom call; empty for any other operation."""
    if operation.name != "stablehlo.custom_call":
        return ""
    return str(ir.StringAttr(operation.attributes["call_target_name"]).value)


def _shardings_of(operation: Any) -> int:
    """How many tensors an operation, or the signature of a function, annotates."""
    if operation.name in ANNOTATIONS:
        return 1
    return sum(name in attributes for attributes in _dictionaries(operation) for name in _SHARDING)


def _dictionaries(operation: Any) -> Iterator[Any]:
    """The attributes of an operation, and of the arguments and results of a function."""
    yield operation.attributes
    for name in ("arg_attrs", "res_attrs"):
        if operation.name == "func.func" and name in operation.attributes:
            yield from (ir.DictAttr(a) for a in ir.ArrayAttr(operation.attributes[name]))
