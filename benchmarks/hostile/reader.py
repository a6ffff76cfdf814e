"""A process that reads damaged files as users do: `python -m benchmarks.hostile.reader`.

Each request names a file and its kind; the answer is `read` or `refused` with its one line, or
`fault` with what reached the user instead.
"""

import contextlib
import io
import shutil
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hostile.originals import WEIGHTS, X, layer_program
from hlotune.cli import kernel_limits
from hlotune.cli.main import run_command
from hlotune.costmodel import pretrained
from hlotune.deploy.apply import apply
from hlotune.deploy.artifact import load_artifact
from hlotune.hlo.sites.sites import sites
from hlotune.measure.workers.channel import Message
from hlotune.measure.workers.worker import serve
from hlotune.schedules.errors import HlotuneError
from hlotune.schedules.features.summary import NAMES
from hlotune.schedules.targets.target import Properties

PEAKS = Properties(flops_per_s={"f32": 1e11}, read_bytes_per_s=1e10, clock_hz=3e9)
ROWS = np.random.default_rng(0).random((64, len(NAMES))).astype(np.float32)
MOST_BYTES = 2_000_000_000
"""A process that takes more to read a small file has a fault; with JAX alone it has 0.4 GB."""


class Fault(Exception):
    """A user saw something else than one clear line."""


def program(path: Path, original: Path) -> str:
    return commands(["kernels", str(path), "--json"])


def artifact(path: Path, original: Path) -> str:
    """A damaged file that loads must give the results of the undamaged one."""
    run = load_artifact(path)
    got, expected = run(X)["y"], load_artifact(original)(X)["y"]
    if not np.array_equal(got, expected):
        raise Fault("a damaged file gives other results")
    return ""


def records(path: Path, original: Path) -> str:
    """Imports the lines, checks the database that they make, and exports it."""
    made = path.with_name("imported.db")
    out = path.with_name("out.jsonl")
    for old in path.parent.glob("imported.db*"):
        old.unlink()
    refused = commands(["db", "import", str(path), "--db", str(made)])
    return refused or commands(
        ["db", "check", "--db", str(made)], ["db", "export", str(out), "--db", str(made)]
    )


def database(path: Path, original: Path) -> str:
    """Runs the commands that read, then those that write, and applies the records."""
    copy = path.with_name("merged.db")
    shutil.copyfile(original, copy)
    named = ["--db", str(path)]
    key = sites(layer_program())[0].kernel.key
    looks = [
        ["db", "check"], ["db", "ls"], ["db", "stats"], ["report", "layer"], ["show", key]
    ]  # fmt: skip
    refused = commands(*([*look, *named] for look in looks))
    try:
        got = apply(layer_program(), database=path)(X)["y"]
    except HlotuneError as error:
        refused = refused or str(error)
    else:
        if not np.allclose(got, np.maximum(X @ WEIGHTS, 0), rtol=1e-4, atol=1e-4):
            raise Fault("what is applied gives wrong results")
    return refused or commands(
        ["db", "export", str(path.with_name("out.jsonl")), *named],
        ["db", "merge", str(path), "--db", str(copy)],
        ["db", "prune", "--keep", "1", *named],
    )


def model(path: Path, original: Path) -> str:
    """A model that loads must predict, and learn from more rows."""
    begun = pretrained.start("trees", path).model
    begun.predict(ROWS)
    begun.fit(ROWS, ROWS[:, 0], np.zeros(len(ROWS), np.int32))
    return ""


def commands(*lines: list[str]) -> str:
    """Runs commands as `tune` does; the first refusal, or nothing.

    Raises Fault where one ends with a traceback, or says more than one line of what is wrong.
    """
    refusal = ""
    for line in lines:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run_command(line)
        said = [x for x in err.getvalue().splitlines() if x.startswith("tune: ")]
        if code not in (0, 1, 2) or len(said) > 1 or not (code == 0 or said or out.getvalue()):
            raise Fault(f"{' '.join(line[:2])}: code {code}, {err.getvalue()[-300:]!r}")
        if code and not refusal:
            refusal = (said or out.getvalue().splitlines())[-1]
    return refusal


READERS: dict[str, Callable[[Path, Path], str]] = {
    "program": program,
    "artifact": artifact,
    "records": records,
    "database": database,
    "model": model,
}


def read(request: Message) -> Message:
    answer = {**outcome(request), "peak_bytes": peak_bytes()}
    if answer["peak_bytes"] > MOST_BYTES and "fault" not in answer:
        answer = {"fault": f"the process took {answer['peak_bytes'] / 1e9:.1f} GB", **answer}
    return Message(answer)


def peak_bytes() -> int:
    """The most memory that this process has had; programs are parsed in another, with a limit."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def outcome(request: Message) -> dict[str, Any]:
    asked = request.header
    try:
        refusal = READERS[asked["reader"]](Path(asked["path"]), Path(asked["original"]))
    except HlotuneError as error:
        refusal = str(error)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        return {"fault": f"{type(error).__name__} at {where}: {error}"[:500]}
    if not printable(refusal):
        return {"fault": f"a line that no terminal can show: {refusal[:300]!r}"}
    return {"refused": refusal} if refusal else {"read": True}


def printable(text: str) -> bool:
    return all(c.isprintable() or c in "\n\t" for c in text)


if __name__ == "__main__":
    kernel_limits.measured_peaks = lambda: (PEAKS, False)  # of a machine that nobody asks about
    serve({"read": read})
