"""What `hlotune.jit` makes of a function: tuned kernels where the database has them, else XLA's."""

import functools
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

from hlotune.deploy.apply import TunedFunction, applied
from hlotune.deploy.call_kinds import (
    Arrays,
    Chosen,
    Key,
    Names,
    Numbers,
    Split,
    chosen,
    has_several_devices,
    is_spread,
    key_of,
    types_of,
)
from hlotune.deploy.explanation import Explanation, Reasons
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.mlir.versions import is_tracing
from hlotune.measure.machine.devices import default_target
from hlotune.measure.trial import require_one_of
from hlotune.schedules.errors import ProgramError, TargetError
from hlotune.schedules.numerics import NUMERICS, Numerics
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.target import Target
from hlotune.tuning_logs.default_path import database_path

LOG = logging.getLogger("hlotune.jit")
OnMiss = Callable[[Program, Path, Numerics], object]
HARMLESS = ("inline", "keep_unused")
"""Options of `jax.jit` under which a call gives what it gives without."""


def jitted(
    function: Callable[..., Any],
    *,
    database: str | Path | None,
    numerics: Numerics,
    any_jaxlib: bool,
    on_miss: OnMiss | None,
    static_argnums: Numbers,
    static_argnames: Names,
    donate_argnums: Numbers,
    donate_argnames: Names,
    **others: Any,
) -> "Jitted":
    """As `hlotune.jit` has it; `on_miss` is called with a program without records, which is looked
    up again then.  Raises ValueError for an unknown setting of numerics."""
    static = chosen(function, static_argnums, static_argnames)
    donated = chosen(function, donate_argnums, donate_argnames)
    jit = functools.partial(
        jax.jit,
        static_argnums=static_argnums,
        static_argnames=static_argnames,
        donate_argnums=donate_argnums,
        donate_argnames=donate_argnames,
        **others,
    )
    made = Jitted(
        function, jit, jit(function), static, donated, database, numerics, any_jaxlib, on_miss,
        _left_out(others),
    )  # fmt: skip
    functools.update_wrapper(made, function)
    return made


