"""Files that are made so that reading them does harm."""

import gzip
import io
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from benchmarks.hostile.originals import FORMATS, Format
from hlotune.tuning_logs.migrations import TABLES

DEEP = 100_000
LOOPS = 3000
CONSTANT = "%c = stablehlo.constant dense<"
HLO_HEAD = "HloModule m\nENTRY e {\n  ROOT p = "
TENSOR = "tensor<4xf32>"
HUGE = "tensor<1000000000000xf32>"


@dataclass(frozen=True, slots=True)
class Forged:
    """A file, made of the original of its format."""

    name: str
    file: str
    """The original, whose format it has."""
    make: Callable[[bytes], bytes]
    """What is large is made in it: all who import this module would have gigabytes in memory."""

    @property
    def kind(self) -> Format:
        return FORMATS[self.file]


def text(program: str) -> Callable[[bytes], bytes]:
    return lambda original: program.encode()


def main_of(body: str, result: str, kind: str = TENSOR) -> str:
    return f"func.func @main(%x: {kind}) -> {kind} {{\n{body}\nreturn {result} : {kind} }}\n"


def chain(levels: int, calls: int) -> str:
    """Functions each of which calls the one below so many times, one after the other."""
    functions = [
        f"func.func private @f0(%v0: {TENSOR}) -> {TENSOR} {{ return %v0 : {TENSOR} }}\n",
        *(_calling(f"private @f{n + 1}", f"f{n}", calls) for n in range(levels)),
        _calling("@main", f"f{levels}", 1),
    ]
    return "".join(functions).replace(
        "return %v0 :", f"%t = stablehlo.tanh %v0 : {TENSOR}\nreturn %t :"
    )


def _calling(name: str, callee: str, calls: int) -> str:
    lines = [
        f"%v{n + 1} = func.call @{callee}(%v{n}) : ({TENSOR}) -> {TENSOR}\n" for n in range(calls)
    ]
    return (
        f"func.func {name}(%v0: {TENSOR}) -> {TENSOR} {{\n{''.join(lines)}"
        f"return %v{calls} : {TENSOR} }}\n"
    )


def huge_values(original: bytes) -> bytes:
    """Constants of 4 TB, which a folding pass would compute."""
    body = f"""%a = stablehlo.constant dense<1.0> : {HUGE}
      %b = stablehlo.iota dim = 0 : {HUGE}
      %c = stablehlo.add %a, %a : {HUGE}
      %d = stablehlo.multiply %b, %c : {HUGE}"""
    return main_of(body, "%d", HUGE).encode()


def nested_loops(original: bytes) -> bytes:
    """Loops in loops."""

    def loop(level: int) -> str:
        return f"""%r{level} = stablehlo.while(%i{level} = %x) : {TENSOR}
          cond {{
            %t{level} = stablehlo.constant dense<true> : tensor<i1>
            stablehlo.return %t{level} : tensor<i1>
          }} do {{
          """

    ends = "".join(f"stablehlo.return %i{n} : {TENSOR} }}\n" for n in reversed(range(LOOPS)))
    return main_of("".join(map(loop, range(LOOPS))) + ends, "%r0").encode()


def in_sqlite(*statements: str) -> Callable[[bytes], bytes]:
    def make(original: bytes) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.db"
            path.write_bytes(original)
            connection = sqlite3.connect(path)
            connection.execute("pragma foreign_keys = off")
            for statement in statements:
                connection.execute(statement)
            connection.commit()
            connection.close()
            return path.read_bytes()

    return make


TRIGGER = "create trigger t after insert on trials begin delete from runs; end"
ENDLESS_SITES = """create view sites as
    with recursive r(x) as (select 1 union all select x + 1 from r)
    select x as program, x as name, x as kernel, x as label, x as weight from r"""
LONG_TEXT = f"update programs set source = hex(zeroblob({2**25}))"


def with_members(original: bytes, members: Mapping[str, bytes], compress: bool = False) -> bytes:
    """The archive with other members, or with more of them."""
    with zipfile.ZipFile(io.BytesIO(original)) as archive:
        content = {m: archive.read(m) for m in archive.namelist()} | dict(members)
    made = io.BytesIO()
    kind = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(made, "w", kind) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return made.getvalue()


def packed(members: Mapping[str, bytes]) -> Callable[[bytes], bytes]:
    return lambda original: with_members(original, members)


def zeros(count: int) -> NDArray[np.uint8]:
    return np.zeros(count, np.uint8)


ZEROS = zeros(4)


