"""Modules of PyTorch in memory: exported by torch, then read as their files are."""

import inspect
import io
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import torch
from torch.utils import _pytree as trees

from hlotune.hlo.frontends.pytorch.archive import Exported, exported
from hlotune.hlo.frontends.pytorch.graphs import require_known, run_graph, shared_results
from hlotune.hlo.frontends.pytorch.types import is_tensor
from hlotune.schedules.errors import ProgramError

_NO_RULE = "expected operations of PyTorch that hlotune has rules for"


@dataclass(frozen=True, slots=True)
class ExportedModule:
    """A module as `torch.export` has it."""

    program: Exported
    arguments: Any
    """How `(arguments, {})` is put together, as a tree of PyTorch's, dicts in their order."""
    results: Any
    """How results are put together, as a tree of PyTorch's."""


def exports(
    module: torch.nn.Module, arguments: tuple[Any, ...], source: str
) -> Iterator[ExportedModule]:
    """The module with its operations as they are, then as fewer kinds of them that change nothing.

    Raises:
        ProgramError: torch does not export it.
    """
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = torch.export.export(module, arguments)
        except Exception as error:
            said = " ".join(f"{type(error).__name__}: {error}".split())[:500]
            raise ProgramError(
                f"expected a module that torch.export takes with {len(arguments)} arguments, got "
                f"{said}; check {source} with torch.export.export(module, arguments)"
            ) from error
        first = _saved(made, source)
    yield first
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            second = _saved(made.run_decompositions(), source)
        except Exception as error:  # as for arguments that share memory and are changed
            said = " ".join(f"{type(error).__name__}: {error}".split())[:500]
            raise ProgramError(
                f"expected a module whose operations torch.export decomposes, got {said}; check "
                f"{source} with torch.export.export(module, arguments).run_decompositions()"
            ) from error
    yield second


def _saved(made: torch.export.ExportedProgram, source: str) -> ExportedModule:
    made.example_inputs = None  # they would be pickled
    for held in (made.state_dict, made.constants):
        for name, value in held.items():
            if isinstance(value, torch.Tensor) and (value.is_conj() or value.is_neg()):
                is_weight = isinstance(value, torch.nn.Parameter)
                held[name] = torch.nn.Parameter(plain(value)) if is_weight else plain(value)
    written = io.BytesIO()
    torch.export.save(made, written)
    return ExportedModule(
        exported(written.getvalue(), source), made.call_spec.in_spec, made.call_spec.out_spec
    )


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy whose numbers are in memory as they are: PyTorch conjugates and negates
    when it reads, and files and other libraries know nothing of it."""
    return tensor.resolve_conj().resolve_neg()


def lacks_rules(error: ProgramError) -> bool:
    """Whether it names operations without a rule, which decompositions may replace."""
    return str(error).startswith(_NO_RULE)


def signature_of(module: torch.nn.Module) -> inspect.Signature:
    """The signature of the module's `forward`."""
    return inspect.signature(module.forward)


