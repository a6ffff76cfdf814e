"""Runs the graph of an exported program over JAX's arrays."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp

from hlotune.hlo.frontends.pytorch.archive import Exported, dtype_of
from hlotune.hlo.frontends.pytorch.table import PREFIX, row_of
from hlotune.hlo.frontends.pytorch.types import Operation, Refusal, Value, is_tensor
from hlotune.schedules.errors import ProgramError

_ERRORS = (TypeError, ValueError, ArithmeticError, LookupError, NotImplementedError)
"""What rules raise, and JAX inside of them, of inputs that they are not written for."""
_PLAIN = ("as_int", "as_ints", "as_float", "as_floats", "as_bool", "as_bools", "as_string")
_NUMBERS = ("as_sym_int", "as_sym_bool", "as_sym_float")
_IGNORED = ("as_device", "as_layout", "as_memory_format")


def unknown_operations(program: Exported) -> tuple[str, ...]:
    """Names of operations that have no rule, each once."""
    targets = [node["target"] for node in nodes_in(program.graph)]
    return tuple(sorted({t.removeprefix("torch.ops.") for t in targets if row_of(t)[0] is None}))


def nodes_in(graph: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The nodes of a graph and of those inside of it."""
    for node in graph["nodes"]:
        yield node
        for named in node["inputs"]:
            if "as_graph" in named["arg"]:
                yield from nodes_in(named["arg"]["as_graph"]["graph"])


def require_known(program: Exported, path: str) -> None:
    """Raises ProgramError that names all operations without a rule."""
    if unknown := unknown_operations(program):
        raise ProgramError(
            f"expected operations of PyTorch that hlotune has rules for in {path}, got "
            f"{', '.join(unknown)}; save exported.run_decompositions(), which writes many as "
            "others, or leave them out of the module"
        )


def run_graph(program: Exported, arguments: Sequence[Value], path: str) -> list[Value]:
    """The values that the module returns, numbers and None among them.

    Args:
        arguments: arrays, in the order of `program.arguments`.
    """
    values = {name: jnp.asarray(t) for name, t in program.tensors.items()}
    values |= dict(zip(program.arguments, arguments, strict=True))
    run = _ran(program.graph, values, path)
    results = []
    for spec in program.signature["output_specs"]:
        ((kind, what),) = spec.items()
        if kind != "user_output":
            raise ProgramError(
                f"expected a module in {path} that changes nothing but its results, got a "
                f"{kind.replace('_', ' ')}; call module.eval() before the export"
            )
        results.append(run.value(what["arg"]))
    return results


def _ran(graph: Mapping[str, Any], values: dict[str, Value], path: str) -> "_Run":
    """All nodes of a graph, run on what it is given."""
    run = _Run(values, path, frozenset(values), _last_uses(graph))
    for place, node in enumerate(graph["nodes"]):
        run.step(place, node)
    return run


def shared_results(program: Exported) -> list[str]:
    """Names of results that may lie in the memory of an argument, a tensor or another result."""
    shared: dict[str, str] = {}
    for node in program.graph["nodes"]:
        row, changes = row_of(node["target"])
        first = _first_tensor(node)
        if first is not None and row is not None and (row.is_view or changes):
            shared |= dict.fromkeys(_names(node["outputs"]), shared.get(first, first))
    taken, found = {*program.arguments, *program.tensors}, []
    for result in (name for output in program.graph["outputs"] for name in _read(output)):
        memory = shared.get(result, result)
        if memory in taken:
            found.append(result)
        taken.add(memory)
    return found


