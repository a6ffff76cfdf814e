"""Whether the parts of a tuned program's file belong together: names, types and sizes agree."""

from collections.abc import Collection, Sequence, Set
from pathlib import Path

from hlotune.codegen.built import Built
from hlotune.codegen.runtime.prepacking import part_bytes
from hlotune.deploy.archive import AGAIN
from hlotune.deploy.manifest import Manifest
from hlotune.hlo.graph import TensorType
from hlotune.hlo.mlir.custom_calls import Call
from hlotune.hlo.mlir.module import Signature
from hlotune.schedules.errors import ProgramError


def check_members(path: Path, found: Set[str], wanted: Set[str], where: str) -> None:
    """Raises ProgramError where names are missing or too many; `where` says where they stand."""
    for names, verb in ((wanted - found, "lacks"), (found - wanted, "has besides")):
        if names:
            raise ProgramError(
                f"expected the program, its kernels and its packed constants in {path}, each named "
                f"in the manifest, but {where} {verb} {min(names)}; {AGAIN}"
            )


def check_signature(
    path: Path, manifest: Manifest, signature: Signature, packed_bytes: Sequence[int]
) -> None:
    """Raises ProgramError where the program takes or gives other arrays than the manifest says.

    Args:
        packed_bytes: size of each packed constant; they are the program's last arguments.
    """
    takes, gives = len(signature.arguments), len(signature.results)
    if manifest.arguments is None:
        wanted, wanted_results = max(takes, len(packed_bytes)), gives
    else:
        wanted = manifest.arguments.num_leaves + len(packed_bytes)
        wanted_results = manifest.results.num_leaves
    if (takes, gives) != (wanted, wanted_results):
        raise ProgramError(
            f"expected a program of {wanted} arguments and {wanted_results} results in {path}, as "
            f"its manifest says, got one of {takes} and {gives}; {AGAIN}"
        )
    hidden = signature.arguments[takes - len(packed_bytes) :]
    for n, (kind, size) in enumerate(zip(hidden, packed_bytes, strict=True)):
        if kind != _bytes(size):
            raise ProgramError(
                f"expected {kind} as packed constant {n} of {path}, as its program takes it, got "
                f"{size} bytes; {AGAIN}"
            )


def check_calls(path: Path, kernels: Collection[Built], calls: Sequence[Call]) -> None:
    """Raises ProgramError where the program calls kernels that the file has not, the file has some
    that nobody calls, or a call has not the scratch and packed arguments that its kernel needs."""
    known, called = {k.key: k for k in kernels}, {str(c.config.get("key", "")) for c in calls}
    if called != known.keys():
        key = min(called ^ known.keys())
        verb = "lacks" if key in called else "has besides"
        raise ProgramError(
            f"expected the kernels that the program calls in {path}, but it {verb} "
            f"{key or 'one without a key'}; {AGAIN}"
        )
    for call in calls:
        kernel = known[str(call.config["key"])]
        if not _fits(call, kernel):
            raise ProgramError(
                f"expected a call of kernel {kernel.key} in {path} with {kernel.scratch_bytes} "
                f"bytes of scratch and {len(kernel.packed)} packed constants of its sizes, got one "
                f"with others; {AGAIN}"
            )


def _fits(call: Call, kernel: Built) -> bool:
    scratch = [_bytes(kernel.scratch_bytes)] if kernel.scratch_bytes else []
    indices = call.arguments[-len(kernel.packed) :] if call.config.get("stacks") else ()
    packed = all(
        p.argument < len(call.arguments)
        and (
            call.arguments[p.argument] == _bytes(p.bytes)
            or (bool(indices) and _is_stack(call.arguments[p.argument], part_bytes(p.bytes)))
        )
        for p in kernel.packed
    )
    packed = packed and all(kind == TensorType((), "i64") for kind in indices)
    given = list(call.results[len(call.results) - len(scratch) :])
    return packed and given == scratch and call.config.get("scratch_bytes") == kernel.scratch_bytes


def _is_stack(kind: TensorType, part: int) -> bool:
    """Whether it is the bytes of several packed forms, each of `part` bytes."""
    return (
        kind.dtype == "ui8" and len(kind.shape) == 1 and kind.shape[0] % part == 0 != kind.shape[0]
    )


def _bytes(size: int) -> TensorType:
    return TensorType((size,), "ui8")
