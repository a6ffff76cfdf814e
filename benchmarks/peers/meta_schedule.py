"""TVM's side: MetaSchedule, its search by evolution with boosted trees, on kernels of one stage.

What a case's search found stays in `build/peers/tvm-records`.  A case without it is searched when
PEER_TVM_TRIALS says with how many trials, which takes minutes; else it is unsupported.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import te
from tvm.s_tir import meta_schedule as ms

from benchmarks.operations import Array, Convolution, Operation, Product
from benchmarks.peers.contestants import FOLDER
from benchmarks.peers.worker import Prepared, Unsupported, serve

RECORDS = FOLDER / "tvm-records"
ROUND = 32
WARM_UP = 16
"""Trials before the cost model is used; TVM's own 100 leave it unused in a short search."""
LEAST_MS = 100
BUILD_LIMIT_S, RUN_LIMIT_S = 30, 20


class MetaSchedule:
    version = tvm.__version__

    def __init__(self, threads: int, trials: int) -> None:
        self.threads, self.trials = threads, trials
        processor = tvm.target.codegen.llvm_get_system_cpu()
        self.target = tvm.target.Target(
            {"kind": "llvm", "mcpu": str(processor), "num-cores": threads}
        )

    def prepare(
        self, case: str, operation: Operation, form: str, weights: Array, x: Array
    ) -> Prepared:
        function = te.create_prim_func(_stage(operation))
        module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
        database = self._database(case, function)
        schedule = ms.tir_integration.compile_tir(database, module, self.target)
        if schedule is None:
            raise Unsupported(f"no record of {case} that can be used")
        run = tvm.compile(schedule.mod, target=self.target)["main"]
        device = tvm.cpu(0)
        result = np.zeros([int(n) for n in function.params[-1].shape], np.float32)
        arrays = [tvm.runtime.tensor(np.ascontiguousarray(a), device) for a in (x, weights, result)]
        return Prepared(lambda: run(*arrays), lambda: arrays[-1].numpy())

    def _database(self, case: str, function: Any) -> Any:
        folder = RECORDS / case
        if not (folder / "search.json").exists():
            if not self.trials:
                raise Unsupported(f"{case} was not searched; give --tvm-trials")
            self._search(function, folder)
        return ms.database.JSONDatabase(work_dir=str(folder))

    def _search(self, function: Any, folder: Path) -> None:
        start = time.perf_counter()
        evaluator = ms.runner.EvaluatorConfig(
            number=3, repeat=1, min_repeat_ms=LEAST_MS, enable_cpu_cache_flush=False
        )
        ms.tune_tir(
            mod=function,
            target=self.target,
            work_dir=str(folder),
            max_trials_global=self.trials,
            num_trials_per_iter=min(ROUND, self.trials),
            builder=ms.builder.LocalBuilder(max_workers=self.threads, timeout_sec=BUILD_LIMIT_S),
            runner=ms.runner.LocalRunner(timeout_sec=RUN_LIMIT_S, evaluator_config=evaluator),
            cost_model=ms.cost_model.XGBModel(
                num_warmup_samples=WARM_UP, num_tuning_cores=self.threads
            ),
            num_tuning_cores=self.threads,
            seed=0,
        )
        found = {"trials": self.trials, "search_s": time.perf_counter() - start}
        (folder / "search.json").write_text(json.dumps(found) + "\n", encoding="utf-8")


def _stage(operation: Operation) -> list[Any]:
    """Input, weights and result as tensor expressions."""
    if operation.element != "f32":
        raise Unsupported(f"no tensor expression for {operation.element} here")
    if isinstance(operation, Product) and not operation.batch:
        return _product(operation)
    is_plain = isinstance(operation, Convolution) and operation.layout == "NHWC"
    if is_plain and operation.family == "conv2d":
        return _convolution(operation)  # type: ignore[arg-type]
    raise Unsupported(f"no tensor expression for {operation.family} here")


def _product(operation: Product) -> list[Any]:
    x = te.placeholder((operation.m, operation.k), name="x")
    weights = te.placeholder((operation.k, operation.n), name="weights")
    k = te.reduce_axis((0, operation.k), name="k")
    result = te.compute(
        (operation.m, operation.n),
        lambda i, j: te.sum(x[i, k] * weights[k, j], axis=k),
        name="result",
    )
    return [x, weights, result]


def _convolution(operation: Convolution) -> list[Any]:
    (size, _), border, step = operation.size, operation.padding, operation.stride
    x = te.placeholder((1, *operation.size, operation.inputs), name="x")
    weights = te.placeholder(operation.shapes[0], name="weights")
    padded = te.compute(
        (1, *(n + 2 * border for n in operation.size), operation.inputs),
        lambda n, h, w, c: te.if_then_else(
            te.all(h >= border, h < size + border, w >= border, w < size + border),
            x[n, h - border, w - border, c],
            0.0,
        ),
        name="padded",
    )
    dh, dw = (te.reduce_axis((0, operation.window), name=name) for name in ("dh", "dw"))
    c = te.reduce_axis((0, operation.inputs), name="c")
    result = te.compute(
        (1, *operation.result_size, operation.outputs),
        lambda n, h, w, f: te.sum(
            padded[n, h * step + dh, w * step + dw, c] * weights[dh, dw, c, f], axis=[dh, dw, c]
        ),
        name="result",
    )
    return [x, weights, result]


if __name__ == "__main__":
    told = {name: int(os.environ.get(name, "0")) for name in ("PEER_THREADS", "PEER_TVM_TRIALS")}
    serve(MetaSchedule(*told.values()))