@dataclass
class _Run:
    """Values by name, and which of them share memory."""

    values: dict[str, Value]
    path: str
    given: frozenset[str]
    """Arguments, parameters, buffers and constants."""
    last_uses: Mapping[str, int]
    """Numbers of nodes; that behind the last node for a result of the graph."""
    shared: dict[str, str] = field(default_factory=dict)
    """The name of the first of those whose memory a value may share."""
    same: dict[str, str] = field(default_factory=dict)
    """The name of the first of those that are one tensor, changed in place."""
    makers: dict[str, str] = field(default_factory=dict)
    """The operation that gave a value."""

    def step(self, place: int, node: Mapping[str, Any]) -> None:
        target = node["target"]
        row, changes = row_of(target)
        assert row is not None, target
        inputs = [(i["name"], self.value(i["arg"])) for i in node["inputs"]]
        try:
            unnamed = [value for name, value in inputs if not name]
            made = row.rule(*unnamed, **{name: value for name, value in inputs if name})
        except ProgramError:  # of a node in a branch, which says all of it
            raise
        except Refusal as refusal:
            raise ProgramError(
                f"expected what hlotune has a rule for in {self.path}, got {refusal}"
            ) from refusal
        except _ERRORS as error:
            said = " ".join(str(error).split())[:300]
            raise ProgramError(
                f"expected inputs that the rule of {target.removeprefix(PREFIX)} takes in "
                f"{self.path}, got others ({said}); leave that out of the module, or save "
                "exported.run_decompositions()"
            ) from error
        self._keep(place, node, row, made, changes)

    def _keep(
        self, place: int, node: Mapping[str, Any], row: Operation, made: Value, changes: bool
    ) -> None:
        first = _first_tensor(node)
        if changes and first is not None:
            made = self._changed(place, node["target"], first, made)
        results = made if isinstance(made, tuple) else (made,)
        self.makers |= dict.fromkeys(_names(node["outputs"]), node["target"].removeprefix(PREFIX))
        for name, value in zip(_names(node["outputs"]), results, strict=False):
            self.values[name] = value
            if first is not None and (row.is_view or changes):
                self.shared[name] = self.shared.get(first, first)
            if first is not None and changes:
                self.same[name] = self.same.get(first, first)

    def _changed(self, place: int, target: str, first: str, made: Value) -> Value:
        """The new value of a tensor that an operation changes; nothing else may see it change."""
        own, memory = self.same.get(first, first), self.shared.get(first, first)
        seen = any(
            self.shared.get(name, name) == memory and self.same.get(name, name) != own
            for name in self.values
            if self.last_uses.get(name, -1) > place
        )
        if seen or memory in self.given:
            whose = "that another tensor is seen through" if seen else "of its inputs or weights"
            raise ProgramError(
                f"expected no change of memory {whose} in {self.path}, got "
                f"{target.removeprefix(PREFIX)} of it; call module.eval() and save "
                "exported.run_decompositions(), or write it without operations in place"
            )
        made = jnp.asarray(made).astype(self.values[first].dtype)
        for name in list(self.values):
            if self.same.get(name, name) == own:
                self.values[name] = made
        return made

    def value(self, argument: Mapping[str, Any]) -> Value:
        """What an argument of a node, or a result, is."""
        ((kind, what),) = argument.items()
        if kind == "as_none":
            return None
        if kind == "as_tensor":
            return self._tensor(what["name"])
        if kind in ("as_tensors", "as_nested_tensors"):
            return [self._tensor_or_size(t["name"]) for t in what]
        if kind == "as_optional_tensors":
            return [self.value(t) for t in what]
        if kind in _PLAIN:
            return [_plain(one) for one in what] if isinstance(what, list) else _plain(what)
        if kind == "as_complex":
            return complex(_plain(what["real"]), _plain(what["imag"]))
        if kind == "as_scalar_type":
            return dtype_of(what, f"results in {self.path}")
        if kind in _IGNORED:
            return None
        if kind in _NUMBERS:
            if "as_name" in what:
                return self.values[what["as_name"]]
            return _plain(next(iter(what.values())))
        if kind == "as_graph":
            return self._inner(what["graph"])
        if kind == "as_sym_ints":
            return [self.value({"as_sym_int": one}) for one in what]
        raise ProgramError(
            f"expected tensors and numbers in {self.path}, got {kind.removeprefix('as_')}; export "
            "the module with static shapes, and without objects of its own"
        )

    def _inner(self, graph: Mapping[str, Any]) -> Callable[..., list[Value]]:
        """A graph inside of this one, as a function of its inputs."""
        names = _names(graph["inputs"])

        def function(*operands: Value) -> list[Value]:
            run = _ran(graph, dict(zip(names, operands, strict=True)), self.path)
            return [run.value(output) for output in graph["outputs"]]

        return function

    def _tensor_or_size(self, name: str) -> Value:
        """One of a list of tensors, or a size: torch lists the sizes a branch takes among them."""
        value = self.values.get(name)
        return value if isinstance(value, int) else self._tensor(name)

    def _tensor(self, name: str) -> Value:
        value = self.values.get(name)
        if not is_tensor(value):
            raise ProgramError(
                f"expected results that hlotune computes in {self.path}, got {name}, which it does "
                f"not compute of {self.makers.get(name, 'any operation')}; leave it out of the "
                "module"
            )
        return value


def _plain(value: Any) -> Any:
    """A number, truth or text; JSON has no numbers that are not finite, and names them instead."""
    return float(value) if value in ("Infinity", "-Infinity", "NaN") else value


def _first_tensor(node: Mapping[str, Any]) -> str | None:
    inputs = node["inputs"]
    named = inputs[0]["arg"].get("as_tensor") if inputs else None
    return named["name"] if named else None


def _names(outputs: Sequence[Mapping[str, Any]]) -> list[str]:
    found = []
    for output in outputs:
        ((kind, what),) = output.items()
        if kind == "as_tensors":
            found += [t["name"] for t in what]
        elif kind in _NUMBERS:
            found.append(what.get("as_name", ""))
        else:
            found.append(what["name"] if kind == "as_tensor" else "")
    return found


def _last_uses(graph: Mapping[str, Any]) -> dict[str, int]:
    """For each tensor the number of the last node that reads it."""
    last: dict[str, int] = {}
    for place, node in enumerate(graph["nodes"]):
        for named in node["inputs"]:
            last |= dict.fromkeys(_read(named["arg"]), place)
    end = len(graph["nodes"])
    for output in graph["outputs"]:
        last |= dict.fromkeys(_read(output), end)
    return last


def _read(argument: Any) -> list[str]:
    ((kind, what),) = argument.items()
    if kind == "as_tensor":
        return [what["name"]]
    if kind in ("as_tensors", "as_nested_tensors"):
        return [t["name"] for t in what]
    return [n for t in what for n in _read(t)] if kind == "as_optional_tensors" else []