def npy(array: Any, shape: str = "") -> bytes:
    """An array as numpy writes it, or a header that claims another shape."""
    made = io.BytesIO()
    np.lib.format.write_array(made, np.asarray(array), allow_pickle=True)
    data = made.getvalue()
    if not shape:
        return data
    head, _, rest = data.partition(b"(")
    return head + shape.encode() + rest.partition(b")")[2]


def npz_with(**arrays: bytes) -> Callable[[bytes], bytes]:
    members = {f"{name}.npy": data for name, data in arrays.items()}
    return lambda original: with_members(original, members, compress=True)


def line(value: str) -> Callable[[bytes], bytes]:
    """The records and one line more."""
    return lambda original: original + value.encode() + b"\n"


def after_records(
    frame: bytes, part: bytes, parts: int, lines: int = 1
) -> Callable[[bytes], bytes]:
    """Compressed records and lines more, each of so many parts in a frame."""

    def make(original: bytes) -> bytes:
        return gzip.compress(gzip.decompress(original) + frame % (part * parts) * lines)

    return make


def long_number(value: int) -> bytes:
    """A number of a protocol buffer, seven bits a byte."""
    return bytes([value >> 7 * n & 127 | 128 for n in range(9)]) + b"\0"


def nested_proto(original: bytes) -> bytes:
    data = original
    for _ in range(50):
        data = b"\x0a" + long_number(len(data)) + data
    return data


def onnx_of(*nodes: Any, functions: Sequence[Any] = (), **values: Any) -> bytes:
    """A model of one input `x` and one result `y`."""
    graph = helper.make_graph(
        nodes, "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()],
    )  # fmt: skip
    sets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=sets, functions=functions, ir_version=9)
    return bytes(model.SerializeToString())


def onnx_of_4_tb(original: bytes) -> bytes:
    """A constant of 4 TB, which is known while the model is read."""
    return onnx_of(
        helper.make_node("ConstantOfShape", ["n"], ["c"]),
        helper.make_node("ReduceSum", ["c"], ["s"], keepdims=0),
        helper.make_node("Add", ["x", "s"], ["y"]),
        n=np.array([2**40], np.int64),
    )


def onnx_of_itself(original: bytes) -> bytes:
    """A function of the model that calls itself."""
    call = helper.make_node("again", ["x"], ["y"], domain="own")
    sets = [helper.make_opsetid("own", 1)]
    return onnx_of(
        call, functions=[helper.make_function("own", "again", ["x"], ["y"], [call], sets)]
    )


def onnx_of_long_loops(original: bytes) -> bytes:
    """A loop of 2^60 iterations over values that are known."""
    condition = helper.make_tensor_value_info("more", TensorProto.BOOL, [])
    number = helper.make_tensor_value_info("number", TensorProto.INT64, [])
    value, new = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in ("v", "w"))
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v", "v"], ["w"]),
            helper.make_node("Identity", ["more"], ["go"]),
        ],
        "body", [number, condition, value],
        [helper.make_tensor_value_info("go", TensorProto.BOOL, []), new],
    )  # fmt: skip
    return onnx_of(
        helper.make_node("Loop", ["n", "yes", "start"], ["z"], body=body),
        helper.make_node("Add", ["x", "z"], ["y"]),
        n=np.int64(2**60), yes=np.True_, start=np.zeros(4, np.float32),
    )  # fmt: skip


def onnx_of_other_files(original: bytes) -> bytes:
    """Weights that lie in a file of the system."""
    model = onnx.load_model_from_string(original)
    weights = model.graph.initializer[0]
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="../../../../../../../../etc/passwd")
    return bytes(model.SerializeToString())


