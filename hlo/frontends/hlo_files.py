"""HLO as XLA writes it, text or protocol buffers, made into StableHLO."""

import re
from collections.abc import Iterator
from typing import cast

from hlotune.hlo.mlir.stored_values import ELIDED_TARGET
from hlotune.hlo.mlir.versions import hlo_module_from_text, hlo_to_stablehlo
from hlotune.schedules.errors import ProgramError

_ELIDED = re.compile(r"\bconstant\(\{\.\.\.\}\)")
_ELIDED_CALL = f'custom-call(), custom_call_target="{ELIDED_TARGET}"'
_DEVICES = re.compile(r", (replica_count|num_partitions)=(\d+)")
_LENGTHS = {1: 8, 5: 4}
"""Bytes of a protocol buffer's fixed fields, by wire type."""
_BYTES = 2
"""The wire type of texts and messages."""
_NESTED = 3
"""An HloModuleProto may stand in an HloProto, and that in an HloSnapshot."""


def stablehlo_of_text(text: str) -> bytes:
    """MLIR bytecode of a module in HLO's text form.

    A constant that was elided becomes a custom call, which `stored_values.py` knows.

    Raises:
        ProgramError: XLA does not parse it, or it is made for several devices.
    """
    try:
        module = hlo_module_from_text(_ELIDED.sub(_ELIDED_CALL, text))
        if "replica_count" in text or "num_partitions" in text:
            _check_devices(module.to_string())
        return _converted(module.as_serialized_hlo_module_proto())
    except RuntimeError as error:
        raise _refused("HLO text", error) from error


def _check_devices(text: str) -> None:
    """Converting to StableHLO forgets for how many devices a module is made."""
    for attribute, count in _DEVICES.findall(text.partition("\n")[0]):
        if int(count) > 1:
            raise ProgramError(
                f"expected a program for one device, got {attribute}={count}; lower it for one "
                "device, without sharding"
            )


def stablehlo_of_proto(data: bytes) -> bytes:
    """MLIR bytecode of an HloModuleProto, or of the one inside an HloProto or HloSnapshot.

    Raises:
        ProgramError: there is none in it.
    """
    try:
        return _converted(_module_proto(data))
    except (IndexError, RuntimeError) as error:
        raise _refused("a serialized HloModuleProto, HloProto or HloSnapshot", error) from error


def _converted(module_proto: bytes) -> bytes:
    return cast(bytes, hlo_to_stablehlo(module_proto))


def _refused(expected: str, error: Exception) -> ProgramError:
    reason = " ".join(str(error).split())[:300]
    reason = "".join(c if c.isprintable() else "?" for c in reason)  # for terminals
    return ProgramError(
        f"expected {expected}, got what XLA refuses: {reason}; dump it with this version of XLA, "
        "before optimizations"
    )


def _module_proto(data: bytes) -> bytes:
    """The message whose first field is a name; where it is a message, the module is in there."""
    for _ in range(_NESTED):
        first = dict(reversed(list(_fields(data)))).get(1)
        if first is None or (first.isascii() and first.decode().isprintable()):
            break
        data = first
    return data


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(number, content) of the fields that are texts or messages."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        kind = tag & 7
        if kind == 0:
            _, place = _varint(data, place)
        elif kind == _BYTES:
            length, place = _varint(data, place)
            yield tag >> 3, data[place : place + length]
            place += length
        elif kind in _LENGTHS:
            place += _LENGTHS[kind]
        else:
            return


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, least first, and where the next one begins."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    raise IndexError("a number of more than ten bytes")
