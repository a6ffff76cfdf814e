"""From the bytes of a program file to a module in normal form.

Nothing here imports jax, so that the process that parses files first begins fast.
"""

from pathlib import PurePath

from hlotune.hlo.frontends.file_kinds import is_hlo_text, suffix_of
from hlotune.hlo.frontends.hlo_files import stablehlo_of_proto, stablehlo_of_text
from hlotune.hlo.mlir import module as mlir
from hlotune.hlo.mlir import rewrite
from hlotune.schedules.errors import ProgramError


def normal_form_of_file(data: bytes, path: str) -> bytes:
    """MLIR bytecode of the program that a file holds, in normal form.

    Args:
        path: of the file; its suffix tells StableHLO, HLO text and protocol buffers apart.

    Raises:
        ProgramError: the file holds no program, or one that hlotune does not take.
    """
    if not data.strip(b"\0 \r\n\t"):
        raise ProgramError(
            f"expected StableHLO or HLO in {path}, got an empty file; write it again"
        )
    suffix = suffix_of(PurePath(path))
    if suffix == ".pb":
        data = stablehlo_of_proto(data)
    elif suffix == ".hlo" or is_hlo_text(data):
        data = stablehlo_of_text(data.decode(errors="replace"))
    return normal_form(data).bytecode()


def normal_form(stablehlo: bytes) -> mlir.Module:
    """A StableHLO module in normal form.

    Raises:
        ProgramError: it is no module, or none that hlotune takes.
    """
    module = mlir.parse(stablehlo)
    rewrite.normalise(module)
    return module
