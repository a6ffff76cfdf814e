"""Files that are made so that reading them does harm."""

import gzip
import io
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


LONG_LINES = (b'"%s"\n' % (b"x" * 4_000_000)) * 300
LISTS = b"[%s[]]\n" % (b"[]," * 1_300_000)
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


def packed(members: Mapping[str, bytes], compress: bool = False) -> Callable[[bytes], bytes]:
    return lambda original: with_members(original, members, compress)


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


def after_records(lines: bytes) -> Callable[[bytes], bytes]:
    """Compressed records and lines more."""
    return lambda original: gzip.compress(gzip.decompress(original) + lines)


def long_number(value: int) -> bytes:
    """A number of a protocol buffer, seven bits a byte."""
    return bytes([value >> 7 * n & 127 | 128 for n in range(9)]) + b"\0"


def nested_proto(original: bytes) -> bytes:
    data = original
    for _ in range(50):
        data = b"\x0a" + long_number(len(data)) + data
    return data


PROGRAMS = (
    Forged("calls that double at each of 60 levels", "program.mlir", text(chain(60, 2))),
    Forged("a chain of 5000 calls", "program.mlir", text(chain(5000, 1))),
    Forged("types in types", "program.mlir", text(main_of("", "%x", "tuple<" * DEEP))),
    Forged("lists in lists", "program.mlir", text(main_of(CONSTANT + "[" * DEEP, "%x"))),
    Forged("loops in loops", "program.mlir", nested_loops),
    Forged("constants of 4 TB", "program.mlir", huge_values),
    Forged("16 MB of brackets", "program.mlir", text("{" * 2**24)),
    Forged("version 2^62", "program.mlirbc", lambda o: o[:4] + long_number(2**62) + o[5:]),
    Forged("tuples in tuples", "program.hlo", text(HLO_HEAD + "(" * DEEP)),
    Forged("a size of 2^62", "program.hlo", lambda o: o.replace(b"[8,16]", b"[%d,16]" % 2**62)),
    Forged("a number without an end", "program.pb", lambda o: b"\x0a" + b"\xff" * 2**20),
    Forged("a length of 2^62", "program.pb", lambda o: b"\x0a" + long_number(2**62) + o),
    Forged("messages in messages", "program.pb", nested_proto),
)
ARTIFACTS = (
    Forged("a path out of the archive", "layer.hlotune", packed({"../../outside": b"x"})),
    Forged("a member of 1 GB in 1 MB", "layer.hlotune", packed({"packed/0": bytes(2**30)}, True)),
    Forged("a manifest of lists", "layer.hlotune", packed({"manifest.json": b"[" * DEEP})),
    Forged("another program", "layer.hlotune", packed({"program.mlirbc": huge_values(b"")})),
)
RECORDS = (
    Forged("lists in lists", "records.jsonl", line("[" * DEEP)),
    Forged("a number of 10,000 digits", "records.jsonl", line("9" * 10**4)),
    Forged("a line of 64 MB", "records.jsonl", line("x" * 2**26)),
    Forged("UTF-16", "records.jsonl", lambda o: o.decode().encode("utf-16")),
    Forged("1 GB of zeros in 1 MB", "records.jsonl.gz", lambda o: gzip.compress(bytes(2**30))),
    Forged("300 lines of 4 MB", "records.jsonl.gz", after_records(LONG_LINES)),
    Forged("a million lists in a line", "records.jsonl.gz", after_records(LISTS)),
    Forged("a trigger that deletes", "tuning.db", in_sqlite(TRIGGER)),
    Forged("a table that never ends", "tuning.db", in_sqlite("drop table sites", ENDLESS_SITES)),
    Forged("a view beside the tables", "tuning.db", in_sqlite("create view v as select 1")),
    Forged("version 2^31 - 1", "tuning.db", in_sqlite("pragma user_version = 2147483647")),
    Forged("a text of 64 MB", "tuning.db", in_sqlite(LONG_TEXT)),
    Forged("no tables", "tuning.db", in_sqlite(*(f"drop table {t}" for t in reversed(TABLES)))),
)
MODELS = (
    Forged("an array of 8 EB", "trees.npz", npz_with(booster=npy(ZEROS, f"({2**60},)"))),
    Forged("2 GB of zeros in 2 MB", "trees.npz", lambda o: npz_with(booster=npy(zeros(2**31)))(o)),
    Forged("a pickled object", "trees.npz", npz_with(booster=npy(np.array([print], object)))),
    Forged("a header of lists", "trees.npz", npz_with(header=npy(np.full(DEEP, 91, np.uint8)))),
    Forged("no archive", "trees.npz", text("/dev/zero")),
)
FORGED = (*PROGRAMS, *ARTIFACTS, *RECORDS, *MODELS)