def in_graph(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    """The file of PyTorch with other text in its graph."""

    def make(original: bytes) -> bytes:
        with zipfile.ZipFile(io.BytesIO(original)) as archive:
            graph = archive.read(GRAPH)
        assert old in graph
        return with_members(original, {GRAPH: graph.replace(old, new)})

    return make


GRAPH = "network/models/model.json"
WEIGHT = "network/data/weights/weight_0"
SIZE = b'"as_int": 16'

PROGRAMS = (
    Forged("calls that double at each of 60 levels", "program.mlir", text(chain(60, 2))),
    Forged("a chain of 5000 calls", "program.mlir", text(chain(5000, 1))),
    Forged("types in types", "program.mlir", text(main_of("", "%x", "tuple<" * DEEP))),
    Forged("lists in lists", "program.mlir", text(main_of(CONSTANT + "[" * DEEP, "%x"))),
    Forged("loops in loops", "program.mlir", nested_loops),
    Forged("constants of 4 TB", "program.mlir", huge_values),
    Forged("16 MB of brackets", "program.mlir", lambda o: b"{" * 2**24),
    Forged("version 2^62", "program.mlirbc", lambda o: o[:4] + long_number(2**62) + o[5:]),
    Forged("tuples in tuples", "program.hlo", text(HLO_HEAD + "(" * DEEP)),
    Forged("a size of 2^62", "program.hlo", lambda o: o.replace(b"[8,16]", b"[%d,16]" % 2**62)),
    Forged("a number without an end", "program.pb", lambda o: b"\x0a" + b"\xff" * 2**20),
    Forged("a length of 2^62", "program.pb", lambda o: b"\x0a" + long_number(2**62) + o),
    Forged("messages in messages", "program.pb", nested_proto),
    Forged("constants of 4 TB", "model.onnx", onnx_of_4_tb),
    Forged("a function that calls itself", "model.onnx", onnx_of_itself),
    Forged("a loop of 2^60 iterations", "model.onnx", onnx_of_long_loops),
    Forged("weights in a file of the system", "model.onnx", onnx_of_other_files),
    Forged("lists in lists", "network.pt2", packed({GRAPH: b"[" * DEEP})),
    Forged("a size of 2^62", "network.pt2", in_graph(SIZE, b'"as_int": %d' % 2**62)),
    Forged(
        "weights of 1 GB in 1 MB", "network.pt2",
        lambda o: with_members(o, {WEIGHT: bytes(2**30)}, True),
    ),
    Forged(
        "a graph of 1 GB in 1 MB", "network.pt2",
        lambda o: with_members(o, {GRAPH: b" " * 2**30}, True),
    ),
)  # fmt: skip
ARTIFACTS = (
    Forged("a path out of the archive", "layer.hlotune", packed({"../../outside": b"x"})),
    Forged(
        "a member of 1 GB in 1 MB", "layer.hlotune",
        lambda o: with_members(o, {"packed/0": bytes(2**30)}, True),
    ),
    Forged("a manifest of lists", "layer.hlotune", packed({"manifest.json": b"[" * DEEP})),
    Forged("another program", "layer.hlotune", packed({"program.mlirbc": huge_values(b"")})),
)  # fmt: skip
RECORDS = (
    Forged("lists in lists", "records.jsonl", line("[" * DEEP)),
    Forged("a number of 10,000 digits", "records.jsonl", line("9" * 10**4)),
    Forged("a line of 64 MB", "records.jsonl", lambda o: o + b"x" * 2**26 + b"\n"),
    Forged("UTF-16", "records.jsonl", lambda o: o.decode().encode("utf-16")),
    Forged("1 GB of zeros in 1 MB", "records.jsonl.gz", lambda o: gzip.compress(bytes(2**30))),
    Forged("300 lines of 4 MB", "records.jsonl.gz", after_records(b'"%s"\n', b"x", 4_000_000, 300)),
    Forged("a million lists in a line", "records.jsonl.gz",
           after_records(b"[%s[]]\n", b"[],", 1_300_000)),
    Forged("a trigger that deletes", "tuning.db", in_sqlite(TRIGGER)),
    Forged("a table that never ends", "tuning.db", in_sqlite("drop table sites", ENDLESS_SITES)),
    Forged("a view beside the tables", "tuning.db", in_sqlite("create view v as select 1")),
    Forged("version 2^31 - 1", "tuning.db", in_sqlite("pragma user_version = 2147483647")),
    Forged("a text of 64 MB", "tuning.db", in_sqlite(LONG_TEXT)),
    Forged("no tables", "tuning.db", in_sqlite(*(f"drop table {t}" for t in reversed(TABLES)))),
)  # fmt: skip
MODELS = (
    Forged("an array of 8 EB", "trees.npz", npz_with(booster=npy(ZEROS, f"({2**60},)"))),
    Forged("2 GB of zeros in 2 MB", "trees.npz", lambda o: npz_with(booster=npy(zeros(2**31)))(o)),
    Forged("a pickled object", "trees.npz", npz_with(booster=npy(np.array([print], object)))),
    Forged("a header of lists", "trees.npz", npz_with(header=npy(np.full(DEEP, 91, np.uint8)))),
    Forged("no archive", "trees.npz", text("/dev/zero")),
)
FORGED = (*PROGRAMS, *ARTIFACTS, *RECORDS, *MODELS)
