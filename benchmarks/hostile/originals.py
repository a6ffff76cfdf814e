"""Small sound files of every format that hlotune reads, made in a folder."""

import gzip
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax
from onnx import TensorProto, helper, numpy_helper

from benchmarks.hostile import mutations
from benchmarks.hostile.mutations import Edit
from hlotune.codegen.built import Built
from hlotune.costmodel.pretrained import shipped
from hlotune.deploy.apply import apply
from hlotune.deploy.artifact import save_artifact
from hlotune.deploy.freeze import freeze
from hlotune.deploy.replacement import built_here
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.mlir.module import bytecode_of
from hlotune.hlo.sites.sites import Site, sites
from hlotune.measure.machine.targets import host_target, toolchain
from hlotune.measure.timing.comparison import speedup
from hlotune.measure.trial import Candidate, Failure, Measurement, Outcome, Trial
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.schedules.steps.steps import Split
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.finals import Final, Paired
from hlotune.tuning_logs.records import export_records


@dataclass(frozen=True, slots=True)
class Format:
    """Files of one kind: how they are called, changed and read."""

    name: str
    file: str
    """Name of the original."""
    edits: Sequence[Edit]
    reader: str
    """`reader.READERS` has it."""


FORMATS = {
    f.file: f
    for f in (
        Format("StableHLO, text", "program.mlir", mutations.TEXT, "program"),
        Format("StableHLO, bytecode", "program.mlirbc", mutations.BYTES, "program"),
        Format("StableHLO, portable artifact", "exported.mlirbc", mutations.BYTES, "program"),
        Format("HLO, text", "program.hlo", mutations.TEXT, "program"),
        Format("HLO, protocol buffer", "program.pb", mutations.BYTES, "program"),
        Format("HLO, optimized", "optimized.hlo", mutations.TEXT, "program"),
        Format("HLO, text of 2018", "dense.hlo", mutations.TEXT, "program"),
        Format("HLO, snapshot", "snapshot.pb", mutations.BYTES, "program"),
        Format("tuned program", "layer.hlotune", mutations.ARTIFACT, "artifact"),
        Format("records, JSON lines", "records.jsonl", mutations.JSON_LINES, "records"),
        Format("records, compressed", "records.jsonl.gz", mutations.BYTES, "records"),
        Format("database", "tuning.db", mutations.DATABASE, "database"),
        Format("cost model", "trees.npz", mutations.MODEL, "model"),
        Format("ONNX", "model.onnx", mutations.BYTES, "program"),
        Format("PyTorch", "network.pt2", mutations.ARTIFACT, "program"),
    )
}

PYTORCH = Path(__file__).parents[2] / "tests" / "fixtures" / "network.pt2"
"""A file of torch.export; `tests/support/make_pt2_fixture.py` made it."""
DENSE = """c1 {
  x.0 = f32[] parameter(0)
  zero = f32[] constant(0)
  ROOT m = f32[] maximum(x.0, zero)
}

ENTRY dense {
  W = f32[10,20]{1,0} parameter(0)
  x = f32[20]{0} parameter(1)
  b = f32[10]{0, 1} parameter(2)
  d = f32[10]{0} dot(W, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  a = f32[10]{0} add(d, b)
  ROOT r = f32[10]{0} map(a), dimensions={0}, to_apply=c1
}
"""
"""As XLA.jl printed a layer in 2018."""
WEIGHTS = np.random.default_rng(0).standard_normal((16, 32)).astype(np.float32)
KERNEL = np.random.default_rng(1).standard_normal((4, 3, 3, 3)).astype(np.float32)
X = np.linspace(-1, 1, 128, dtype=np.float32).reshape(8, 16)


def layer(w: Any, x: Any) -> Any:
    return {"y": jax.nn.relu(x @ w)}


@cache
def layer_program() -> Program:
    return load(freeze(layer, WEIGHTS), X)


