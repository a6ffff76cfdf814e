"""`hlotune.jit`: a drop-in for `jax.jit` that runs tuned kernels where the database has them."""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from hlotune.deploy.call_kinds import Names, Numbers
from hlotune.deploy.jit import OnMiss, jitted
from hlotune.hlo.frontends.program import Program
from hlotune.measure.machine.targets import host_target, toolchain
from hlotune.measure.trial import require_one_of
from hlotune.schedules.numerics import Numerics
from hlotune.tuning_logs.database import Database


def jit(
    function: Callable[..., Any] | None = None,
    /,
    *,
    database: str | Path | None = None,
    numerics: Numerics = "standard",
    static_argnums: Numbers = None,
    static_argnames: Names = None,
    donate_argnums: Numbers = None,
    donate_argnames: Names = None,
    any_jaxlib: bool = False,
    on_miss: Literal["xla", "first"] = "xla",
    **others: Any,
) -> Any:
    """A jitted function that runs tuned kernels where the database has them, else XLA's.

    At the first call with arguments of new types the function is traced and its kernels are looked
    up; later calls with such arguments run what was found then, until `clear_cache()`.  These run
    as `jax.jit` has them run:

    - a function of which nothing is recorded here, or which hlotune does not take: what it refused
      is said to the logger `hlotune.jit`, at the level of information, and as a warning where all
      was tuned with another jaxlib;
    - all calls on a system where hlotune makes no code;
    - calls inside other transformations, `grad`, `vmap` or another `jit`: tuned kernels have no
      derivatives;
    - calls with arrays that lie on several devices;
    - all calls where JAX's first device is one that hlotune has no kernels for;
    - all calls of a function with other options of `jax.jit`, as shardings or options of XLA's.
      `inline` and `keep_unused` change nothing that a call gives, and leave it as it is.

    Static and donated arguments are named as in `jax.jit`.  What is donated is gone after a call,
    and results may lie in its memory, where `jax.jit` has it so.

    Args:
        database: defaults to HLOTUNE_DB, else a file in the user's cache.
        numerics: records that need a laxer setting are not used.
        any_jaxlib: as in `hlotune.apply`; the first call with arguments of new types then takes
            about a second longer for each kernel.
        on_miss: what becomes of a function of which nothing is recorded here.  `xla` leaves it to
            XLA.  `first` takes the first candidates of its kernels, as `tune run --first` does: at
            the call that meets it they are built, verified, compared with XLA's, and recorded.
            That call takes some seconds longer, and a program is asked for once in a database.
        others: of `jax.jit`.

    Returns:
        A `Jitted`; without a function, a decorator that makes one.

    Raises:
        ValueError: there is no such setting of numerics, or of `on_miss`.
        DatabaseError: at a call, where the database is there and cannot be read.
        HlotuneError: at a call, where tuned kernels cannot be put into the program.
    """
    require_one_of(_MISSES, on_miss, "setting of on_miss")
    options: dict[str, Any] = {
        "database": database,
        "numerics": numerics,
        "any_jaxlib": any_jaxlib,
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
        **others,
    }
    if function is None:
        return functools.partial(jit, on_miss=on_miss, **options)
    return jitted(function, on_miss=_MISSES[on_miss], **options)


def _first(program: Program, path: Path, numerics: Numerics) -> None:
    """Takes the first candidates of a program's kernels, unless a run here has asked for it.

    Ctrl-C ends that run, and is the caller's then: the next call with such arguments asks again.
    """
    from hlotune.search.first import first

    if _is_asked(program, path, numerics):
        return
    if first(program, database=path, numerics=numerics).interrupted:
        raise KeyboardInterrupt


def _is_asked(program: Program, path: Path, numerics: Numerics) -> bool:
    """Whether a finished run of this machine, with these versions, was about the program."""
    if not path.exists():
        return False
    where = {
        "program": program.key,
        "target": host_target().fingerprint,
        "toolchain": toolchain().key,
        "numerics": numerics,
    }
    columns = " and ".join(f"{name} = :{name}" for name in where)
    with Database(path, read_only=True) as records:
        return bool(
            records.query(f"select id from runs where {columns} and finished is not null", where)
        )


_MISSES: Mapping[str, OnMiss | None] = {"xla": None, "first": _first}
