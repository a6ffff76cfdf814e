"""The programs of `examples/` that are tuned and timed whole."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import jax

from hlotune.hlo.frontends.program import Program, load
from hlotune.schedules.errors import ProgramError


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A program by the name that `make bench-models MODELS=...` takes.

    Args:
        source: the file in `examples/` with the factory.
        schedules_of: an example whose records it takes instead of being tuned.
        weights_outside: whether XLA has the constant weights as arguments too: as constants of the
            text they would be there several times.
        trains: whether the first result is the first argument of the next call, which is donated.
        has_ties: whether roundings decide which way gradients go, as behind maxima of images: its
            results are then held against how far XLA's own go where its inputs are nudged.
        goal_s: what a call may take at most, where there is such a promise.
    """

    name: str
    source: str
    schedules_of: str = ""
    weights_outside: bool = False
    trains: bool = False
    has_ties: bool = False
    goal_s: float | None = None

    @property
    def path(self) -> str:
        return f"examples/{self.source}"

    def made(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """What its factory gives: a function, and arguments to call it with.

        Raises ProgramError where a package is missing.
        """
        file, _, factory = self.source.partition(".py:")
        found: tuple[Callable[..., Any], tuple[Any, ...]]
        try:
            found = getattr(import_module(f"examples.{file}"), factory)()
        except ImportError as error:
            raise ProgramError(str(error)) from error
        return found

    def jitted(
        self, function: Callable[..., Any], options: Mapping[str, bool | int | str] | None = None
    ) -> Any:
        """`jax.jit` of its function, with options of XLA; a step of training gives its state
        away.
        """
        donated = (0,) if self.trains else ()
        return jax.jit(function, donate_argnums=donated, compiler_options=dict(options or {}))

    def program(self) -> Program:
        """Raises ProgramError."""
        function, arguments = self.made()
        return load(self.jitted(function), *arguments)


EXAMPLES: dict[str, Example] = {
    example.name: example
    for example in (
        Example(name="resnet18", source="resnet.py:resnet18", goal_s=9.0e-3),
        Example(name="resnet50", source="resnet.py:resnet50", goal_s=29e-3),
        Example(name="vgg19", source="vgg19.py:model", goal_s=62e-3),
        Example(name="mobilenet", source="mobilenet.py:model", goal_s=3.0e-3),
        Example(name="bert_base", source="bert_base.py:frozen", goal_s=102e-3),
        Example(name="mlp", source="mlp.py:batch_1000", goal_s=0.97e-3),
        Example(name="resnet18_nchw", source="resnet.py:resnet18_nchw"),
        Example(name="resnet50_nchw", source="resnet.py:resnet50_nchw"),
        Example(name="mobilenet_nchw", source="mobilenet.py:nchw"),
        Example(name="vgg19_10", source="vgg19.py:batch_10"),
        Example(name="vgg19_100", source="vgg19.py:batch_100", schedules_of="vgg19_10"),
        Example(name="vgg19_gradient", source="vgg19.py:gradient", has_ties=True),
        Example(name="vgg19_gradient_10", source="vgg19.py:gradient_10", has_ties=True),
        Example(name="squeezenet", source="squeezenet.py:model"),
        Example(name="gpt2_prefill", source="gpt2.py:prefill"),
        Example(name="gpt2_decode", source="gpt2.py:decode"),
        Example(name="llama_prefill", source="llama.py:prefill", weights_outside=True),
        Example(name="llama_decode", source="llama.py:decode", weights_outside=True, goal_s=50e-3),
        Example(name="lstm", source="lstm.py:model"),
        Example(name="dcgan", source="dcgan.py:model"),
        Example(name="unet", source="unet.py:model"),
        Example(name="mnist_training", source="mnist_training.py:model", trains=True),
        Example(name="resnet18_training", source="resnet.py:training", trains=True),
        Example(name="fire", source="fire.py:model"),
        Example(name="channel_flow", source="channel_flow.py:model"),
    )
}
"""The six networks that the peers run come first."""


def chosen(names: Iterable[str]) -> list[Example]:
    """The examples of these names; all where there are none.

    Raises ProgramError for a name that no example has.
    """
    wanted = list(names) or list(EXAMPLES)
    for name in wanted:
        if name not in EXAMPLES:
            raise ProgramError(
                f"expected one of {', '.join(EXAMPLES)}, got {name!r}; name one of these"
            )
    return [EXAMPLES[name] for name in wanted]
