"""How often each operation occurs in a program, before and after XLA optimizes it."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import jax

from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import Program, shape_of
from hlotune.hlo.graph import Graph

NAMES = {"dot-general": "dot", "broadcast-in-dim": "broadcast", "if": "conditional",
         "case": "conditional"}  # fmt: skip
"""HLO's names of operations that have another name in StableHLO."""
STEPS = ("stablehlo.while", "stablehlo.if", "stablehlo.case")
"""Operations whose regions are counted; regions of others are functions of scalars."""

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.-]+) .*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.-]+ = .*?[\])}] ([a-z][\w-]*)\(")
_CALLED = re.compile(
    r"(calls|to_apply|condition|body|true_computation|false_computation)=%?([\w.-]+)"
)
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_FUSION, _CALL = "fusion", "call"


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of operations by HLO's names, with those in loops and branches, without those in
    functions of scalars."""

    before: Mapping[str, int]
    after: Mapping[str, int]
    """Operations of the optimized program that run by themselves; a fusion counts as one."""
    fused: Mapping[str, int]
    """Operations of the optimized program that are inside fusions."""

    @property
    def names(self) -> list[str]:
        """The names of all operations, the most frequent first, equal ones by alphabet."""
        total = Counter(self.before) + Counter(self.after) + Counter(self.fused)
        return sorted(total, key=lambda name: (-total[name], name))


def counts_of(program: Program) -> Counts:
    """Counts the operations of a program, which XLA compiles as it does by default.

    Raises ProgramError where XLA does not compile it.
    """
    after, fused = counts_of_hlo(optimized_text(program))
    return Counts(Counter(_names(program.graph)), after, fused)


def _names(graph: Graph) -> Iterator[str]:
    yield from ("parameter" for _ in graph.arguments)
    yield from _operations(graph)


def _operations(graph: Graph) -> Iterator[str]:
    for op in graph.ops:
        name = op.name.partition(".")[2].replace("_", "-")
        yield NAMES.get(name, name)
        for region in op.regions if op.name in STEPS else ():
            yield from _operations(region)


def optimized_text(program: Program) -> str:
    """The HLO that XLA makes of a program, as text."""
    leaves = [shape_of(t) for t in program.graph.argument_types]
    arguments, named = leaves, {}
    if program.in_tree is not None:
        arguments, named = jax.tree.unflatten(program.in_tree, leaves)
    return jitted(program).lower(*arguments, **named).compile().as_text() or ""


def counts_of_hlo(text: str) -> tuple[Counter[str], Counter[str]]:
    """Counts of an optimized module: operations that run by themselves, those inside fusions."""
    bodies, kinds, entry = _computations(text), dict[str, str](), _entry(text)
    waiting = [(entry, "step")]
    while waiting:
        name, kind = waiting.pop()
        if name in kinds or name not in bodies:
            continue
        kinds[name] = kind
        for opcode, line in bodies[name]:
            waiting += [(called, _kind(opcode, kind)) for called in _called(line)]
    after, fused = Counter[str](), Counter[str]()
    for name, kind in kinds.items():
        if kind != "scalar":
            into = after if kind == "step" else fused
            into.update(opcode for opcode, _ in bodies[name])
    return after, fused


def _kind(opcode: str, around: str) -> str:
    """The kind of a computation: `fused`, `scalar`, or that of the one around the call.

    `opcode` is the operation that calls it, `around` the kind of the computation that holds it.
    """
    if opcode == _FUSION:
        return "fused"
    return around if opcode in (_CALL, "while", "conditional") else "scalar"


def _called(line: str) -> list[str]:
    lists = (name for found in _BRANCHES.findall(line) for name in found.split(","))
    return [name for _, name in _CALLED.findall(line)] + [n.strip().lstrip("%") for n in lists]


def _entry(text: str) -> str:
    found = next((line for line in text.splitlines() if line.startswith("ENTRY ")), "")
    match = _COMPUTATION.match(found)
    return match.group(1) if match else ""


def _computations(text: str) -> dict[str, list[tuple[str, str]]]:
    """For each computation, by name: the opcode and the text of each of its instructions."""
    bodies, inside = dict[str, list[tuple[str, str]]](), ""
    for line in text.splitlines():
        if match := _COMPUTATION.match(line):
            inside = match.group(1)
            bodies[inside] = []
        elif inside and (found := _INSTRUCTION.match(line)):
            bodies[inside].append((found.group(1), line))
    return bodies
