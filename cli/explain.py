"""`tune explain`: what applying the database does with each kernel, and why."""

from typing import TYPE_CHECKING, Any

from hlotune.cli.devices import Device, asked_for
from hlotune.cli.loading import load_program
from hlotune.cli.options import ArgumentTypes, Database, Dimensions, Json, Numerics, Program
from hlotune.cli.printing import print_json, print_notes, print_table
from hlotune.tuning_logs.default_path import database_path

if TYPE_CHECKING:
    from hlotune.deploy.apply import Explanation

EXAMPLE = "Example: tune explain examples/mlp.py:model --database tuning.db"


def explain(
    program: Program,
    database: Database = None,
    numerics: Numerics = "standard",
    target: Device = None,
    arg: ArgumentTypes = None,
    dim: Dimensions = None,
    json: Json = False,
) -> None:
    """Says of every site whether a tuned kernel is used, and why."""
    from hlotune.deploy.apply import applied
    from hlotune.schedules.errors import NoRecord

    device = asked_for(target)
    loaded = load_program(program, arg, dim)
    path = database_path(database)
    found = applied(loaded, database=path, numerics=numerics, target=device).explain()
    if not found:
        raise NoRecord(f"program {loaded.name}: expected kernels, found none; XLA keeps all of it")
    if json:
        about = {"program": loaded.name, "notes": list(loaded.remarks)}
        return print_json({**about, "sites": [as_json(e) for e in found]})
    print_notes(loaded.remarks)
    columns = ["site", "kernel", "label", "status", "algorithm", "why"]
    return print_table(columns, map(cells, found), spare=("algorithm", "kernel"))


def cells(e: "Explanation") -> tuple[str, ...]:
    site = e.site
    return site.name, site.kernel.key[:8], site.label, e.status, e.algorithm or "-", e.reason


def as_json(e: "Explanation") -> dict[str, Any]:
    return {
        "site": e.site.name,
        "kernel": e.site.kernel.key,
        "label": e.site.label,
        "status": e.status,
        "reason": e.reason,
        "algorithm": e.algorithm,
        "speedup": None if e.paired is None else e.paired.speedup,
    }
