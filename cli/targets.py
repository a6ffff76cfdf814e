"""`tune targets`: this machine as the tuner sees it."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from hlotune.cli.options import Json
from hlotune.cli.printing import print_json, print_table, size

EXAMPLE = "Example: tune targets --threads 1"


def targets(
    threads: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Threads to use.  [default: all processors]", show_default=False
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Shows this machine: identity, fingerprint, toolchain."""
    from hlotune.measure.machine.targets import host_target, toolchain
    from hlotune.schedules.targets.kinds import stored

    target, tools = host_target(threads), toolchain()
    if json:
        identity = {"fingerprint": target.fingerprint, **stored(target)}
        return print_json({"target": identity, "toolchain": {"key": tools.key, **asdict(tools)}})
    rows: list[tuple[str, Any]] = [
        ("fingerprint", target.fingerprint),
        ("name", target.name),
        ("instruction set", f"{target.isa}, {target.triple}"),
        ("vectors", f"{target.vector_registers} of {target.vector_bytes} bytes"),
        ("matrix unit", ", ".join(f for f in target.features if f.startswith("amx-")) or "none"),
        ("cores, threads", f"{target.cores}, {target.threads}"),
        ("L1, L2, L3", ", ".join(size(b, "B", 1024) for b in target.caches_bytes)),
        ("toolchain", f"jaxlib {tools.jaxlib}, LLVM {tools.llvm}, codegen {tools.codegen}"),
    ]
    return print_table(["this machine", ""], rows)