def _left_out(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Those under which a call may give something else than without."""
    usual = inspect.signature(jax.jit).parameters
    return tuple(
        name
        for name, value in options.items()
        if name not in HARMLESS and value is not usual[name].default
    )


class OtherTypes(Exception):
    """A call had other arguments, or another setting, than a function was made for."""


@dataclass(eq=False)
class Jitted:
    """A function, and what became of it for each kind of arguments that it was called with."""

    function: Callable[..., Any]
    jit: Callable[[Callable[..., Any]], Callable[..., Any]]
    """`jax.jit` with the options of this function."""
    plain: Any
    """`jax.jit` of it: `lower`, `trace` and the like are there."""
    static: Chosen
    donated: Chosen
    database: str | Path | None
    numerics: Numerics
    any_jaxlib: bool
    on_miss: OnMiss | None = None
    """Is called with a program of which nothing is recorded, the database and the numerics."""
    others: tuple[str, ...] = ()
    """Options of `jax.jit` that tuned programs do not keep: XLA runs the function."""
    _known: dict[Key, TunedFunction | None] = field(default_factory=dict)
    _reasons: dict[Key, Reasons] = field(default_factory=dict)
    """Why kinds of calls are left to XLA, where records were applied to their programs."""
    _has_warned: bool = False
    """Whether a warning has named these options."""
    _only: Callable[..., Any] | None = None
    """What runs where all calls so far were of one kind, or all were left to XLA: it takes the
    arguments of the function, raises `OtherTypes` for other kinds, and leaves it to JAX to tell
    these apart, which is faster."""
    _left: Any = field(init=False)
    """What `_left_to_xla` makes: all kinds of calls that are left to XLA share its cache."""

    def __post_init__(self) -> None:
        require_one_of(NUMERICS, self.numerics, "setting of numerics")
        self._left = self._left_to_xla()

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        if has_several_devices() and is_spread((arguments, named)):
            return self.plain(*arguments, **named)
        for _ in range(2):  # a call of another kind than those before is looked up
            usual, tuned = not is_tracing(), None
            run = self._only if usual else None
            if run is None:
                split = self._split(arguments, named)
                tuned = self._tuned(split)
                run = self._only if usual else None
            if run is None and tuned is not None:
                return tuned(*split.arrays)
            if run is None:
                run = self._left if usual and self._is_left(split) else self.plain
            try:
                return run(*arguments, **named)
            except OtherTypes:
                self._only = None
            except TypeError:  # what is no array: JAX will tell
                break
        return self.plain(*arguments, **named)  # outside of the handler: it has no error behind

    def explain(self, /, *arguments: Any, **named: Any) -> tuple[Explanation, ...]:
        """What is done with each site of the program for such arguments, and why; nothing where the
        database is not there, or hlotune does not take the program.
        """
        split = self._split(arguments, named)
        tuned = self._tuned(split)
        if tuned is not None:
            return tuned.explain()
        try:
            reasons = self._reasons.get(key_of(split))
        except TypeError:
            return ()
        return reasons.explain() if reasons else ()

    def clear_cache(self) -> None:
        """Forgets what was found, so that newer records are seen."""
        self._known.clear()
        self._reasons.clear()
        self._only = None
        self.plain.clear_cache()
        self._left.clear_cache()

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        """Binds the function as a method."""
        return self if owner is None else functools.partial(self, owner)

    def __getattr__(self, name: str) -> Any:
        if name in ("lower", "trace", "eval_shape"):
            return getattr(self.plain, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _split(self, arguments: Sequence[Any], named: dict[str, Any]) -> Split:
        count = len(arguments)
        fixed, given = self.static.among(count), self.donated.among(count)
        static: list[tuple[int | str, Any]] = [(p, arguments[p]) for p in sorted(fixed)]
        static += [(n, v) for n, v in sorted(named.items()) if n in self.static.names]
        positional = {p: a for p, a in enumerate(arguments) if p not in fixed}
        others = {n: v for n, v in named.items() if n not in self.static.names}
        kept, donated = (
            Arrays(
                {p: a for p, a in positional.items() if (p in given) == is_given},
                {n: v for n, v in others.items() if (n in self.donated.names) == is_given},
            )
            for is_given in (False, True)
        )
        return Split(tuple(static), kept, donated)

    def _tuned(self, split: Split) -> TunedFunction | None:
        """What runs in place of `plain`; None where that runs."""
        leaves = jax.tree.leaves(split.arrays)
        if any(isinstance(x, jax.core.Tracer) for x in leaves) or is_spread(leaves):
            return None
        try:
            key = key_of(split)
            known = key in self._known
        except TypeError:  # what is no array, or a static value without a hash: JAX will tell
            return None
        if not known:
            self._known[key] = tuned = self._kept(key, self._found(split, types_of(key)))
            if not any(self._known.values()):
                self._only = self._left
            else:
                alone = tuned if len(self._known) == 1 else None
                self._only = self._for_only(key, split, alone) if alone else None
        return self._known[key]

    def _kept(self, key: Key, found: TunedFunction | None) -> TunedFunction | None:
        """What was found, where any kernel of it is tuned; else the reasons are kept alone."""
        if found is None or found.replacements:
            return found
        self._reasons[key] = found.reasons
        return None

    def _is_left(self, split: Split) -> bool:
        """Whether calls like this one were looked up and left to XLA."""
        try:
            return self._known.get(key_of(split), self) is None
        except TypeError:
            return False

    def _for_only(self, key: Key, split: Split, tuned: TunedFunction) -> Callable[..., Any] | None:
        """The tuned function for calls as this one alone; None where JAX does not tell them apart,
        as those with other static values.
        """
        if tuned.arranged is None or self.static.positions or self.static.names:
            return None

        def arrange(*arguments: Any, **named: Any) -> tuple[Any, ...]:
            split = self._split(arguments, named)
            if key_of(split) != key:
                raise OtherTypes
            return split.arrays

        return tuned.arranged(arrange, split.donated.positional, split.donated.named)

    def _left_to_xla(self) -> Callable[..., Any]:
        """The function as XLA runs it, for all kinds of calls that were looked up and left to it.

        Raises OtherTypes for others, as JAX traces them.
        """

        @functools.wraps(self.function)
        def checked(*arguments: Any, **named: Any) -> Any:
            if not self._is_left(self._split(arguments, named)):
                raise OtherTypes
            return self.function(*arguments, **named)

        return self.jit(checked)

    def _found(self, split: Split, types: Any) -> TunedFunction | None:
        path, name = database_path(self.database), getattr(self.function, "__name__", "it")
        if not path.exists() and self.on_miss is None:
            return None
        if self.others:
            if not self._has_warned:
                LOG.warning("XLA runs %s: tuned programs take no %s", name, ", ".join(self.others))
            self._has_warned = True
            return None
        try:
            target = default_target()
            program = load(split.bound(self.function), *types)
        except (ProgramError, TargetError) as error:
            # Not ours to take, no machine of ours, or an error that JAX will tell.
            LOG.info("XLA runs %s: %s", name, error)
            return None
        tuned = self._applied(program, path, target) if path.exists() else None
        on_miss = self.on_miss if isinstance(target, CpuTarget) else None
        if on_miss is not None and (tuned is None or tuned.is_unknown):
            on_miss(program, path, self.numerics)
            tuned = self._applied(program, path, target)
        if tuned is None:
            return None
        if tuned.outdated:
            LOG.warning("XLA runs %s: %s", name, tuned.outdated)
        return tuned

    def _applied(self, program: Program, path: Path, target: Target) -> TunedFunction:
        return applied(
            program,
            database=path,
            numerics=self.numerics,
            target=target,
            any_jaxlib=self.any_jaxlib,
        )
