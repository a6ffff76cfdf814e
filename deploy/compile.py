"""`hlotune.compile`: a PyTorch module whose inference runs tuned kernels, called from PyTorch."""

import copy
import logging
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import jax

from hlotune.deploy.apply import Explanation, TunedFunction, applied
from hlotune.hlo.frontends.program import LoadedModule, from_module, is_module
from hlotune.measure.machine.targets import host_target
from hlotune.measure.trial import require_one_of
from hlotune.schedules.errors import ProgramError, TargetError
from hlotune.schedules.numerics import NUMERICS, Numerics
from hlotune.schedules.targets.cpu import HOST_PLATFORM
from hlotune.tuning_logs.default_path import database_path

LOG = logging.getLogger("hlotune.compile")
Module = TypeVar("Module")


def compile(
    module: Module, *, database: str | Path | None = None, numerics: Numerics = "standard"
) -> Module:
    """A copy of a `torch.nn.Module` that runs tuned kernels where the database has them.

    It shares parameters, buffers and children with the module, so its `state_dict` is the same.  At
    the first call with tensors of new shapes and types the module is exported and its kernels are
    looked up; programs hold parameters as constants, and are made anew when a parameter was changed
    in place or replaced.  Changes by `.data` are not seen: call `forward.clear_cache()` then.  The
    module itself runs where gradients are required, in training, on other devices than the CPU,
    where nothing is recorded, and where hlotune does not take it: that is said to the logger
    `hlotune.compile`.

    Args:
        database: defaults to HLOTUNE_DB, else a file in the user's cache.
        numerics: records that need a laxer setting are not used.

    Raises:
        ProgramError: it is no module of PyTorch.
        DatabaseError: at a call, where the database is there and cannot be read.
    """
    require_one_of(NUMERICS, numerics, "setting of numerics")
    if not is_module(module):
        raise ProgramError(
            f"expected a torch.nn.Module, got {type(module).__name__}; functions of JAX are for "
            "hlotune.jit"
        )
    compiled = copy.copy(module)
    object.__setattr__(compiled, "forward", Forward(module, database, numerics))
    return compiled


@dataclass(frozen=True)
class Tuned:
    """A program for some types of inputs, with its kernels."""

    loaded: LoadedModule
    function: TunedFunction

    def __call__(self, tensors: tuple[Any, ...]) -> Any:
        with jax.enable_x64(True):
            given = [jax.dlpack.from_dlpack(t.detach().contiguous()) for t in tensors]
            leaves = jax.tree.leaves(self.function(*given))
            for leaf in leaves:  # the caller may change its tensors after the call
                leaf.block_until_ready()
        return self.loaded.function.joined(leaves, sys.modules["torch"].utils.dlpack.from_dlpack)


@dataclass(eq=False)
class Forward:
    """What a compiled module calls, and what became of it for each kind of inputs."""

    module: Any
    database: str | Path | None
    numerics: Numerics
    _known: dict[Any, Tuned | None] = field(default_factory=dict)
    _state: tuple[Any, ...] = ()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        tuned = None if named else self._tuned(arguments)
        return self.module.forward(*arguments, **named) if tuned is None else tuned(arguments)

    def explain(self, *arguments: Any) -> tuple[Explanation, ...]:
        """What is done with each site for such arguments; none where the module itself runs."""
        tuned = self._tuned(arguments)
        return () if tuned is None else tuned.function.explain()

    def clear_cache(self) -> None:
        """Forgets what was found, so that newer records and values are seen."""
        self._known.clear()

    def _tuned(self, arguments: tuple[Any, ...]) -> Tuned | None:
        torch: Any = sys.modules["torch"]  # a module of it is there
        plain = all(type(a) is torch.Tensor and a.device.type == HOST_PLATFORM for a in arguments)
        parameters = [*self.module.parameters(), *self.module.buffers()]
        if not plain or any(m.training for m in self.module.modules()):
            return None
        if torch.is_grad_enabled() and any(t.requires_grad for t in (*parameters, *arguments)):
            return None
        state = tuple((id(t), 0 if t.is_inference() else t._version) for t in parameters)
        if state != self._state:
            self._known.clear()
            self._state = state
        key = tuple((a.shape, a.dtype) for a in arguments)
        if key not in self._known:
            self._known[key] = self._found(arguments)
        return self._known[key]

    def _found(self, arguments: tuple[Any, ...]) -> Tuned | None:
        path, name = database_path(self.database), type(self.module).__qualname__
        if not path.exists():
            return None
        try:
            host_target()
            loaded = from_module(self.module, arguments)
        except (ProgramError, TargetError) as error:
            LOG.info("PyTorch runs %s: %s", name, error)
            return None
        function = applied(loaded.program, database=path, numerics=self.numerics)
        if function.outdated:
            LOG.warning("PyTorch runs %s: %s", name, function.outdated)
        return Tuned(loaded, function) if function.replacements else None
