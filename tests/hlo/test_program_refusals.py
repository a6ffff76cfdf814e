"""What is no program, or none that hlotune takes, is refused with a reason."""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from hlotune.hlo.calling.callable import device_of
from hlotune.hlo.frontends.program import argument, load
from hlotune.hlo.mlir import module as mlir
from hlotune.schedules.errors import ProgramError
from tests.hlo.test_program import load_text


def module(arguments: str, results: str, body: str = "", head: str = "module") -> str:
    """A module whose @main returns its first argument."""
    first = arguments.partition(":")[0].strip()
    text = f"func.func @main({arguments}) -> {results} {{ {body} return {first} : {results} }}"
    return f"{head} {{ {text} }}"


TENSOR = "tensor<4xf32>"
REFUSED = {
    "dynamic": (
        module("%x: tensor<?xf32>", "tensor<?xf32>"),
        "expected a size for each symbolic dimension",
    ),
    "f6": (module("%x: tensor<2xf6E3M2FN>", "tensor<2xf6E3M2FN>"), "f6E3M2FN is not supported"),
    "i128": (module("%x: tensor<2xi128>", "tensor<2xi128>"), "i128 is not supported"),
    "tuple": (module(f"%x: tuple<{TENSOR}>", f"tuple<{TENSOR}>"), "expected values to be tensors"),
    "token": (module("%x: !stablehlo.token", "!stablehlo.token"), "expected values to be tensors"),
    "no main": (
        "".join(
            f"func.func @{name}(%x: {TENSOR}) -> {TENSOR} {{ return %x : {TENSOR} }}\n"
            for name in "fg"
        ),
        "@main.*@f, @g",
    ),
    "empty": ("module {}", "got one with none"),
    "declaration": (f"func.func private @main({TENSOR}) -> {TENSOR}", "body of one block, got 0"),
    "recursion": (
        f"""func.func @main(%x: {TENSOR}) -> {TENSOR} {{
              %y = call @main(%x) : ({TENSOR}) -> {TENSOR}
              return %y : {TENSOR} }}""",
        "recursion, got main -> main",
    ),
    "blocks": (
        f"""func.func @main(%x: {TENSOR}) -> {TENSOR} {{
              cf.br ^next
            ^next:
              cf.br ^last
            ^last:
              return %x : {TENSOR} }}""",
        "got 3 blocks",
    ),
    "resource": (
        module(
            f"%x: {TENSOR}",
            TENSOR,
            f"""%c = stablehlo.constant dense_resource<r> : {TENSOR}
                stablehlo.custom_call @f(%c) {{has_side_effect = true}} : ({TENSOR}) -> ()""",
        ),
        "expected the values of resource r in the module, got none",
    ),
    "a dialect": (
        module(f"%x: {TENSOR}", TENSOR, f"%y = arith.addf %x, %x : {TENSOR}"),
        r"got arith\.addf; lower the dialect arith",
    ),
    "mhlo": (
        module(f"%x: {TENSOR}", TENSOR, f'%y = "mhlo.tanh"(%x) : ({TENSOR}) -> {TENSOR}'),
        r"got mhlo\.tanh; write the program in StableHLO",
    ),
    "a collective": (
        module(
            f"%x: {TENSOR}",
            TENSOR,
            f"""%y = "stablehlo.collective_permute"(%x) {{
            source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}} : ({TENSOR}) -> {TENSOR}
            stablehlo.custom_call @f(%y) {{has_side_effect = true}} : ({TENSOR}) -> ()""",
        ),
        r"one device, got stablehlo\.collective_permute among 2 devices",
    ),
    "quantized": (
        module("%x: tensor<?x!quant.uniform<i8:f32, 1.0:3>, #stablehlo.bounds<4>>", TENSOR),
        r"plain element types, got tensor<\?x!quant\.uniform<i8:f32, 1\.0:3>>, a quantized one",
    ),
    "no program": ("this is no program", "expected a StableHLO module"),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_supported_is_refused_with_a_reason(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ProgramError, match=message):
        load_text(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"func.func private @main({TENSOR}) -> {TENSOR}", "got a declaration"),
        (REFUSED["blocks"][0], "expected regions of one block"),
    ],
)
def test_a_graph_is_made_of_one_block(text: str, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        mlir.graph(mlir.parse(text))


def test_a_text_that_is_no_program_is_refused_by_how_it_begins(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Dear diary, today I tuned a kernel.")
    with pytest.raises(ProgramError, match=r"got a text that begins .Dear diary, .* has no"):
        load(path)


def test_a_binary_file_that_is_no_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "noise.mlirbc"
    path.write_bytes(bytes(range(256)))
    with pytest.raises(ProgramError, match="MLIR refuses: it is neither text nor MLIR bytecode"):
        load(path)


def test_a_text_that_is_not_utf8_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "latin1.mlir"
    path.write_bytes("module {}\n// caf\u00e9".encode("latin-1"))
    with pytest.raises(ProgramError, match="refuses: line 2 has the byte 0xe9, so it is not text"):
        load(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ProgramError, match=r"expected a program file .*absent\.mlir, found none; check the path"
    ):
        load(tmp_path / "absent.mlir")


def test_nothing_is_not_the_folder_that_a_user_is_in() -> None:
    with pytest.raises(ProgramError, match=r"expected a function, .* got ''; name the function"):
        load("")


def test_a_file_takes_no_arguments(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="has its types in it, got 1; leave them out"):
        load(tmp_path / "a.mlir", argument_types=["f32[3]"])


def test_a_jax_without_a_cpu_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def devices(kind: str) -> list[jax.Device]:
        raise RuntimeError(f"unknown backend {kind}")

    monkeypatch.setattr(jax, "devices", devices)
    with pytest.raises(ProgramError, match="add cpu to JAX_PLATFORMS"):
        device_of()


def test_a_name_that_is_not_there_is_refused_and_others_are_offered(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("def small(): pass\n")
    with pytest.raises(ProgramError, match=r"expected a function 'large' in .*it has small"):
        load(f"{file}:large")


def test_a_module_that_does_not_import_is_refused() -> None:
    with pytest.raises(ProgramError, match=r"expected no_such_module to be .*; check the path and"):
        load("no_such_module:f")


def test_a_source_without_a_name_is_refused() -> None:
    with pytest.raises(ProgramError, match=r"expected a function, path\.py:name"):
        load("resnet")


def test_a_function_that_closes_over_values_that_are_being_traced_is_refused() -> None:
    def outer(w: Any) -> Any:
        with pytest.raises(ProgramError, match=r"its 1 arguments alone.*give them"):
            load(lambda x: x @ w, np.ones((2, 3), np.float32))
        return w.sum()

    jax.grad(outer)(np.ones((3, 4), np.float32))


def test_the_types_that_are_offered_can_be_given(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="i128 is not supported") as refused:
        load_text(tmp_path, module("%x: tensor<2xi128>", "tensor<2xi128>"))
    offered = str(refused.value).removeprefix("expected element types ").partition(", got")[0]
    types = offered.split(", ")
    assert len(types) == 28
    assert [argument(f"{dtype}[2]").shape for dtype in types] == [(2,)] * 28


def test_what_xla_says_of_bytes_that_are_no_text_can_be_printed(tmp_path: Path) -> None:
    (tmp_path / "noise.hlo").write_bytes(bytes(range(256)))
    with pytest.raises(ProgramError, match="expected HLO text, got what XLA refuses") as refused:
        load(tmp_path / "noise.hlo")
    assert str(refused.value).isprintable()


def test_a_name_that_is_no_function_is_told_from_one_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("number = 3\ndef f(): pass\n")
    with pytest.raises(ProgramError, match="got a value of type int; name the function"):
        load(f"{tmp_path / 'a.py'}:number")
    with pytest.raises(ProgramError, match="got none; it has f"):
        load(f"{tmp_path / 'a.py'}:missing")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def f(x): return x", "factory without arguments"),
        ("def f(): return 1", "to return"),
        ("def f(): return abs, 5", "example arguments in a tuple, got int; return"),
        ("def f(): return abs, 'xy'", "example arguments in a tuple, got str; return"),
        ("def f(): raise SystemExit(3)", "got SystemExit: 3; mend the factory"),
        (
            "def f(): return 1 / 0",
            r"to return \(function, .*, got ZeroDivisionError",
        ),
        ("raise SystemExit(3)", "to be importable, got SystemExit: 3; mend .*model.py"),
        ("def f(:", "to be importable, got SyntaxError: invalid syntax .*; mend .*model.py"),
    ],
)
def test_a_factory_of_another_kind_is_refused(tmp_path: Path, code: str, message: str) -> None:
    file = tmp_path / "model.py"
    file.write_text(code)
    with pytest.raises(ProgramError, match=message):
        load(f"{file}:f")


def test_a_function_that_cannot_be_traced_is_refused() -> None:
    with pytest.raises(ProgramError, match=r"JAX can trace with 1 argument, got Tracer.*Error"):
        load(lambda x: x if x > 0 else -x, argument("f32[]"))
    chosen = jax.jit(lambda x, kind: x if kind == "as it is" else -x, static_argnums=1)
    with pytest.raises(ProgramError, match=r"2 arguments, .*is bound first, as by functools\.part"):
        load(chosen, argument("f32[4]"), "as it is")
    load(partial(chosen, kind="as it is"), argument("f32[4]"))


def test_a_python_file_without_a_name_is_told_to_name_a_function(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("x = 1\n")
    with pytest.raises(ProgramError, match=r"model\.py:model, got the file alone; name the f"):
        load(str(file))
