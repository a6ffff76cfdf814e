"""A child for the tests of children: it answers, fails, dies or hangs as it is asked."""

import os
import sys
import time
from typing import Any

from benchmarks.device.child import serve


def answer(question: dict[str, Any]) -> dict[str, Any]:
    match question["do"]:
        case "fail":
            raise ValueError("no such kernel")
        case "program":
            raise RuntimeError("INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal address was met")
        case "die":
            print("an illegal address was met", file=sys.stderr, flush=True)
            os._exit(3)
        case "hang":
            time.sleep(60)
        case "print":
            print("not an answer")
    return {"process": os.getpid(), "asked": question["do"]}


if __name__ == "__main__":
    serve(answer)