def tensors_in(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with tensors in place of arrays and shapes; raises ProgramError for others."""
    return tuple(trees.tree_map(_tensor, a) for a in arguments)


def _tensor(leaf: Any) -> Any:
    if leaf is None or isinstance(leaf, torch.Tensor):
        return leaf
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return torch.zeros(leaf.shape, dtype=getattr(torch, np.dtype(leaf.dtype).name))
    if isinstance(leaf, np.ndarray):
        return torch.from_numpy(leaf)
    if isinstance(leaf, jax.Array):
        return torch.utils.dlpack.from_dlpack(leaf)
    raise ProgramError(
        f"expected tensors as example arguments of a module of PyTorch, got {type(leaf).__name__}; "
        "give a module that has this value inside of it"
    )


def arrays(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with arrays of JAX in place of tensors, copied."""
    return tuple(trees.tree_map(lambda t: None if t is None else _array(t), a) for a in arguments)


def _array(tensor: torch.Tensor) -> jax.Array:
    whole = plain(tensor.detach()).contiguous().cpu()
    return jax.numpy.array(jax.dlpack.from_dlpack(whole), copy=True)


@dataclass(eq=False)
class ModuleFunction:
    """A module as a function of JAX's arrays, which gives dicts, lists and tuples of them."""

    exported: ExportedModule
    source: str
    __signature__: inspect.Signature
    results: list[Any] = field(default_factory=list)
    """The results of the last trace, in PyTorch's order: numbers and None stand for themselves."""

    def __post_init__(self) -> None:
        require_known(self.exported.program, self.source)

    def __call__(self, *arguments: Any) -> Any:
        given = self.exported.arguments.flatten_up_to((arguments, {}))
        leaves = [a for a in given if a is not None]
        self.results = run_graph(self.exported.program, leaves, self.source)
        return _plain(trees.tree_unflatten(self.results, self.exported.results))

    def require_own_results(self) -> None:
        """Raises ProgramError where a result is a view of an argument, or two are of one tensor."""
        if shared := shared_results(self.exported.program):
            raise ProgramError(
                f"expected results of {self.source} with memory of their own, got {shared[0]}, a "
                "view of an argument, of a weight or of another result; return a copy of it"
            )

    def joined(self, leaves: list[Any], convert: Any) -> Any:
        """The results of a call in the containers of the module, each converted from JAX's leaf."""
        numbered = [None if r is None else n for n, r in enumerate(self.results)]
        order = jax.tree.leaves(_plain(trees.tree_unflatten(numbered, self.exported.results)))
        found: list[Any] = list(self.results)
        for place, leaf in zip(order, leaves, strict=True):
            if is_tensor(found[place]):
                found[place] = convert(leaf)
        return trees.tree_unflatten(found, self.exported.results)


def _plain(tree: Any) -> Any:
    """The same values in containers that JAX knows."""
    if isinstance(tree, Mapping):
        return {name: _plain(value) for name, value in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(_plain(value) for value in tree)
    return tree


class CapturedGraph(torch.nn.Module):
    """A graph of Dynamo with its parameters, buffers and numbers inside of it, in evaluation."""

    def __init__(self, graph: torch.fx.GraphModule, held: Mapping[int, Any], count: int) -> None:
        """`held` are inputs by their positions among `count`; `forward` takes the others."""
        super().__init__()
        self.graph, self.count, self.held = with_scalars(graph), count, {}
        for k, value in held.items():
            if isinstance(value, torch.nn.Parameter):
                self.register_parameter(f"input{k}", value)
            elif isinstance(value, torch.Tensor):
                self.register_buffer(f"input{k}", value)
            else:
                setattr(self, f"input{k}", value)
            self.held[k] = f"input{k}"
        self.eval()

    def forward(self, *given: Any) -> Any:
        waiting = iter(given)
        return self.graph(
            *(
                getattr(self, self.held[k]) if k in self.held else next(waiting)
                for k in range(self.count)
            )
        )


def with_scalars(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The same graph, but for scalar inputs that stay tensors where it takes their numbers.

    Dynamo makes such an input of a float that was another one in the call before; a tensor of no
    axes changes no type that a number does not.
    """
    changed = torch.fx.Graph()
    output = changed.graph_copy(graph.graph, {})
    changed.output(output)
    for node in list(changed.nodes):
        if (node.op, node.target) == ("call_method", "item") and node.args[0].op == "placeholder":
            node.replace_all_uses_with(node.args[0])
            changed.erase_node(node)
    return torch.fx.GraphModule(graph, changed)


def fixed_inputs(graph: torch.fx.GraphModule) -> frozenset[int]:
    """Positions of the inputs of a graph of Dynamo that are parameters and buffers of modules."""
    places = [node for node in graph.graph.nodes if node.op == "placeholder"]
    return frozenset(
        k for k, node in enumerate(places)
        if "_dynamo_static_input_type" in node.meta.get("tensor_dict", {})
    )  # fmt: skip


def place_of(graph: torch.fx.GraphModule) -> str:
    """The file and the line that a graph of Dynamo begins at, as far as it is known."""
    for node in graph.graph.nodes:
        lines = [x.strip() for x in (node.stack_trace or "").splitlines()]
        if found := [x for x in lines if x.startswith("File ")]:
            return found[-1].removeprefix("File ").rpartition(", in ")[0]
    return "unknown place"
