"""From the bytes of a program file to a module in normal form.

Nothing here imports jax, so that the process that parses files first begins fast.
"""

from collections.abc import Callable, Mapping
from pathlib import PurePath

from hlotune.hlo.frontends.checked_parse import Parsed
from hlotune.hlo.frontends.file_kinds import (
    HLO_TEXT,
    ONNX,
    PYTORCH,
    is_hlo_text,
    is_mlir,
    suffix_of,
)
from hlotune.hlo.frontends.hlo_files import stablehlo_of_proto, stablehlo_of_text
from hlotune.hlo.frontends.symbolic_sizes import static_shapes
from hlotune.hlo.mlir import module as mlir
from hlotune.hlo.mlir import rewrite
from hlotune.hlo.mlir.channels_last import with_channels_last
from hlotune.hlo.mlir.platform_index import fill_in_platform, platforms_of
from hlotune.hlo.mlir.symbolic import symbolic_arguments, with_shapes
from hlotune.schedules.errors import ProgramError


def parsed_file(
    data: bytes, path: str, sizes: Mapping[str, int], allow: Callable[[float, int], None]
) -> Parsed:
    """The program that a file holds, in normal form.

    Args:
        path: of the file; its suffix tells StableHLO, HLO text, protocol buffers, ONNX and
            PyTorch apart.
        sizes: of symbolic dimensions, by name.
        allow: is told of the seconds and bytes that it will take beyond those of the file.

    Raises:
        ProgramError: the file holds no program, or one that hlotune does not take.
    """
    if not data.strip(b"\0 \r\n\t"):
        raise ProgramError(f"expected a program in {path}, got an empty file; write it again")
    suffix = suffix_of(PurePath(path))
    if suffix == ONNX:
        return _of_onnx(data, path, sizes, allow)
    if suffix == PYTORCH:
        return _of_pytorch(data, path, sizes, allow)
    platforms = platforms_of(data)
    if suffix == ".pb":
        data = stablehlo_of_proto(data)
    elif is_hlo_text(data) or (suffix == ".hlo" and not is_mlir(data)):
        data = stablehlo_of_text(data.decode(errors="replace"))
    module = mlir.parse(mlir.exported_module(data), f"{mlir.STABLEHLO} or {HLO_TEXT}")
    rewrite.name_entry(module)
    fill_in_platform(module, platforms, path)
    if arguments := symbolic_arguments(module):
        module = with_shapes(module, static_shapes(arguments, sizes, path), path)
    elif sizes:
        raise ProgramError(
            f"expected no sizes of dimensions with {path}, whose types have sizes, got "
            f"{', '.join(sizes)}; leave them out"
        )
    rewrite.normalise(module)
    return Parsed(module.bytecode())


def _of_onnx(
    data: bytes, path: str, sizes: Mapping[str, int], allow: Callable[[float, int], None]
) -> Parsed:
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise ProgramError(
            f"expected the package onnx, which reads {path}, got none ({error}); install it: "
            "pip install hlotune[onnx]"
        ) from error
    from hlotune.hlo.frontends.onnx.model import imported

    model = imported(data, path, sizes, allow)
    return Parsed(with_channels_last(normal_form(model.bytecode)).bytecode(), model.names)


def _of_pytorch(
    data: bytes, path: str, sizes: Mapping[str, int], allow: Callable[[float, int], None]
) -> Parsed:
    from hlotune.hlo.frontends.pytorch.model import imported

    model = imported(data, path, sizes, allow)
    return Parsed(with_channels_last(normal_form(model.bytecode)).bytecode(), model.names)


def normal_form(stablehlo: bytes) -> mlir.Module:
    """A StableHLO module in normal form.

    Raises:
        ProgramError: it is no module, or none that hlotune takes.
    """
    module = mlir.parse(stablehlo)
    rewrite.normalise(module)
    return module
