"""hlotune's side: what `hlotune.apply` makes of the case with the records of a database.

It is started as `python -m benchmarks.peers.ours DATABASE CACHE`.
"""

import sys
from pathlib import Path

import hlotune
from benchmarks.cases import FROZEN, source
from benchmarks.operations import Array, Operation
from benchmarks.peers.worker import Prepared, Unsupported, serve
from benchmarks.peers.xla import placed, prepared
from hlotune.deploy.apply import apply
from hlotune.hlo.frontends.program import load
from hlotune.measure.trial import CacheMode


class Ours:
    version = hlotune.__version__

    def __init__(self, database: Path, cache: CacheMode = "model") -> None:
        self.database, self.cache = database, cache

    def prepare(
        self, case: str, operation: Operation, form: str, weights: Array, x: Array
    ) -> Prepared:
        """The values of constants are those of the case: the same random ones."""
        if not self.database.exists():
            raise Unsupported("left to XLA: nothing was tuned")
        program = load(source(case + FROZEN if form == "constants" else case))
        tuned = apply(program, database=self.database, cache=self.cache)
        if not tuned.sites:
            reasons = "; ".join(e.reason for e in tuned.explain()) or "no kernel was cut"
            raise Unsupported(f"left to XLA: {reasons}")
        operands = [placed(operation, x)]
        if form == "arguments":
            operands.insert(0, placed(operation, weights))
        return prepared(tuned, tuple(operands))


if __name__ == "__main__":
    serve(Ours(Path(sys.argv[1]), sys.argv[2]))  # type: ignore[arg-type]
