"""How many of ONNX's own backend tests hlotune passes: `python -m benchmarks.onnx_nodes`.

The cases come with the package onnx: one node each, and models that PyTorch exported.  Each is
loaded as any model file, run by XLA, and compared with the results that ONNX gives, by its
tolerances.  Inputs that decide shapes, as the axes of a reduction, are made initialisers with the
case's values, and counted.  So are cases whose results are right only where XLA compiles them
without its fusions for YNNPACK: some of these read memory that nothing has written.
"""

import argparse
import fnmatch
import json
import math
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from benchmarks.command import command
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import Program, load
from hlotune.schedules.errors import ProgramError

RESULTS = Path("build/onnx_nodes.json")
FOLDERS = ("pytorch-converted", "pytorch-operator", "simple")
RTOL, ATOL, BFLOAT16_RTOL = 1e-3, 1e-7, 2**-6
"""The tolerances of ONNX's own runner."""
_KEPT_EACH = 50
"""Cases after which results are written."""
_COMPUTED = "is computed from arguments of the program"
_WITHOUT_YNNPACK: Mapping[str, bool | int | str] = {"xla_cpu_experimental_ynn_fusion_type": ""}

State = Literal["passed", "refused", "wrong"]


@dataclass(frozen=True, slots=True)
class Case:
    """A model, and for each of its data sets the inputs and the results."""

    name: str
    model: Any
    data: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    rtol: float = RTOL
    atol: float = ATOL


@dataclass(frozen=True, slots=True)
class Outcome:
    name: str
    is_static: bool
    """Whether all inputs and results are tensors of numbers and of static shape."""
    state: State
    fixed: int = 0
    """Inputs that were made initialisers."""
    why: str = ""
    without_ynnpack: bool = False
    """Whether results are right only without XLA's fusions for YNNPACK."""


def cases() -> Iterator[Case]:
    """All cases that come with onnx; those of whole networks have weights of one value."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nodes = collect_testcases(None)
    for node in nodes:
        data = [(list(map(_array, i)), list(map(_array, o))) for i, o in node.data_sets]
        yield Case(node.name, node.model, data, node.rtol, node.atol)
    folder = Path(onnx.__file__).parent / "backend/test/data"
    for kind in FOLDERS:
        for path in sorted((folder / kind).glob("*/model.onnx")):
            model = onnx.load(path)
            data = [_data_of(d, model) for d in sorted(path.parent.glob("test_data_set_*"))]
            yield Case(f"{kind}/{path.parent.name}", model, data)
    for path in sorted((folder / "light").glob("*.onnx")):
        yield _network(path)


def _network(path: Path) -> Case:
    """A network of the model zoo; its input is as ONNX's runner makes it."""
    model = onnx.load(path)
    stored = {t.name for t in model.graph.initializer}
    (free,) = (i for i in model.graph.input if i.name not in stored)
    shape = [d.dim_value for d in free.type.tensor_type.shape.dim]
    image = (np.arange(math.prod(shape)).reshape(shape) / math.prod(shape)).astype(np.float32)
    inputs = [image if i.name == free.name else None for i in model.graph.input]
    result = _stored(path.with_name(f"{path.stem}_output_0.pb"))
    return Case(f"light/{path.stem}", model, [(inputs, [result])])


def _data_of(folder: Path, model: Any) -> tuple[list[Any], list[Any]]:
    def values(stem: str, count: int) -> list[Any]:
        return [_stored(folder / f"{stem}_{n}.pb") for n in range(count)]

    return values("input", len(model.graph.input)), values("output", len(model.graph.output))


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def _stored(path: Path) -> Any:
    if not path.exists():
        return None
    tensor = TensorProto()
    try:
        tensor.ParseFromString(path.read_bytes())
        return numpy_helper.to_array(tensor)
    except Exception:  # a sequence, or an optional value
        return None


def is_static(model: Any) -> bool:
    """Whether all inputs and results of a model are tensors of numbers and of static shape."""
    for value in (*model.graph.input, *model.graph.output):
        if not value.type.HasField("tensor_type"):
            return False
        tensor = value.type.tensor_type
        sizes = tensor.shape.dim
        if tensor.elem_type == TensorProto.STRING or not tensor.HasField("shape"):
            return False
        if not all(d.HasField("dim_value") for d in sizes):
            return False
    return True


def outcome(case: Case, folder: Path) -> Outcome:
    """Loads and runs a case; refused where hlotune says so in an error of its own."""
    static, most, without = is_static(case.model), 0, False
    for inputs, wanted in case.data:
        for kinds in ("", "iub", "iubf"):
            model, kept = with_initialisers(case.model, inputs, kinds)
            path = folder / "model.onnx"
            path.write_bytes(model.SerializeToString())
            try:
                program, given = load(path), [inputs[n] for n in kept]
                why = difference(jitted(program)(*given), wanted, case)
                if why and not difference(_without_ynnpack(program, given), wanted, case):
                    why, without = "", True
            except ProgramError as error:
                if _COMPUTED in str(error) and kinds != "iubf":
                    continue
                return Outcome(case.name, static, "refused", why=str(error))
            except Exception as error:  # the table shall say so, and go on
                return Outcome(case.name, static, "wrong", why=f"{type(error).__name__}: {error}")
            most = max(most, len(inputs) - len(kept))
            if why:
                return Outcome(case.name, static, "wrong", most, why)
            break
    return Outcome(case.name, static, "passed", most, without_ynnpack=without)


