"""Writes a program of every kind of operation as this release's portable artifact, and its text.

`python -m tests.support.make_artifact_fixture` is run once with the newest jaxlib; the oldest shall
read the file.
"""

from pathlib import Path

from hlotune.hlo.canonical import canonical
from hlotune.hlo.frontends.program import load
from hlotune.hlo.mlir import module as mlir
from tests.hlo.test_canonical import SHAPES, every_kind

ARTIFACT = Path(__file__).parents[1] / "fixtures" / "of_jaxlib_0.12.mlirbc"
TEXT = ARTIFACT.with_suffix(".txt")


def main() -> None:
    program = load(every_kind, *SHAPES)
    ARTIFACT.write_bytes(mlir.parse(program.bytecode).artifact())
    TEXT.write_text(canonical(program.graph), encoding="utf-8")


if __name__ == "__main__":
    main()
