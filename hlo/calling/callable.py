"""Programs as functions that JAX runs."""

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn, Protocol

import jax
import jax.numpy as jnp
from jax import export

from hlotune.hlo.calling.arguments import leaves_of, whole_arguments
from hlotune.hlo.calling.keys import NO_KEYS, Keys, with_keys
from hlotune.hlo.frontends.program import Program, shape_of
from hlotune.hlo.mlir import module as mlir
from hlotune.hlo.mlir.custom_calls import call_targets
from hlotune.hlo.mlir.rewrite import add_arguments
from hlotune.hlo.mlir.versions import call_of
from hlotune.hlo.mlir.weights import make_arguments
from hlotune.schedules.errors import ProgramError
from hlotune.schedules.targets.cpu import HOST_PLATFORM

WIDE = ("f64", "i64", "ui64", "complex<f64>")
"""Element types that JAX has only where 64 bits are enabled."""
LAPACK = "lapack_"
"""Calls of these targets are there once JAX has imported SciPy, which takes it a quarter of a
second: for modules of the platform `cpu` it does so, whatever they call."""
WITHOUT_LAPACK = "cpu-without-lapack"
"""The platform of modules that call none of these."""

Arrange = Callable[..., tuple[Any, ...]]
"""Makes the arguments of a program of those of a function.  It is called as JAX traces, with what
stands for arrays; its errors are those of the call."""
Arranged = Callable[[Arrange, Collection[int], Collection[str]], Callable[..., Any]]
"""Gives a function with another arrangement, of whose own arguments those at some positions and of
some names are donated."""


class JittedProgram(Protocol):
    """What `jitted` gives; an argument of the program may have any name, `self` too."""

    def __call__(self, /, *args: Any, **named: Any) -> Any: ...

    lower: Callable[..., jax.stages.Lowered]
    """The `lower` of `jax.jit`; what is compiled from it holds the hidden values as constants."""
    arranged: Arranged | None
    """Gives a jitted function that takes its arguments otherwise, with no more in front of a call
    than `jax.jit` has; None where a call needs a setting of its own."""


def device_of(platform: str = HOST_PLATFORM) -> jax.Device:
    """The first device of a platform, whatever other devices JAX has found.

    Raises:
        ProgramError: JAX has no such device, or was told to leave it out.
    """
    try:
        return jax.devices(platform)[0]
    except RuntimeError as error:
        raise ProgramError(
            f"expected JAX to run programs on the platform {platform}, got {error}; add {platform} "
            "to JAX_PLATFORMS"
        ) from error


def jitted(
    program: Program,
    module: mlir.Module | bytes | None = None,
    *,
    hidden_values: Sequence[Any] = (),
    platform: str = HOST_PLATFORM,
    compiler_options: Mapping[str, bool | int | str] | None = None,
) -> JittedProgram:
    """A jitted function of the program, or of a module made from it, which it has from then on.

    It takes and gives the pytrees of the original, by position or by name.  A program that did not
    come from a JAX function takes flat arrays and gives a tuple.  `hidden_values` are the arguments
    that splicing appended: they are put on the device once and passed with every call.  It runs on
    the first device of the platform, and fetches arguments that lie elsewhere.  Arguments that the
    program donates are deleted for the caller, where `jax.jit` would delete them.
    """
    if not isinstance(module, mlir.Module):
        module = mlir.parse(program.bytecode if module is None else module)
    function = mlir.signature(module)
    hidden = len(function.arguments) - len(program.graph.arguments)
    if hidden != len(hidden_values):
        raise ProgramError(
            f"expected {hidden} hidden values, got {len(hidden_values)}; give those that the "
            "spliced program needs"
        )
    used = make_arguments(module.op, partial(add_arguments, module.function("main")))
    hidden_values = (*hidden_values, *(program.weights[n] for n in used))
    return function_of(
        module, program.in_tree, program.out_tree, program.names,
        hidden_values=hidden_values, platform=platform, donated=program.donated,
        compiler_options=compiler_options, keys=program.keys, weak=program.weak,
    )  # fmt: skip


