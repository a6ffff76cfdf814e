"""A tuned program's file whose members are damaged or of another one is one clear error."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from hlotune.deploy.artifact import MANIFEST, PROGRAM, load_artifact, save_artifact
from hlotune.deploy.freeze import freeze
from hlotune.hlo.frontends.program import load
from hlotune.hlo.mlir import module as mlir
from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.errors import ProgramError, TargetError
from tests.deploy.test_artifact import PACKED, X, tuned
from tests.support.applied import normal
from tests.support.damaged_artifacts import (
    Change,
    Members,
    changed,
    first,
    flipped,
    honest,
    packed,
    renamed,
    with_kernel,
    with_manifest,
    without_field,
)

ANY = "3" * 32


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact of one layer, its weights packed."""
    folder = tmp_path_factory.mktemp("artifact")
    program = load(freeze(lambda w, x: {"y": jax.nn.relu(x @ w)}, normal(16, 32)), X)
    save_artifact(tuned(program, folder, PACKED), folder / "layer.hlotune")
    return folder / "layer.hlotune"


def nested(depth: int) -> Any:
    found: Any = ["leaf"]
    for _ in range(depth):
        found = ["tuple", found]
    return found


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("program", 3, "a text"),
        ("key", "3" * 31, "32 hex digits"),
        ("key", "G" * 32, "32 hex digits"),
        ("target", 5, "a fingerprint of 16 hex digits"),
        ("machine", None, "a text"),
        ("numerics", "loose", "one of strict, standard, fast"),
        ("numerics", ["fast"], "one of strict, standard, fast"),
        ("packed", -1, "a number of constants, 0 or more"),
        ("packed", True, "a number of constants, 0 or more"),
        ("packed", 1.0, "a number of constants, 0 or more"),
        ("arguments", ["leaf"], "null, or containers"),
        ("arguments", ["tuple", ["leaf"], ["dict", {}]], "null, or containers"),
        ("arguments", ["tuple", ["tuple"], ["dict", {"a": ["leaf"]}]], "null, or containers"),
        ("arguments", ["tuple", ["tuple", nested(200)], ["dict", {}]], "null, or containers"),
        ("results", "leaf", "null, or containers of leaves"),
        ("results", ["leaf", ["leaf"]], "null, or containers of leaves"),
        ("results", ["dict", ["leaf"]], "null, or containers of leaves"),
        ("results", ["set", ["leaf"]], "null, or containers of leaves"),
        ("names", "x", "a list of different texts"),
        ("names", [1], "a list of different texts"),
        ("names", ["x", "x"], "a list of different texts"),
        ("keys", [], "names of generators by leaves of arguments and results"),
        ("keys", {"arguments": {}}, "names of generators by leaves of arguments and results"),
        ("keys", {"arguments": {"-1": "rbg"}, "results": {}}, "names of generators by leaves"),
        ("keys", {"arguments": {}, "results": {"0": 1}}, "names of generators by leaves"),
        ("sha256", 3, "hashes of 64 hex digits"),
        ("sha256", {PROGRAM: "12"}, "hashes of 64 hex digits"),
    ],
)
def test_a_field_of_another_type_or_range_is_named(
    file: Path, tmp_path: Path, name: str, value: Any, wanted: str
) -> None:
    path = changed(file, tmp_path, with_manifest(**{name: value}))
    with pytest.raises(
        ProgramError, match=rf"^expected {name} in the manifest of .* to be {wanted}"
    ):
        load_artifact(path)


@pytest.mark.parametrize(
    "name", ["program", "key", "target", "machine", "numerics", "packed", "arguments", "sha256"]
)
def test_a_missing_field_is_named(file: Path, tmp_path: Path, name: str) -> None:
    path = changed(file, tmp_path, without_field(name))
    with pytest.raises(ProgramError, match=rf"^expected {name} in the manifest of .*, got none; "):
        load_artifact(path)


