"""Damaged files, forged files and killed processes: what hlotune makes of them.

    python -m benchmarks.hostile --mutations 2000 --kills 50 --seed 0

Files of every format that hlotune reads are changed at random and read as users read them; files
that were made to do harm are read as well; runs of `tune run` and their workers are killed at
random times.  The tables go to `build/`, and from there into docs/reliability.md by
`make performance`.  The exit status is 1 where a file crashed or hung its reader, or reached the
user as anything else than one clear line, or where a record was lost.  Such files stay in
`build/hostile`.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.command import command
from benchmarks.hostile import tables
from benchmarks.hostile.files import FileReading, Reading, counted, read_forged, read_mutations
from benchmarks.hostile.forged import FORGED, Forged
from benchmarks.hostile.kills import LAYERS, PROGRAM, Killing, kill_tuners, kill_workers
from benchmarks.hostile.originals import FORMATS, write_originals
from benchmarks.results import FOLDER, conditions, publish
from hlotune.measure.machine.targets import host_target

KEPT = FOLDER / "hostile"


def main(arguments: Sequence[str] | None = None) -> int:
    options = parsed(arguments)
    KEPT.mkdir(parents=True, exist_ok=True)
    under = conditions(host_target(), None)
    sound = True
    with TemporaryDirectory() as name:
        originals = Path(name)
        if options.mutations or not options.no_forged:
            write_originals(originals)
        if options.mutations:
            readings = mutations(options, originals)
            table = tables.mutations(readings, options.seed)
            publish(table, under, [asdict(r) for part in readings.values() for r in part])
            sound &= all(r.is_sound for part in readings.values() for r in part)
        if not options.no_forged:
            read = forged(originals)
            publish(tables.forged(read), under, [asdict(r) for r in read])
            sound &= all(r.reading.is_sound for r in read)
        if options.kills:
            killings = killed(Path(name), options.kills, options.seed)
            publish(tables.kills(killings), under, [asdict(k) for k in killings])
            sound &= all(k.is_sound for k in killings)
    return 0 if sound else 1


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hostile",
        description="Reads damaged and forged files, and kills runs and their workers.",
    )
    parser.add_argument(
        "--mutations", type=count, default=2000, help="of all formats together; 0 for none"
    )
    parser.add_argument("--kills", type=count, default=50, help="half of them of workers")
    parser.add_argument("--seed", type=int, default=0, help="another one makes other files")
    parser.add_argument("--no-forged", action="store_true", help="leave out forged files")
    parser.add_argument(
        "--formats", nargs="+", choices=FORMATS, default=list(FORMATS), metavar="FILE",
        help=f"of {', '.join(FORMATS)}",
    )  # fmt: skip
    return parser.parse_args(arguments)


def count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a count, 0 or more, got {text!r}")
    return int(text)


def mutations(options: argparse.Namespace, originals: Path) -> dict[str, list[Reading]]:
    """By the name of the format; each has an equal share of all."""
    share, more = divmod(options.mutations, len(options.formats))
    found = {}
    for place, file in enumerate(options.formats):
        kind, number = FORMATS[file], share + (place < more)
        if number:
            found[kind.name] = read_mutations(kind, originals, range(number), options.seed, KEPT)
            print(f"{kind.name}: {counted(found[kind.name])}", flush=True)
    return found


def forged(originals: Path) -> list[FileReading]:
    return [_forged(file, originals) for file in FORGED]


def _forged(file: Forged, originals: Path) -> FileReading:
    found = read_forged(file, originals, KEPT)
    print(f"{found.file}, {found.name}: {found.reading.outcome}", flush=True)
    return found


def killed(folder: Path, number: int, seed: int) -> list[Killing]:
    found: list[Killing] = []

    def tell(killing: Killing) -> None:
        found.append(killing)
        print(killing.words, flush=True)

    (folder / PROGRAM).write_text(LAYERS)
    kill_tuners(folder, number - number // 2, seed, tell)
    kill_workers(folder, number // 2, seed, tell)
    return found


if __name__ == "__main__":
    command(main)
