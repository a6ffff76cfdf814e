"""The backend "hlotune" of `torch.compile`: tuned kernels in the graphs that Dynamo captures.

pyproject.toml names `backend` as an entry point of the group `torch_dynamo_backends`, where torch
looks for a backend of that name when it is asked for.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from hlotune.deploy.torch_variants import (
    LOG,
    Tuned,
    Variants,
    are_plain,
    need_gradients,
)
from hlotune.measure.trial import require_one_of
from hlotune.schedules.errors import ProgramError
from hlotune.schedules.numerics import NUMERICS

OPTIONS = ("database", "numerics")


def backend(
    graph: Any, examples: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """A function of a graph's inputs that runs tuned kernels where the database has them.

    `torch.compile(model, backend="hlotune", options={"database": "tuning.db"})` calls it with each
    graph that Dynamo captures.  At the first call with tensors of new shapes and types the graph is
    exported and its kernels are looked up, as `hlotune.compile` does it for a whole module;
    parameters and buffers are constants, made anew once one is replaced or changed in place.
    Changes inside of `.data`, and of parameters made in `torch.inference_mode()`, are seen where
    they reach one of 32 elements of each tensor that every call looks at: else call
    `torch._dynamo.reset()`.  PyTorch runs a graph for which nothing is recorded, and
    calls inside of `torch.autocast`.  It also runs a graph that hlotune does not take, and calls
    that record gradients: the logger `hlotune.compile` then has one warning that says why.

    Args:
        graph: a `torch.fx.GraphModule`.
        options: `database`, by default HLOTUNE_DB, else a file in the user's cache, and `numerics`.

    Raises:
        ProgramError: there is no such option.
        ValueError: there is no such setting of numerics.
    """
    given = dict(options or {})
    if unknown := [name for name in given if name not in OPTIONS]:
        raise ProgramError(
            f"expected the options {' and '.join(OPTIONS)} of the backend hlotune, got "
            f"{', '.join(unknown)}; leave others out"
        )
    numerics = given.get("numerics", "standard")
    require_one_of(NUMERICS, numerics, "setting of numerics")
    # by its name: the one module that needs torch, which is there where it asks for a backend
    modules = import_module("hlotune.hlo.frontends.pytorch.modules")
    name = f"a graph of torch.compile, {modules.place_of(graph)}"
    variants = Variants(
        name, given.get("database"), numerics, refusals=logging.WARNING, may_copy=False
    )
    return Subgraph(graph, modules.fixed_inputs(graph), modules.CapturedGraph, variants)


@dataclass(eq=False)
class Subgraph:
    """A graph of Dynamo, called in its place."""

    graph: Any
    fixed: frozenset[int]
    """Positions of inputs that are parameters and buffers."""
    module: Callable[..., Any]
    """Makes a module of the graph and of inputs that it holds."""
    variants: Variants
    is_training_said: bool = False

    def __call__(self, *inputs: Any) -> Any:
        held = {
            k: x for k, x in enumerate(inputs)
            if k in self.fixed or isinstance(x, int | float | bool)
        }  # fmt: skip
        given = tuple(x for k, x in enumerate(inputs) if k not in held)
        tuned = self._tuned(held, given)
        return self.graph(*inputs) if tuned is None else tuned(given)

    def _tuned(self, held: Mapping[int, Any], given: tuple[Any, ...]) -> Tuned | None:
        if not are_plain(given):
            return None
        tensors = [x for k, x in held.items() if k in self.fixed]
        if need_gradients(*tensors, *given):
            self._tell_of_training()
            return None
        numbers = tuple((k, x) for k, x in held.items() if k not in self.fixed)
        return self.variants.tuned(
            lambda: self.module(self.graph, held, len(held) + len(given)),
            given,
            tensors,
            numbers,
        )

    def _tell_of_training(self) -> None:
        if not self.is_training_said:
            self.is_training_said = True
            LOG.warning(
                "PyTorch runs %s: expected inference, got tensors whose gradients are recorded; "
                "call it inside torch.no_grad()",
                self.variants.name,
            )
