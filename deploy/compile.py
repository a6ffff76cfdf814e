"""`hlotune.compile`: a PyTorch module whose inference runs tuned kernels, called from PyTorch."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hlotune.deploy.apply import Explanation
from hlotune.deploy.torch_variants import Tuned, Variants, are_plain, need_gradients
from hlotune.hlo.frontends.program import is_module
from hlotune.measure.trial import require_one_of
from hlotune.schedules.errors import ProgramError
from hlotune.schedules.numerics import NUMERICS, Numerics

Module = TypeVar("Module")


def compile(
    module: Module, *, database: str | Path | None = None, numerics: Numerics = "standard"
) -> Module:
    """A copy of a `torch.nn.Module` that runs tuned kernels where the database has them.

    It shares parameters, buffers and children with the module, so its `state_dict` is the same.  At
    the first call with tensors of new shapes and types, as of another batch, the module is exported
    and its kernels are looked up, for 64 such variants at most.  Programs hold parameters as
    constants, and are made anew when a parameter was changed in place or replaced.  Changes
    inside of `.data`, and of parameters made in `torch.inference_mode()`, are seen where they reach
    one of 32 elements of each tensor that every call looks at: else call `forward.clear_cache()`.
    The module itself runs where gradients are required, in training, in `torch.autocast`, on other
    devices than the CPU, where nothing is recorded, and where hlotune does not take it: that is
    said to the logger `hlotune.compile`.

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
    variants = Variants(type(module).__qualname__, database, numerics)
    object.__setattr__(compiled, "forward", Forward(module, variants))
    return compiled


@dataclass(eq=False)
class Forward:
    """What a compiled module calls."""

    module: Any
    variants: Variants

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        tuned = None if named else self._tuned(arguments)
        return self.module.forward(*arguments, **named) if tuned is None else tuned(arguments)

    def explain(self, *arguments: Any) -> tuple[Explanation, ...]:
        """What is done with each site for such arguments; none where the module itself runs."""
        tuned = self._tuned(arguments)
        return () if tuned is None else tuned.function.explain()

    def clear_cache(self) -> None:
        """Forgets what was found, so that newer records and values are seen."""
        self.variants.clear()

    def _tuned(self, arguments: tuple[Any, ...]) -> Tuned | None:
        modules = list(self.module.modules())
        if not are_plain(arguments) or any(m.training for m in modules):
            return None
        held = [t for m in modules for t in (*m._parameters.values(), *m._buffers.values())]
        parameters = [t for t in held if t is not None]
        if need_gradients(*parameters, *arguments):
            return None
        return self.variants.tuned(lambda: self.module, arguments, parameters)
