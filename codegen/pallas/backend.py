"""The backend for GPUs and TPUs: kernels by Pallas, lowered to StableHLO that XLA compiles.

The code of a kernel is the text of a module whose `@main` has the kernel's own types; its custom
calls hold the kernel.  Where the target's platform is the host's, Pallas interprets the kernel, and
the text is StableHLO alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hlotune.codegen.backend import Array, Signature, SiteCode
from hlotune.codegen.built import Built
from hlotune.codegen.pallas.build import build
from hlotune.codegen.pallas.lowering import exported_for_tpu, lowered, lowered_for, prepare_for
from hlotune.codegen.pallas.reshaped import with_types
from hlotune.hlo.graph import numpy_dtype
from hlotune.hlo.mlir.compiled import compiled
from hlotune.schedules.errors import BuildError, ScheduleError
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.patterns.gpu_forms import GpuForm, Operand, gpu_form
from hlotune.schedules.spaces.gpu.searched import block_space, blocks_of, rounded_to
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.cpu import HOST_PLATFORM
from hlotune.schedules.targets.gpu import GpuTarget
from hlotune.schedules.targets.target import Target
from hlotune.schedules.targets.tpu import TpuTarget

PLATFORM = "// platform: "
"""The start of the first line of a text; JAX's name of the platform follows it."""


@dataclass(frozen=True, slots=True, eq=False)
class _Loaded:
    built: Built
    platform: str
    text: str


class _Pallas:
    """The backend; `Backend` documents its methods."""

    def emit(self, compute: Compute, schedule: Schedule, target: Target) -> Built:
        if not isinstance(target, GpuTarget | TpuTarget):
            raise BuildError(
                f"expected a GPU or a TPU to compile for, got {target.title}; name one"
            )
        form = _form(compute, schedule, target)
        sketch, knobs = blocks_of(schedule.algorithm)
        space = block_space(form.kernel, target)
        space.check(space.config(sketch, knobs))
        interpreted = target.platform == HOST_PLATFORM
        kernel = build(form.kernel, sketch, knobs, interpret=interpreted)
        text = _text(_of_arguments(kernel, form, compute), compute, target)
        return Built(
            object=f"{PLATFORM}{target.platform}\n{text}".encode(),
            scratch_bytes=0,
            packed=(),
            flops=int(form.kernel.flops),
            threads=1,
            algorithm=schedule.algorithm,
            backend="pallas",
        )

    def load(self, built: Built) -> _Loaded:
        platform, text = module_of(built)
        prepare_for(text)
        return _Loaded(built, platform, text)

    def replacement(
        self, loaded: _Loaded, signature: Signature, constants: Mapping[int, Array]
    ) -> SiteCode:
        """Raises BuildError where XLA does not compile the kernel."""
        text = with_types(loaded.text, signature)
        _executable(text, loaded.platform)
        return SiteCode(text)

    def call(
        self, loaded: _Loaded, signature: Signature, arguments: Sequence[Array]
    ) -> list[Array]:
        """Raises BuildError where XLA does not compile the kernel."""
        device = jax.devices(loaded.platform)[0]
        executable = _executable(with_types(loaded.text, signature), loaded.platform)
        results = executable.execute([jax.device_put(a, device) for a in arguments])
        pairs = zip(results, signature.results, strict=True)
        return [np.asarray(r).astype(numpy_dtype(t.dtype), copy=False) for r, t in pairs]


def _form(compute: Compute, schedule: Schedule, target: Target) -> GpuForm:
    """The kernel whose products round as the schedule says.

    Raises ScheduleError where it rounds operands, and the program or the target does not.
    """
    rounded = rounded_to(schedule.algorithm)
    form = gpu_form(compute, rounded)
    allowed = compute.leaves_precision and target.f32_operands("standard") == rounded
    if rounded != "f32" and not allowed:
        raise ScheduleError(
            f"expected f32 products that leave their precision to a device with {rounded}, got "
            f"others, or {target.title}: take a schedule without {rounded}"
        )
    return form


def _executable(text: str, platform: str) -> Any:
    """The compiled text under the site's types, by which each kernel is compiled once a process.

    Raises BuildError where XLA refuses it.
    """
    try:
        return compiled(text, platform)
    except Exception as error:  # XLA's, for any reason that a compiler has
        said = " ".join(f"{type(error).__name__}: {error}".split())[:600]
        raise BuildError(
            f"expected a kernel that XLA compiles for {platform}, got {said}"
        ) from error


def module_of(built: Built) -> tuple[str, str]:
    """The platform of a built kernel and the text of its module.

    Raises BuildError where the code is not such a module.
    """
    line, _, text = built.object.decode().partition("\n")
    if not line.startswith(PLATFORM):
        raise BuildError(
            f"expected a module that begins with {PLATFORM!r}, got {line[:60]!r}; "
            "build the kernel again"
        )
    return line.removeprefix(PLATFORM), text


def _of_arguments(
    kernel: Callable[..., Any], form: GpuForm, compute: Compute
) -> Callable[..., tuple[jax.Array, ...]]:
    """The kernel as a function that takes the compute's arguments, in their order and shapes."""
    names = [t.name for t in compute.arguments]

    def function(*arguments: jax.Array) -> tuple[jax.Array, ...]:
        given = dict(zip(names, arguments, strict=True))
        made = kernel(*(_as_operand(given[o.tensor], o) for o in form.operands))
        if form.result is not None:
            made = _as_operand(made, replace(form.result, slices=()))
        made = made if isinstance(made, tuple) else (made,)
        pairs = zip(made, compute.results, strict=True)
        return tuple(x.reshape(t.shape).astype(numpy_dtype(t.dtype)) for x, t in pairs)

    return function


def _as_operand(x: jax.Array, o: Operand) -> jax.Array:
    part = x[tuple(slice(*s) for s in o.slices)] if o.slices else x
    return jnp.transpose(part.reshape(o.view or part.shape), o.order).reshape(o.shape)


def _text(function: Callable[..., Any], compute: Compute, target: GpuTarget | TpuTarget) -> str:
    operands: list[Any] = [
        jax.ShapeDtypeStruct(t.shape, numpy_dtype(t.dtype))  # type: ignore[no-untyped-call]
        for t in compute.arguments
    ]
    if target.platform == HOST_PLATFORM:
        return str(lowered(function, operands).as_text())
    if isinstance(target, TpuTarget):
        return str(exported_for_tpu(target, function, operands).mlir_module())
    return str(lowered_for(target, function, operands).as_text())


BACKEND = _Pallas()
