"""Every name of jax and jaxlib that may move between their releases, in one place.

jaxlib 0.10.2 to 0.12.0.1 have all of them.  Public names of jax are used where they are needed.
Importing this module does not import jax: the process that parses files first begins in a third of
the time without it.
"""

import functools
import os
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, cast

from hlotune.schedules.errors import VersionError
from hlotune.schedules.targets.cpu import HOST_PLATFORM

# jaxlib reads the level as it is loaded.  jax sets it first, and may not be there yet.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
try:
    from jaxlib import _hlo, _jax  # type: ignore[attr-defined]
    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo
    from jaxlib.mlir.passmanager import PassManager

    DeviceList = _jax.DeviceList
    hlo_module_from_text = _hlo.hlo_module_from_text
    hlo_to_stablehlo = _jax.mlir.hlo_to_stablehlo
    inlined_func_call = _jax_mlir_ext.inlined_func_call
    portable_version = stablehlo.get_version_from_compatibility_requirement
    refine_shapes = _jax.mlir.refine_polymorphic_shapes
    read_portable_artifact = _jax.mlir.deserialize_portable_artifact
    write_portable_artifact = _jax.mlir.serialize_portable_artifact
    stablehlo.register_stablehlo_passes()
    _dialects = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(_dialects)
except (ImportError, AttributeError) as error:
    raise VersionError(
        "expected jax and jaxlib of a version from 0.10.2 to 0.12, got jaxlib "
        f"{version('jaxlib')}, where hlotune does not find what it needs ({error}); install one of "
        "these with `pip install 'jax<0.13'`"
    ) from error

COMPILED = "/jax/core/compile/backend_compile_duration"
"""The event of a compilation.  Where a release of JAX calls it otherwise, nobody hears of any."""

__all__ = ["PassManager", "chlo", "ir", "mhlo", "sdy", "stablehlo"]


class _Context(ir.Context):
    """A context of no dialects.  Those of `ir.Context` come with all that the library has."""

    def __init__(self) -> None:
        super(ir.Context, self).__init__()


def new_context() -> Any:
    """An `ir.Context` of all dialects in which programs are written.

    One that we make no operations of is loaded when a program has some: to load all takes 5 ms.
    """
    context: Any = _Context()
    context.append_dialect_registry(_dialects)
    for dialect in (sdy, chlo, stablehlo):
        dialect.register_dialect(context)
    mhlo.register_mhlo_dialect(context)
    return context


def portable_artifact(module: Any) -> bytes:
    """A module as a StableHLO artifact that releases of the twelve weeks before this one read too;
    where it has operations that are younger than that, one that this release reads.

    Args:
        module: one of jaxlib's, whose context is the current one.  It is not changed.
    """
    age = stablehlo.StablehloCompatibilityRequirement
    for_older, for_this = portable_version(age.WEEK_12), portable_version(age.NONE)
    try:
        artifact = write_portable_artifact(module, target=for_older)
    except RuntimeError:
        artifact = write_portable_artifact(module, target=for_this)
    return cast(bytes, artifact)


def is_tracing() -> bool:
    """Whether JAX follows a transformation in this thread: then arguments may have no values."""
    return not _trace_state_is_clean()()


def tracing_settings() -> tuple[Any, ...]:
    """The settings of JAX, of this thread and of all, that make `jax.jit` trace anew: under these
    one function is one program.  How keys of random numbers are made by default is none of them.
    """
    return _settings_of_traces()()


@functools.cache
def _settings_of_traces() -> Callable[[], tuple[Any, ...]]:
    """Found once: `hlotune.jit` asks at each call that it looks up."""
    from jax._src import config

    found: Callable[[], tuple[Any, ...]] = config.trace_context
    return found


@functools.cache
def _trace_state_is_clean() -> Callable[[], bool]:
    """Found once: `is_tracing` stands before every call of a tuned function."""
    from jax._src import core

    found: Callable[[], bool] = core.trace_state_clean
    return found


def run_in_the_calling_thread() -> None:
    """Makes programs run in the thread that calls them, and in XLA's pool; otherwise the calling
    thread hands all but the smallest to another one.

    Call it before anything of the process runs on the device.
    """
    import jax

    config: Any = jax.config
    config.update("jax_cpu_enable_async_dispatch", False)


def loaded(text: str, platform: str = HOST_PLATFORM) -> Any:
    """A module's text compiled for the first device of a platform; its `execute` runs it on a
    sequence of arrays.  XLA's errors pass through.
    """
    from jax.extend import backend

    client: Any = backend.get_backend(platform)
    devices = DeviceList((client.local_devices()[0],))
    options = backend.get_compile_options(num_replicas=1, num_partitions=1)
    return client.compile_and_load(text.encode(), devices, options)


def call_of(exported: Any) -> Callable[..., Any]:
    """The call of a `jax.export.Exported` for `jax.jit` to trace.

    Where JAX sees `exported.call` by itself, it takes the results to be put on a device by the
    caller.  Those of this call are where its arguments are, as results of `jax.jit`, and can be
    computed with by arrays that lie elsewhere.
    """
    return functools.partial(_exported_call().bind, exported=exported)


@functools.cache
def _exported_call() -> Any:
    from jax.extend.core import Primitive
    from jax.interpreters import mlir

    def called(*arguments: Any, exported: Any) -> Any:
        return exported.call(*arguments)

    primitive: Any = Primitive("tuned_program")
    primitive.multiple_results = True
    primitive.def_impl(called)
    primitive.def_abstract_eval(lambda *_, exported: exported.out_avals)
    mlir.register_lowering(primitive, mlir.lower_fun(called, multiple_results=True))
    return primitive