@pytest.mark.parametrize("name", ["names", "donated", "keys", "weak"])
def test_files_from_before_a_field_was_written_can_be_loaded(
    file: Path, tmp_path: Path, name: str
) -> None:
    path = changed(file, tmp_path, without_field(name))
    assert load_artifact(path)(X)["y"].shape == (8, 32)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"\xff", "expected JSON as the manifest"),
        (b"[" * 100_000, "expected JSON as the manifest"),
        (b"[]", "expected the format of a tuned program, 1 to 2, .* got None"),
        (b'{"hlotune_artifact": 0}', "expected the format of a tuned program, 1 to 2, .* got 0"),
        (b'{"hlotune_artifact": "1"}', "expected the format of a tuned program, .* got '1'"),
        (b'{"hlotune_artifact": 9}', "^expected .* format 2 or older, got .* 9; upgrade"),
    ],
    ids=["no text", "too deep", "list", "zero", "text", "newer"],
)
def test_a_manifest_that_is_none_is_refused(
    file: Path, tmp_path: Path, text: bytes, message: str
) -> None:
    path = changed(file, tmp_path, lambda members: members.update({MANIFEST: text}))
    with pytest.raises(ProgramError, match=message):
        load_artifact(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (flipped("kernels/"), "got other bytes in kernels/"),
        (flipped("program"), "got other bytes in program.mlirbc"),
        (flipped("packed/"), "got other bytes in packed/0"),
        (lambda m: m.pop(MANIFEST), "expected manifest.json in .*, got none"),
        (lambda m: m.pop(PROGRAM), "but the file lacks program.mlirbc"),
        (lambda m: m.update(more=b""), "but the file has besides more"),
        (renamed(PROGRAM, "other"), "but the manifest's list lacks program.mlirbc"),
        (renamed("packed/0", "packed/00"), "but the manifest's list lacks packed/0"),
        (with_manifest(packed=2), "but the manifest's list lacks packed/1"),
        (with_manifest(packed=10**12), "but the manifest's list lacks packed/1"),
        (with_manifest(packed=0), "but the manifest's list has besides packed/0"),
        (renamed("kernels/", f"kernels/{ANY}"), f"expected in .* the machine code {ANY}, got "),
        (honest(kernels=b"?"), "expected a kernel as kernels/.* got 1 bytes that are none"),
        (with_kernel(scratch_bytes=-1), "its scratch_bytes should be a number, 0 or more"),
        (with_kernel(flops="1"), "its flops should be a number, 0 or more, and is '1'"),
        (with_kernel(threads=0), "its threads should be a number, 1 or more, and is 0"),
        (with_kernel(algorithm=1), "its algorithm should be a text, and is 1"),
        (with_kernel(packed=3), "got [0-9]+ bytes that are none"),
        (with_kernel(more=1), "got [0-9]+ bytes that are none"),
        (with_kernel(tiles=1), "its tiles should be true or false"),
        (with_kernel(packed=[packed(1, -1)]), r"its packed\[0\].bytes should be a number"),
        (with_kernel(packed=[packed(1, 8, 0)]), r"its packed\[0\].entry should be a text"),
        (with_kernel(packed=[packed(1, 8)] * 2), "its packed should be one form of each"),
    ],
)
def test_members_that_are_not_as_they_were_written_are_refused(
    file: Path, tmp_path: Path, change: Change, message: str
) -> None:
    with pytest.raises(ProgramError, match=message):
        load_artifact(changed(file, tmp_path, change))


def artifact_of(function: Callable[..., Any], *types: tuple[tuple[int, ...], Any]) -> bytes:
    lowered = jax.jit(function, keep_unused=True).lower(*(jnp.zeros(*t) for t in types))
    return mlir.parse(lowered.as_text()).artifact()


F, U = ((8, 16), jnp.float32), ((2048,), jnp.uint8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            honest(program=artifact_of(lambda x, p: (x, x), F, U)),
            "expected a program of 2 arguments and 1 results .* got one of 2 and 2",
        ),
        (
            honest(program=artifact_of(lambda x: x, F)),
            "expected a program of 2 arguments and 1 results .* got one of 1 and 1",
        ),
        (
            honest(packed=b"1234"),
            "expected tensor<2048xui8> as packed constant 0 of .* got 4 bytes",
        ),
        (
            honest(program=artifact_of(lambda x, p: x, F, F)),
            "expected tensor<8x16xf32> as packed constant 0 of .* got 2048 bytes",
        ),
        (
            honest(program=artifact_of(lambda x, p: x, F, U)),
            "expected the kernels that the program calls in .* but it has besides [0-9a-f]{32}",
        ),
        (with_kernel(scratch_bytes=64), "expected a call of kernel .* with 64 bytes of scratch"),
        (with_kernel(packed=[packed(1, 8)]), "1 packed constants of its sizes"),
        (with_kernel(packed=[packed(7, 2048)]), "1 packed constants of its sizes"),
        (with_manifest(results=["tuple"]), "expected a program of 2 arguments and 0 results"),
        (with_manifest(results=None), "of both arguments and results .* or of neither, got one"),
        (
            with_manifest(keys={"arguments": {"0": "threefry2x32"}, "results": {}}),
            "numbers of random keys of 'threefry2x32' as leaf 0, .* got tensor<8x16xf32>",
        ),
        (
            with_manifest(keys={"arguments": {}, "results": {"7": "rbg"}}),
            "expected in results of .* as leaf 7, .* got 1 leaves",
        ),
        (with_manifest(names=["a", "b"]), "expected names of at most 1 arguments .* got 2"),
        (honest(program=b"module"), "expected a StableHLO module"),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(
    file: Path, tmp_path: Path, change: Change, message: str
) -> None:
    with pytest.raises(ProgramError, match=message):
        load_artifact(changed(file, tmp_path, change))


def test_a_kernel_that_is_called_and_not_there_is_refused(file: Path, tmp_path: Path) -> None:
    def change(members: Members) -> None:
        fields = json.loads(members[MANIFEST])
        del fields["sha256"][name := first(members, "kernels/")], members[name]
        members[MANIFEST] = json.dumps(fields).encode()

    with pytest.raises(ProgramError, match=r"that the program calls in .* but it lacks [0-9a-f]+;"):
        load_artifact(changed(file, tmp_path, change))


def test_another_machine_is_named(file: Path, tmp_path: Path) -> None:
    change = with_manifest(target=TARGETS["aarch64"].fingerprint)
    with pytest.raises(TargetError, match="got aarch64"):
        load_artifact(changed(file, tmp_path, change))
