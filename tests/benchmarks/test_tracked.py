"""Results that the checkout keeps: short lines, one a case, in a file for each kind of core."""

import json
from math import inf
from pathlib import Path
from typing import Any

import pytest

from benchmarks import results, tracked
from hlotune.schedules.errors import ProgramError
from tests.support.tree import ROOT

CONDITIONS: dict[str, Any] = {
    "started": "2026-11-26", "machine": "EPYC", "processor": "znver4", "threads": 2,
    "toolchain": {"jaxlib": "1", "llvm": "2", "codegen": "9"}, "load_average": 0.5,
}  # fmt: skip


def test_a_line_is_short_and_has_no_number_that_json_has_not(tmp_path: Path) -> None:
    path = tmp_path / "new" / "kernels_znver4.jsonl"
    fields = {"case": "a", "conditions": CONDITIONS, "s": 1 / 3, "high": inf, "why": "w" * 1000}
    tracked.put(path, "case", {**fields, "nothing": {}, "deep": {"a": (), "b": [0.123456789]}})
    (line,) = path.read_text(encoding="utf-8").splitlines()
    found = json.loads(line)
    assert found.pop("why") == "w" * tracked.LONGEST
    assert found == {"case": "a", "conditions": CONDITIONS, "s": 0.33333, "deep": {"b": [0.12346]}}


def test_a_line_takes_the_place_of_the_one_of_its_name(tmp_path: Path) -> None:
    path = tracked.file_of("kernels", "znver4", tmp_path)
    for case, s in (("a", 1.0), ("b", 2.0), ("a", 3.0)):
        tracked.put(path, "case", {"case": case, "conditions": CONDITIONS, "s": s})
    found = tracked.read(path, "case")
    assert [(case, fields["s"]) for case, fields in found.items()] == [("a", 3.0), ("b", 2.0)]
    assert [*tracked.cores("kernels", tmp_path)] == [("znver4", path)]
    assert tracked.read(tmp_path / "none.jsonl", "case") == {}


def test_of_two_lines_that_were_merged_that_of_the_later_run_counts(tmp_path: Path) -> None:
    path = tmp_path / "kernels_znver4.jsonl"
    for started in ("2026-11-27", "2026-11-28"):
        fields = {"case": "a", "conditions": {**CONDITIONS, "started": started}}
        tracked.put(tmp_path / started, "case", fields)
    texts = [(tmp_path / x).read_text(encoding="utf-8") for x in ("2026-11-28", "2026-11-27")]
    path.write_text("".join(texts), encoding="utf-8")
    assert tracked.read(path, "case")["a"]["conditions"]["started"] == "2026-11-28"
    assert "docs/lab/results/*.jsonl merge=union" in (ROOT / ".gitattributes").read_text()


def test_results_of_more_threads_are_not_mixed_with_those_of_fewer(tmp_path: Path) -> None:
    path = tmp_path / "kernels_znver4.jsonl"
    tracked.put(path, "case", {"case": "a", "conditions": CONDITIONS})
    more = {"case": "b", "conditions": {**CONDITIONS, "threads": 64}}
    with pytest.raises(ProgramError, match=r"expected results of 64 threads in .*, got 2; keep"):
        tracked.put(path, "case", more)


def test_conditions_of_several_runs_say_between_when_and_by_which_codegen() -> None:
    tools = {**CONDITIONS["toolchain"], "codegen": "11"}
    later = {**CONDITIONS, "started": "2026-11-28", "load_average": 0.1, "toolchain": tools}
    said = results.described(tracked.spanning([later, CONDITIONS, later]))
    assert said == (
        "EPYC (znver4), 2 threads; jaxlib 1, LLVM 2, codegen 9 to 11; measured between "
        "2026-11-26 and 2026-11-28, load before at most 0.50"
    )
    alone = results.described(tracked.spanning([CONDITIONS]))
    assert alone.endswith("codegen 9; 2026-11-26, load before 0.50")


def test_the_lines_that_are_kept_are_small() -> None:
    files = [path for name in ("kernels", "models", "losses") for _, path in tracked.cores(
        name, ROOT / tracked.RESULTS
    )]  # fmt: skip
    assert len(files) >= 2
    for path in files:
        assert all(len(x) < 4000 for x in path.read_text(encoding="utf-8").splitlines()), path