def function_of(
    module: mlir.Module,
    in_tree: Any,
    out_tree: Any,
    names: Sequence[str] = (),
    *,
    hidden_values: Sequence[Any] = (),
    platform: str = HOST_PLATFORM,
    donated: Sequence[int] = (),
    compiler_options: Mapping[str, bool | int | str] | None = None,
    keys: Keys = NO_KEYS,
    weak: Collection[int] = (),
) -> JittedProgram:
    """A jitted function of a module whose last arguments are hidden; flat without the pytrees.

    `donated` are positions of arguments, flat; `compiler_options` are those of XLA.
    `keys` are the leaves that the function takes and gives as typed random keys; the types of the
    results at the positions `weak` give way to others.
    """
    function = mlir.signature(module)
    types = (*function.arguments, *function.results)
    wide = any(t.dtype in WIDE for t in types)
    already = jax.config.read("jax_enable_x64")  # type: ignore[no-untyped-call]
    with jax.enable_x64(wide or already), jax.default_device(device_of(platform)):
        exported = _exported(module, function, platform, weak)
        values = tuple(jax.device_put(v) for v in hidden_values)  # aligned ones are not copied
    whole = whole_arguments(donated, in_tree)
    by_name = [name for k, name in enumerate(names) if name and k in whole]
    given = [1 + k for k in whole]  # the hidden values come first
    whole_program = _program(exported, in_tree, out_tree, names, keys)
    options = dict(compiler_options) if compiler_options else None
    run = jax.jit(
        whole_program, donate_argnums=given, donate_argnames=by_name, compiler_options=options
    )
    call: Any = partial(run, values)
    arranged: Any = partial(_arranged, whole_program, values)
    ahead = partial(jax.jit, donate_argnums=whole, donate_argnames=by_name)
    lower: Any = partial(_lowered, ahead(partial(run, values)), platform)
    if device_of(platform) != jax.devices()[0]:
        call, arranged = _fetching(call, device_of(platform)), None
    if wide:
        call, lower, arranged = _wide(call), _wide(lower), None
    call.lower, call.arranged = lower, arranged
    made: JittedProgram = call
    return made


def _exported(
    module: mlir.Module, function: mlir.Signature, platform: str, weak: Collection[int]
) -> export.Exported:
    """An `Exported` that holds the module, made from one of a function of zeros of its type."""
    arguments = [shape_of(t) for t in function.arguments]
    results = [shape_of(t) for t in function.results]

    def zeros(*_: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(jnp.zeros(r.shape, r.dtype) for r in results)

    template = export.export(jax.jit(zeros, keep_unused=True), platforms=(platform,))(*arguments)
    calls_lapack = any(name.startswith(LAPACK) for name in call_targets(module))
    if platform == HOST_PLATFORM and not calls_lapack:
        template = dataclasses.replace(
            template,
            platforms=(WITHOUT_LAPACK,),
            disabled_safety_checks=(export.DisabledSafetyCheck.platform(),),
        )
    strong: Any = template.out_avals
    return dataclasses.replace(
        template,
        out_avals=tuple(x.update(weak_type=True) if k in weak else x for k, x in enumerate(strong)),
        mlir_module_serialized=mlir.exportable(module),
        module_kept_var_idx=tuple(range(len(arguments))),
        _get_vjp=None,
    )


def _program(
    exported: export.Exported, in_tree: Any, out_tree: Any, names: Sequence[str], keys: Keys
) -> Callable[..., Any]:
    """What a call does, of the hidden values and the original's arguments."""
    call = _untransformed(exported)

    def program(hidden: tuple[jax.Array, ...], /, *args: Any, **named: Any) -> Any:
        types = exported.in_avals[: len(exported.in_avals) - len(hidden)]
        leaves = leaves_of(args, named, names, in_tree, types, keys.arguments)
        results = with_keys(call(*leaves, *hidden), keys.results)
        return tuple(results) if out_tree is None else jax.tree.unflatten(out_tree, results)

    return program


def _arranged(
    program: Callable[..., Any],
    values: Sequence[jax.Array],
    arrange: Arrange,
    donated: Collection[int],
    donated_names: Collection[str],
) -> Callable[..., Any]:
    """A jitted function of a program with its hidden values, whose arguments are arranged first."""

    def call(hidden: tuple[jax.Array, ...], /, *args: Any, **named: Any) -> Any:
        return program(hidden, *arrange(*args, **named))

    given = [1 + k for k in sorted(donated)]  # the hidden values come first
    return partial(
        jax.jit(call, donate_argnums=given, donate_argnames=sorted(donated_names)), values
    )


def _untransformed(exported: export.Exported) -> Callable[..., Any]:
    """The call of a module: in other transformations than `jit` it is an error in our words."""
    batched = jax.custom_batching.custom_vmap(call_of(exported))
    batched.def_vmap(partial(_refused, "vmap"))
    derived = jax.custom_jvp(batched)
    derived.defjvp(partial(_refused, "grad"))
    return derived


def _refused(transformation: str, *_: Any) -> NoReturn:
    raise ProgramError(
        f"expected a tuned program outside of grad and vmap, got it inside {transformation}, for "
        "which tuned kernels have no rule; take hlotune.jit of the function, which leaves it to "
        "XLA there, or tune the transformed function"
    )


def _lowered(
    run: Any,
    platform: str,
    /,
    *args: Any,
    **named: Any,
) -> jax.stages.Lowered:
    """Lowers the function for the platform; of arrays that lie elsewhere only types are taken."""
    args, named = jax.tree.map(
        lambda x: jax.typeof(x) if isinstance(x, jax.Array) else x, (args, named)
    )
    with jax.default_device(device_of(platform)):
        lowered: jax.stages.Lowered = run.lower(*args, **named)
        return lowered


def _fetching(function: Callable[..., Any], device: jax.Device) -> Callable[..., Any]:
    """Calls on a device where it is not JAX's first choice."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with jax.default_device(device):
            args, kwargs = jax.device_put((args, kwargs), device)
            return function(*args, **kwargs)

    return call


def _wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """Calls of programs with 64-bit types, whatever the caller's setting."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return call
