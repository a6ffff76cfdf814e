"""The process of one trial of XLA's options: reads a request from stdin, answers on stdout.

{"program": ..., "arg": [...], "dim": [...], "options": {...}, "pairs": 8, "numerics": ...,
 "target": null}
{"default_s": [...], "tried_s": [...]} or {"kind": ..., "message": ...}
"""

import json
import sys
from typing import Any

from hlotune.cli.loading import load_program

LIMIT_S = 10.0
"""The seconds for timing, once there are the fewest pairs that prove anything."""


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What a program does with some options: both sides timed in pairs, or why it failed."""
    from hlotune.cli.devices import asked_for
    from hlotune.deploy.accuracy import Judge
    from hlotune.deploy.input_sets import input_sets
    from hlotune.deploy.timer import Timer
    from hlotune.hlo.calling.callable import jitted
    from hlotune.measure.machine.devices import target_here
    from hlotune.measure.machine.machine_lock import Turns

    target = target_here(asked_for(request["target"]))
    program = load_program(request["program"], request["arg"], request["dim"])
    default = jitted(program, platform=target.platform)
    inputs = input_sets(program, default, target.platform).sets
    options = request["options"]
    tried = jitted(program, platform=target.platform, compiler_options=options)
    try:
        for one in inputs:  # against the default: the oracle's time is for kernels of ours
            judge = Judge.of(program, default, one, oracle_limit_s=0.0)
            for verdict in judge.judge(tried, request["numerics"]):
                if verdict.wrong:
                    return {"kind": "wrong_result", "message": verdict.wrong}
    except Exception as error:  # XLA may refuse anything for any reason
        return {"kind": "build", "message": " ".join(str(error).split())[:500]}
    timer = Timer(program, inputs[0], target, LIMIT_S, Turns())
    _, default_s, tried_s = timer.paired(default, tried, request["pairs"])
    return {"default_s": default_s, "tried_s": tried_s}


def main() -> None:
    out = sys.stdout
    sys.stdout = sys.stderr  # what XLA and the program print
    request = json.loads(sys.stdin.read())
    print(json.dumps(answer(request)), file=out)


if __name__ == "__main__":
    main()
