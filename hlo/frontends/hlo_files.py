"""HLO as XLA writes it, text or protocol buffers, made into StableHLO."""

import re
from collections.abc import Iterator
from typing import cast

from hlotune.hlo.frontends.old_hlo import in_todays_syntax
from hlotune.hlo.mlir.stored_values import ELIDED_TARGET
from hlotune.hlo.mlir.versions import hlo_module_from_text, hlo_to_stablehlo
from hlotune.schedules.errors import ProgramError

_ELIDED = re.compile(r"\bconstant\(\{\.\.\.\}\)")
_ELIDED_CALL = f'custom-call(), custom_call_target="{ELIDED_TARGET}"'
_DEVICES = re.compile(r", (replica_count|num_partitions)=(\d+)")
_TODAYS_HEADER = "entry_computation_layout="
"""XLA has printed it in the first line since 2021."""
_LENGTHS = {1: 8, 5: 4}
"""Bytes of a protocol buffer's fixed fields, by wire type."""
_BYTES = 2
"""The wire type of texts and messages."""
_NESTED = 3
"""An HloModuleProto may stand in an HloProto, that in an HloSnapshot, each as the first field, and
that in the XLAComputation of XLA.jl, as the second."""


def stablehlo_of_text(text: str) -> bytes:
    """MLIR bytecode of a module in HLO's text form.

    A constant that was elided becomes a custom call, which `stored_values.py` knows.  A text
    that does not begin as today's do is read as one of 2018 (`old_hlo.py`).

    Raises:
        ProgramError: XLA does not parse it, or it is made for several devices.
    """
    text = _ELIDED.sub(_ELIDED_CALL, text)
    if _TODAYS_HEADER not in text.partition("ENTRY")[0]:
        text = in_todays_syntax(text)
    try:
        return _of_parsed(text)
    except RuntimeError as error:
        raise _refused("HLO text", error) from error


def _of_parsed(text: str) -> bytes:
    """Raises RuntimeError where XLA's parser or its converter refuses the text."""
    module = hlo_module_from_text(text)
    if "replica_count" in text or "num_partitions" in text:
        _check_devices(module.to_string())
    return _converted(module.as_serialized_hlo_module_proto())


def _check_devices(text: str) -> None:
    """Converting to StableHLO forgets for how many devices a module is made."""
    for attribute, count in _DEVICES.findall(text.partition("\n")[0]):
        if int(count) > 1:
            raise ProgramError(
                f"expected a program for one device, got {attribute}={count}; lower it for one "
                "device, without sharding"
            )


def stablehlo_of_proto(data: bytes) -> bytes:
    """MLIR bytecode of an HloModuleProto, or of the one inside another message of XLA's.

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
        f"expected {expected}, got what XLA refuses: {reason}; dump it with this version of "
        "XLA, before optimizations"
    )


def _module_proto(data: bytes) -> bytes:
    """The HloModuleProto in a message; the message itself where none is found."""
    return _module_in(data, _NESTED) or data


def _module_in(data: bytes, depth: int) -> bytes | None:
    """A module has a name in its first field and computations in its third."""
    try:
        fields = dict(reversed(list(_fields(data))))
    except IndexError:
        return None
    name = fields.get(1, b"\0")
    if 3 in fields and name.isascii() and name.decode().isprintable():
        return data
    inner = [fields[n] for n in (1, 2) if n in fields and depth > 0]
    return next(filter(None, (_module_in(x, depth - 1) for x in inner)), None)


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