def _without_ynnpack(program: Program, inputs: Sequence[Any]) -> Any:
    return jitted(program, compiler_options=_WITHOUT_YNNPACK)(*inputs)


def with_initialisers(model: Any, inputs: Sequence[Any], kinds: str) -> tuple[Any, list[int]]:
    """The model with vectors and scalars of some kinds of types among its inputs made
    initialisers, and the inputs that are left, by position."""
    made, kept = type(model)(), []
    made.CopyFrom(model)
    del made.graph.input[:]
    stored = {t.name for t in model.graph.initializer}
    for n, (value, array) in enumerate(zip(model.graph.input, inputs, strict=False)):
        if value.name in stored:
            made.graph.input.append(value)
        elif (
            isinstance(array, np.ndarray | np.generic)
            and array.ndim < 2
            and array.dtype.kind in kinds
        ):
            made.graph.initializer.append(numpy_helper.from_array(np.asarray(array), value.name))
        else:
            made.graph.input.append(value)
            kept.append(n)
    return made, kept


def difference(got: Sequence[Any], wanted: Sequence[Any], case: Case) -> str:
    """What is wrong with results; empty where nothing is."""
    if len(got) != len(wanted):
        return f"{len(got)} results in place of {len(wanted)}"
    for n, (g, w) in enumerate(zip(map(np.asarray, got), map(np.asarray, wanted), strict=True)):
        if (g.shape, g.dtype) != (w.shape, w.dtype):
            return f"result {n} is {g.dtype}{list(g.shape)} in place of {w.dtype}{list(w.shape)}"
        exact = w.dtype.kind in "iub"
        a, b = (v if exact else v.astype(np.float64) for v in (g, w))
        rtol = max(case.rtol, BFLOAT16_RTOL) if w.dtype.name == "bfloat16" else case.rtol
        try:
            np.testing.assert_allclose(a, b, rtol, max(case.atol, _cancelled(w)))
        except AssertionError as error:
            return f"result {n}: {' '.join(str(error).split())[:300]}"
    return ""


def _cancelled(wanted: Any) -> float:
    """What is left of the largest result where values of f32 cancel: a unit in its last place."""
    if wanted.dtype != np.float32:
        return 0.0
    finite = np.abs(wanted[np.isfinite(wanted)])
    return float(np.finfo(np.float32).eps) * float(finite.max(initial=0))


def table(outcomes: Sequence[Outcome]) -> str:
    """How many pass, of all and of those whose inputs and results are numeric and static."""
    lines = ["| cases | all | passed | refused | wrong |", "|---|---|---|---|---|"]
    for title, chosen in (
        ("all", outcomes),
        ("numeric tensors of static shape", [o for o in outcomes if o.is_static]),
    ):
        states = Counter(o.state for o in chosen)
        share = f" ({states['passed'] / max(1, len(chosen)):.1%})"
        lines.append(
            f"| {title} | {len(chosen)} | {states['passed']}{share} | {states['refused']} "
            f"| {states['wrong']} |"
        )
    fixed = sum(1 for o in outcomes if o.state == "passed" and o.fixed)
    lines.append(f"\n{fixed} cases pass with inputs that decide shapes made initialisers.")
    if names := [o.name for o in outcomes if o.without_ynnpack]:
        lines.append(f"Right only without XLA's fusions for YNNPACK: {', '.join(names)}.")
    return "\n".join(lines)


def keep(outcomes: Iterable[Outcome], path: Path) -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(json.dumps([asdict(o) for o in outcomes], indent=0))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="*", default=["*"], help="patterns of names")
    parser.add_argument("--part", default="1/1", help="one of several parts, as in 2/4")
    parser.add_argument("--results", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    part, parts = map(int, chosen.part.split("/"))
    before = json.loads(chosen.results.read_text()) if chosen.results.exists() else []
    found = {o["name"]: Outcome(**o) for o in before} if part > 1 else {}
    fitting = [c for c in cases() if any(fnmatch.fnmatch(c.name, p) for p in chosen.cases)]
    with tempfile.TemporaryDirectory() as folder:
        for n, case in enumerate(fitting):
            if n % parts != part - 1:
                continue
            made = found[case.name] = outcome(case, Path(folder))
            if made.state != "passed":
                print(f"{made.state} {made.name}: {made.why}", flush=True)
            if len(found) % _KEPT_EACH == 0:
                keep(found.values(), chosen.results)
                jax.clear_caches()  # type: ignore[no-untyped-call]
    keep(found.values(), chosen.results)
    print(table(list(found.values())))
    return any(o.state == "wrong" for o in found.values())


if __name__ == "__main__":
    command(main)
