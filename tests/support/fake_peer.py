"""A library of matrix products in NumPy that can be told to misbehave: what workers are tested on.

python -m tests.support.fake_peer MANNER
"""

import os
import sys
import time

import numpy as np

from benchmarks.operations import Array, Operation
from benchmarks.peers.worker import Prepared, Unsupported, serve


class FakePeer:
    version = "1.0"

    def __init__(self, manner: str = "right") -> None:
        self.manner, self.calls = manner, 0

    def prepare(
        self, case: str, operation: Operation, form: str, weights: Array, x: Array
    ) -> Prepared:
        if self.manner == "unsupported":
            raise Unsupported("no such operation")
        if self.manner == "broken":
            raise ValueError("no memory")
        off = 1.5 if self.manner == "wrong" else 1.0
        return Prepared(self.call, lambda: np.asarray(x @ weights * off))

    def call(self) -> None:
        self.calls += 1
        if self.manner == "crashes" and self.calls > 1:
            print("out of luck", file=sys.stderr, flush=True)
            os._exit(3)
        if self.manner == "hangs" and self.calls > 1:
            time.sleep(60)
        time.sleep(2e-3 if self.manner == "slow" else 5e-4)
        print("what a library says of itself")


if __name__ == "__main__":
    if sys.argv[1] == "absent":
        sys.exit("no module named after this library")
    print("what a library prints as it is imported", flush=True)
    serve(FakePeer(sys.argv[1]))
