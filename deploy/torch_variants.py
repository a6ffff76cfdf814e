"""Programs of a PyTorch module with tuned kernels, one for each kind of arguments."""

import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
from numpy.typing import NDArray

from hlotune.deploy.apply import TunedFunction, applied
from hlotune.hlo.frontends.program import LoadedModule, from_module
from hlotune.measure.machine.targets import host_target
from hlotune.schedules.errors import ProgramError, TargetError
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.targets.cpu import HOST_PLATFORM
from hlotune.tuning_logs.default_path import database_path

LOG = logging.getLogger("hlotune.compile")
SAMPLES = 32
"""Elements of a parameter that each call looks at: PyTorch counts no changes through `.data`."""
MOST_VARIANTS = 64
"""Kinds of arguments that get a program of their own; PyTorch runs the module for others."""


@dataclass(frozen=True)
class Tuned:
    """A program for some types of inputs, with its kernels."""

    loaded: LoadedModule
    function: TunedFunction

    def __call__(self, tensors: Iterable[Any]) -> Any:
        with jax.enable_x64(True):
            given = [jax.dlpack.from_dlpack(t.detach().contiguous()) for t in tensors]
            leaves = jax.tree.leaves(self.function(*given))
            for leaf in leaves:  # the caller may change its tensors after the call
                leaf.block_until_ready()
        return self.loaded.function.joined(leaves, sys.modules["torch"].utils.dlpack.from_dlpack)


@dataclass(eq=False)
class Variants:
    """What is known of a module for each kind of arguments, while its parameters stay the same."""

    name: str
    """What messages call the module."""
    database: str | Path | None
    numerics: Numerics
    refusals: int = logging.INFO
    """The level of the logger `hlotune.compile` at which a refused module is said."""
    may_copy: bool = True
    """Whether results may be copies where PyTorch's are views of arguments or of one another."""
    _known: dict[Any, Tuned | None] = field(default_factory=dict)
    _state: tuple[Any, ...] = ()
    _sampled: list[NDArray[Any]] = field(default_factory=list)
    """Some elements of each parameter, in its own memory."""
    _samples: bytes = b""
    """The values that these had."""

    def clear(self) -> None:
        """Forgets all of it."""
        self._known.clear()

    def tuned(
        self,
        module: Callable[[], Any],
        arguments: tuple[Any, ...],
        parameters: Sequence[Any],
        numbers: tuple[Any, ...] = (),
    ) -> Tuned | None:
        """The program for such arguments; None where PyTorch shall run the module.

        Args:
            module: makes or gives the module, in evaluation and with the parameters of now.
            parameters: what the module holds, buffers among it.
            numbers: what else the module holds that may be others in the next call.
        """
        self._forget_others(parameters)
        kind = (numbers, *((a.shape, a.dtype) for a in arguments))
        if kind not in self._known:
            if len(self._known) == MOST_VARIANTS:
                return None
            self._known[kind] = self._found(module, arguments)
            self._tell_of_the_last()
        return self._known[kind]

    def _forget_others(self, parameters: Sequence[Any]) -> None:
        """Forgets what was made with other values of the parameters."""
        if (state := state_of(parameters)) != self._state:
            self._known.clear()
            self._state, self._samples = state, b""
            self._sampled = [view for p in parameters if (view := sampled(p)) is not None]
        if (samples := b"".join(view.tobytes() for view in self._sampled)) != self._samples:
            self._known.clear()
            self._samples = samples

    def _tell_of_the_last(self) -> None:
        if len(self._known) == MOST_VARIANTS:
            LOG.warning(
                "PyTorch runs %s for further shapes of arguments, as %d of them were looked up; "
                "pad arguments to fewer shapes",
                self.name, MOST_VARIANTS,
            )  # fmt: skip

    def _found(self, module: Callable[[], Any], arguments: tuple[Any, ...]) -> Tuned | None:
        path = database_path(self.database)
        if not path.exists():
            return None
        try:
            host_target()
            loaded = from_module(module(), arguments, self.name)
            if not self.may_copy:
                loaded.function.require_own_results()
        except (ProgramError, TargetError) as error:
            LOG.log(self.refusals, "PyTorch runs %s: %s", self.name, error)
            return None
        function = applied(loaded.program, database=path, numerics=self.numerics)
        if function.outdated:
            LOG.warning("PyTorch runs %s: %s", self.name, function.outdated)
        return Tuned(loaded, function) if function.replacements else None


def state_of(parameters: Iterable[Any]) -> tuple[Any, ...]:
    """What is another value once one of these tensors is replaced or changed in place."""
    return tuple((id(t), t.data_ptr(), 0 if t.is_inference() else t._version) for t in parameters)


def sampled(parameter: Any) -> NDArray[Any] | None:
    """Up to `SAMPLES` elements of a tensor, as whole numbers in the tensor's own memory.

    None where that memory is no plain array of the host's.
    """
    torch = sys.modules["torch"]
    plain = parameter.detach()
    if not are_plain([plain]) or plain.numel() == 0:
        return None
    dense = plain.permute(sorted(range(plain.dim()), key=plain.stride, reverse=True))
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32}.get(plain.itemsize, torch.int64)
    if not dense.is_contiguous():
        return None
    whole: NDArray[Any] = dense.reshape(-1).view(kind).numpy()
    return whole[:: max(1, -(-len(whole) // SAMPLES))]


def are_plain(arguments: Iterable[Any]) -> bool:
    """Whether these are tensors of PyTorch's own class whose values lie in the host's memory.

    The memory of a lazily negated or conjugated one has other values, and a call inside of
    `torch.autocast` computes with other types than what is exported.
    """
    torch = sys.modules["torch"]
    return not torch.is_autocast_enabled(HOST_PLATFORM) and all(
        type(a) is torch.Tensor
        and a.device.type == HOST_PLATFORM
        and a.layout is torch.strided
        and not (a.is_neg() or a.is_conj())
        for a in arguments
    )


def need_gradients(*tensors: Any) -> bool:
    """Whether PyTorch records what is computed of one of these."""
    recorded: bool = sys.modules["torch"].is_grad_enabled()
    return recorded and any(t.requires_grad for t in tensors)