def network(x: Any, image: Any, ids: Any) -> Any:
    """Operations of many kinds: calls, loops, windows, gathers, sorts, constants of every size."""
    hidden = jax.nn.relu(x @ WEIGHTS + 0.5)
    image = lax.conv_general_dilated(image, jnp.asarray(KERNEL), (2, 2), "SAME")
    pooled = lax.reduce_window(image, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    rows = hidden[ids].at[1].add(2.0)
    turned = lax.fori_loop(0, 3, lambda _, v: jnp.tanh(v) * 2, rows)
    best, where = jnp.sort(turned, axis=1)[:, :3], jnp.argmax(turned, axis=1)
    chosen = lax.cond(
        ids[0] > 2, lambda v: v + 1, lambda v: v.astype("bfloat16").astype("float32"), best
    )
    return jax.nn.softmax(chosen), where, pooled.sum((2, 3)), jnp.cumsum(x, axis=1)


def write_originals(folder: Path) -> None:
    """Writes the file of each of `FORMATS`."""
    _write_programs(folder)
    _write_onnx(folder / "model.onnx")
    shutil.copyfile(PYTORCH, folder / PYTORCH.name)
    _write_records(folder)
    model = shipped("trees")
    assert model is not None, "the package comes with a trained model"
    shutil.copyfile(model, folder / "trees.npz")


def _write_programs(folder: Path) -> None:
    shapes = [
        jax.ShapeDtypeStruct(s, d)  # type: ignore[no-untyped-call]
        for s, d in (((8, 16), "float32"), ((1, 3, 9, 9), "float32"), ((5,), "int32"))
    ]
    function = jax.jit(network)
    lowered = function.lower(*shapes)
    (folder / "program.mlir").write_text(lowered.as_text())
    (folder / "program.mlirbc").write_bytes(bytecode_of(lowered.compiler_ir("stablehlo")))
    exported = export.export(function, platforms=("cpu",))(*shapes)
    (folder / "exported.mlirbc").write_bytes(exported.mlir_module_serialized)
    (folder / "program.hlo").write_text(lowered.as_text("hlo"))
    hlo: Any = lowered.compiler_ir("hlo")
    module = hlo.as_serialized_hlo_module_proto()
    (folder / "program.pb").write_bytes(module)
    (folder / "snapshot.pb").write_bytes(_as_first_field(_as_first_field(module)))
    (folder / "optimized.hlo").write_text(lowered.compile().as_text() or "")
    (folder / "dense.hlo").write_text(DENSE)


def _as_first_field(message: bytes) -> bytes:
    """A message of protocol buffers that has another one as its field 1, and nothing else."""
    size, digits = len(message), bytearray()
    while size > 127:
        digits.append(size & 127 | 128)
        size >>= 7
    return b"\x0a" + bytes([*digits, size]) + message


def _write_onnx(path: Path) -> None:
    """A convolution, a product and a few operators between them."""
    values = {"k": KERNEL, "w": WEIGHTS, "n": np.array([-1, 16], np.int64)}
    nodes = [
        helper.make_node("Conv", ["image", "k"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2]),
        helper.make_node("Reshape", ["p", "n"], ["s"]),
        helper.make_node("MatMul", ["s", "w"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes, "network",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 9, 9])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path.write_bytes(model.SerializeToString())


def _write_records(folder: Path) -> None:
    program = layer_program()
    site = sites(program)[0]
    direct = Schedule("direct")
    split = Schedule("direct", (Split("contract", "i0", (4,)),))
    built = built_here(site.kernel, direct, host_target())
    with Database(folder / "tuning.db") as database:
        run = database.start_run(program, host_target(), toolchain(), sites=[site])
        for batch, schedule in enumerate((DEFAULT, direct, split)):
            database.add(run, site.kernel, _trials(site, schedule), batch=batch, state=b"{}")
        database.record_final(run, site.kernel, _final(direct, built))
        database.finish_run(run)
        export_records(database, folder / "records.jsonl")
    packed = gzip.compress((folder / "records.jsonl").read_bytes(), mtime=0)
    (folder / "records.jsonl.gz").write_bytes(packed)
    save_artifact(apply(program, database=folder / "tuning.db"), folder / "layer.hlotune")


def _trials(site: Site, schedule: Schedule) -> list[Trial]:
    outcomes: list[Outcome] = [
        Measurement(samples_s=(2e-5, 1e-5), numerics="strict", error=1e-7, build_s=0.1),
        Failure("build", "no such stage"),
    ]
    return [Trial(Candidate(site.kernel, schedule), o) for o in outcomes]


def _final(schedule: Schedule, built: Built) -> Final:
    default_s, tuned_s = (2e-5,) * 31, (1e-5,) * 31
    times = Paired.of(default_s, tuned_s, speedup(default_s, tuned_s))
    return Final(
        schedule=schedule, numerics="standard", paired=times, outcome="tuned",
        margin=times.low - 1, code=built.key,
    )  # fmt: skip
