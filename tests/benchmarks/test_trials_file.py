"""The file of trials that stands in `tuning_logs/`: what models are trained on can be read."""

import gzip
import json
import re
from collections import Counter, defaultdict
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from sys import intern
from typing import Any, NamedTuple

from benchmarks.dataset_kernels import CONTRACTIONS, ROWS, source
from benchmarks.searching import operator
from hlotune.costmodel.files import header_of
from hlotune.costmodel.pretrained import shipped
from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.records import import_records
from tests.support.tree import ROOT

PATH = ROOT / "tuning_logs" / "trials.jsonl.gz"
MOST_BYTES = 30 << 20
LEAST, LEAST_OF_ROWS = 300, 32
"""Trials of each kernel on a machine, and of one without a contraction on one machine."""
DEFAULT_JSON = json.dumps(json.loads(DEFAULT.to_json()), separators=(",", ":"))


class Trial(NamedTuple):
    """What is asked of a trial, as text that equal ones share: whole records take gigabytes."""

    kernel: str
    machine: str
    """The target's identity: two of them may run one version of the code generation."""
    toolchain: str
    codegen: str
    schedule: str
    dataset: str | None
    searcher: str | None

    @property
    def is_default(self) -> bool:
        return self.schedule == DEFAULT_JSON

    @property
    def is_of_rows(self) -> bool:
        return self.dataset in ROWS


PARTS = ("run", "kernel", "target", "toolchain", "schedule")
"""The parts of a trial that are asked for, in the order in which they stand in its line.  Most of
hundreds of megabytes says again what an earlier line said, so each text of a part is parsed once.
"""
BEHIND = {**dict(pairwise(PARTS)), "toolchain": "cache", "schedule": "samples_s"}
"""The part that follows each."""
CHECKED = 50
"""One line in so many is parsed as a whole, and has to say the same."""


@cache
def trials() -> list[Trial]:
    with gzip.open(PATH, "rt", encoding="utf-8") as lines:
        return [trial(n, line) for n, line in enumerate(lines) if '"record":"trial"' in line]


def trial(number: int, line: str) -> Trial:
    parts = parts_of(line)
    if number % CHECKED == 0:
        whole = json.loads(line)
        assert all(whole[name] == json.loads(text) for name, text in parts.items())
    return Trial(
        parsed(parts["kernel"])["text"],
        machine(parts["target"]),
        intern(parts["toolchain"]),
        parsed(parts["toolchain"])["codegen"],
        intern(parts["schedule"]),
        parsed(parts["run"])["options"].get("dataset"),
        parsed(parts["run"])["options"].get("searcher"),
    )


def parts_of(line: str) -> dict[str, str]:
    found, at = {}, 0
    for name in PARTS:
        begin = line.index(f'"{name}":{{', at) + len(name) + 3
        at = line.index(f',"{BEHIND[name]}":', begin)
        found[name] = line[begin:at]
    return found


@cache
def parsed(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


@cache
def machine(target: str) -> str:
    return intern(json.dumps(json.loads(target)["identity"]))


def test_it_is_no_larger_than_thirty_megabytes() -> None:
    assert PATH.stat().st_size <= MOST_BYTES


def test_it_has_many_trials_of_every_contraction_of_the_dataset_and_of_no_other() -> None:
    texts = {operator(n, TARGETS["znver4"], source).task.kernel.text for n in CONTRACTIONS}
    tried = Counter(
        (t.machine, t.kernel) for t in trials() if not t.is_default and not t.is_of_rows
    )
    machines = defaultdict[str, Counter[str]](Counter)
    for (machine, kernel), n in tried.items():
        machines[machine][as_recorded_today(kernel, texts)] += n
    assert len(machines) >= 2
    for found in machines.values():
        assert found.keys() == texts
        assert min(found.values()) >= LEAST


def test_it_has_trials_of_every_kernel_without_a_contraction() -> None:
    """By the names that runs have: what is cut out of a program may change."""
    found = Counter(t.dataset for t in trials() if t.is_of_rows and not t.is_default)
    assert found.keys() == ROWS.keys()
    assert min(found.values()) >= LEAST_OF_ROWS


def as_recorded_today(text: str, today: set[str]) -> str:
    """The kernel of today that was recorded with its weights reversed outside of it."""
    return text if text in today else next(t for t in today if without_reverse(t) == text)


def without_reverse(text: str) -> str:
    reverse = re.search(r'  %0 = "stablehlo.reverse"\((%arg\d)\).*\n', text)
    if reverse is None:
        return text
    rest = text.replace(reverse[0], "").replace("%0", reverse[1])
    return re.sub(r"%(\d+)", lambda name: f"%{int(name[1]) - 1}", rest)


def test_its_schedules_parse_and_differ_within_a_kernel_machine_and_toolchain() -> None:
    assert all(Schedule.from_json(t.schedule).algorithm for t in trials()[::50])
    found = Counter((t.kernel, t.machine, t.toolchain, t.schedule) for t in trials())
    assert max(found.values()) == 1


def test_it_can_be_imported(tmp_path: Path) -> None:
    part = tmp_path / "part.jsonl"
    with gzip.open(PATH, "rt", encoding="utf-8") as lines:
        part.write_text("".join(islice(lines, 400)), encoding="utf-8")
    with Database(tmp_path / "tuning.db") as database:
        found = import_records(database, part)
    assert (found.records, found.broken) == (400, 0)


def page(name: str) -> str:
    return " ".join((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8").split())


def test_the_pages_say_how_many_trials_the_file_has_and_how_many_the_shipped_trees_saw() -> None:
    path = shipped("trees")
    assert path is not None
    seen = header_of(path).training
    assert seen is not None
    default = sum(t.is_default for t in trials())
    assert f"**What the file holds**: {len(trials()):,} trials" in page("dataset")
    assert f"{default} of them of the default" in page("dataset")
    assert f"{seen.trials:,} of the schedules are in the spaces" in page("dataset")
    assert f"models count {len(seen.kernels)} kernels in {len(seen.families)} families" in page(
        "dataset"
    )
    assert f"The shipped models are trained on {seen.trials:,} trials." in page("models")


def test_the_page_says_how_many_were_drawn_at_random_on_each_machine() -> None:
    drawn = Counter(
        (t.machine, t.codegen) for t in trials() if not t.is_default and t.searcher == "random"
    )
    rows = re.findall(r"\| (\d+) \| ([\d,]+), [^|]+ a kernel \|", page("dataset"))
    assert sorted(rows) == sorted((codegen, f"{n:,}") for (_, codegen), n in drawn.items())
