"""The benchmark of kernels: its cases, what it keeps, and what its table says of them."""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.kernels import kept, plain
from benchmarks.kernels.case import TYPES, Case, f32
from benchmarks.kernels.cases import CASES, chosen
from benchmarks.kernels.kept import Line, lines
from benchmarks.kernels.measuring import furthest, wrong
from benchmarks.kernels.onnx_graph import model
from benchmarks.kernels.peer_ours import plain_loop, prepared
from benchmarks.kernels.table import NAME, measured, notes, reasons, table, verdict
from benchmarks.kernels.tuning import Tuning, tuned
from benchmarks.tracked import file_of
from hlotune.codegen.built import Built
from hlotune.codegen.llvm.compile import compile_object
from hlotune.codegen.runtime.hosts import serial
from hlotune.codegen.runtime.loader import KERNEL, load
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.peaks import copy_text
from hlotune.measure.verification.buffers import guarded
from hlotune.schedules.errors import ProgramError

LINE = Line(
    case="softmax 512x1024", conditions={"threads": 2, "started": "now"},
    tuning=Tuning(kernels=1, first_s=1e-6, default_s=2e-6, limit_s=5e-7),
    times_s={
        kept.XLA: 4e-6, kept.FIRST: 2.5e-6, kept.OURS: 2e-6,
        "pytorch eager": 3e-6, "openvino model": 5e-6,
    },
)  # fmt: skip


def test_there_are_at_least_forty_cases_and_jax_takes_all_of_them() -> None:
    assert len(CASES) >= 40
    for case in CASES.values():
        with jax.enable_x64(case.has_wide_numbers):
            given = [jax.ShapeDtypeStruct(g.shape, TYPES[g.dtype]) for g in case.given]  # type: ignore[no-untyped-call]
            results = jax.tree.leaves(jax.eval_shape(case.jax, *given))
        for before, after in zip(given[: case.donated], results, strict=False):
            assert (before.shape, before.dtype) == (after.shape, after.dtype), case.name


def test_models_of_onnx_are_well_formed() -> None:
    written = [c for c in CASES.values() if c.onnx is not None]
    assert len(written) > 10
    for case in written:
        assert case.onnx is not None and model(case.onnx, case.given)


def test_cases_are_chosen_by_patterns_in_their_order() -> None:
    names = [c.name for c in chosen(["P18*", "softmax 512x1024"])]
    assert names == ["P18 six rolled steps 1024x1024", "softmax 512x1024"]
    with pytest.raises(ProgramError, match="expected a pattern that matches a case, got 'sofmax'"):
        chosen(["sofmax"])


def test_the_table_says_how_a_case_stands_to_the_best_peer() -> None:
    assert verdict(LINE) == "ahead"
    assert verdict(replace(LINE, times_s={**LINE.times_s, "pytorch eager": 2.01e-6})) == "level"
    assert verdict(replace(LINE, times_s={**LINE.times_s, "pytorch eager": 1e-6})) == "behind"
    assert verdict(replace(LINE, times_s={kept.XLA: 4e-6, kept.OURS: 2e-6})) == "no peer"
    assert verdict(replace(LINE, times_s={kept.XLA: 4e-6})) == "failed"
    (row,) = table([LINE], "znver4").rows
    assert row[1:4] == ("4", "3", "PyTorch")
    assert row[4:-1] == ("2.5", "2", "2.00", "1.50", "0.5", "25%", "-", "-", "-")


def test_what_xla_keeps_counts_with_its_time_and_is_never_ahead() -> None:
    left = replace(LINE, left_to_xla="left to XLA: no kernel was cut", tuning=Tuning())
    assert verdict(left) == "left to XLA" and left.ours_s == left.xla_s
    assert verdict(replace(left, tuning=LINE.tuning)) == "kept XLA"
    assert "2 cases: 1 ahead, 1 left to XLA" in notes([LINE, left])
    assert any("or within 3 %: 1 of 2 that have a peer" in note for note in notes([LINE, left]))
    assert any("geometric means: 1.41 times XLA's" in note for note in notes([LINE, left]))
    assert reasons([left]) == ["softmax 512x1024: left to XLA: no kernel was cut"]


def test_a_case_that_waits_for_bytes_is_held_against_a_plain_loop_of_its_kind() -> None:
    """600 bytes in 2 us; the called copy moves 1,000 bytes in 2.5 us, the read in 1 us, and
    without XLA all of them do it in 0.5 us."""
    level = replace(LINE.tuning, moved_bytes=600, level="L3", bytes_s=3e-7, operations_s=1e-7)
    line = replace(
        LINE, tuning=level, stored_share=0.5, loop_bytes=dict.fromkeys(kept.PLAIN, 1000),
        times_s={
            **LINE.times_s, **dict(zip(kept.JITTED, (1e-6, 2.5e-6, 5e-6), strict=True)),
            **dict.fromkeys(kept.DIRECT, 5e-7),
        },
    )  # fmt: skip
    assert line.best_peer == LINE.best_peer
    assert line.share_of_bandwidth == pytest.approx(0.75)
    assert line.share_of_direct_loop == pytest.approx(0.15)
    assert table([line], "znver4").rows[0][-4:-1] == ("L3", "75%", "15%")
    in_memory = replace(line, tuning=replace(level, level="memory"))
    busy = replace(line, tuning=replace(level, operations_s=2e-7))
    loop_in_memory = {**in_memory.times_s, **dict.fromkeys(kept.PLAIN, 5e-6)}
    assert line.limit_s == LINE.limit_s == 5e-7 and in_memory.limit_s == pytest.approx(3e-7)
    slow_peak = replace(in_memory, tuning=replace(level, level="memory", bytes_s=4e-6))
    assert replace(slow_peak, times_s=loop_in_memory).limit_s == pytest.approx(3e-6)
    said = notes([line, in_memory, busy])
    assert any("of a plain call: 1 of 2; of a plain loop: 0 of 2" in x for x in said)
    assert replace(line, stored_share=0.1).share_of_bandwidth == pytest.approx(0.3)


def test_a_line_without_calls_of_plain_loops_has_what_it_had(tmp_path: Path) -> None:
    level = replace(LINE.tuning, moved_bytes=600, level="L3", bytes_s=3e-7, operations_s=1e-7)
    old = replace(
        LINE, tuning=level, stored_share=0.5, loop_bytes=dict.fromkeys(kept.DIRECT, 1000),
        times_s={**LINE.times_s, **dict.fromkeys(kept.DIRECT, 2.5e-6)},
    )  # fmt: skip
    kept.add(tmp_path / "results.jsonl", old)
    (read,) = lines(tmp_path / "results.jsonl", CASES)
    assert read.share_of_bandwidth is None and read.share_of_direct_loop == pytest.approx(0.75)
    assert table([read], "znver4").rows[0][-3:-1] == ("-", "75%")
    assert any("of a plain call: 0 of 0; of a plain loop: 1 of 1" in x for x in notes([read]))


def test_a_plain_loop_is_called_as_a_kernel_of_ours_is() -> None:
    """On an array of JAX, into results of XLA's; those of a case that donates lie in place."""
    size = 1 << 20
    for form in plain.JITTED:
        made = plain.jitted(form, size, in_place=False)
        result = made.function(made.argument)
        assert made.bytes == size and not made.donates and not made.argument.is_deleted()
        copies = form != plain.JITTED[0]
        assert result.nbytes == (size // 2 if copies else plain.SINK_BYTES * host_target().threads)
        assert not copies or (np.asarray(result) == 1).all()
    for form in plain.JITTED[1:]:
        made = plain.jitted(form, size, in_place=True)
        place = made.argument.unsafe_buffer_pointer()
        result = made.function(made.argument)
        assert made.donates and made.argument.is_deleted()
        assert result.unsafe_buffer_pointer() == place and (np.asarray(result) == 1).all()


def test_of_the_forms_of_a_plain_loop_the_fastest_in_calls_is_taken() -> None:
    functions = [jax.jit(lambda x: x @ x @ x @ x), jax.jit(lambda x: -x)]
    best, argument = plain.fastest(functions, jnp.ones((512, 512)), donates=False)
    assert best is functions[1] and argument.shape == (512, 512)


def test_a_case_that_donates_has_a_plain_loop_in_place() -> None:
    case = Case(name="", jax=lambda x: (x,), given=(f32(1 << 16),), donated=1)
    for form in plain.FORMS:
        made = plain_loop(form, case)
        made.call()
        made.call()
        assert int(made.note) == 1 << 19


def test_a_plain_loop_reads_or_copies_about_as_many_bytes() -> None:
    target = host_target()
    whole = [plain.loop_bytes(1 << 20, form, target) for form in plain.DIRECT]
    assert all(0.9 * (1 << 20) <= n <= 1 << 20 for n in whole)
    assert plain.loop_bytes(1 << 40, plain.READ, target) <= plain.MOST_BYTES
    part = 8 * target.vector_bytes
    source, copied = (guarded(2 * part * target.threads, "before") for _ in range(2))
    source.data[...] = np.arange(source.data.size) % 251
    for past, streams, ahead in ((False, 1, 0), (True, 1, 0), (False, 2, 0), (True, 1, 8192)):
        copied.data[...] = 0
        text = copy_text(
            2 * part, target.threads, target.vector_bytes,
            past_caches=past, streams=streams, ahead_bytes=ahead,
        )  # fmt: skip
        loaded = load(Built(compile_object(text, target), 0, (), 0, target.threads))
        assert not loaded.call(KERNEL, [source.address], [copied.address], 0, serial())
        assert np.array_equal(source.data, copied.data)


def test_a_case_that_is_measured_again_has_its_new_line_in_the_place_of_the_old_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "results.jsonl"
    later = replace(LINE, tuning=replace(LINE.tuning, skipped=("add: a reason",)), goal_s=1.0)
    for line in (LINE, replace(LINE, case="gone"), later):
        kept.add(path, line)
    assert lines(path, CASES) == [later]
    assert len(path.read_text(encoding="utf-8").splitlines()) == 2


def test_a_line_that_a_table_alone_is_left_of_says_what_the_table_said(tmp_path: Path) -> None:
    published = {"limit_s": 1e-6, "share_of_bandwidth": 0.62}
    line = replace(LINE, tuning=Tuning(kernels=1, level="L3"), published=published)
    kept.add(tmp_path / "results.jsonl", line)
    assert lines(tmp_path / "results.jsonl", CASES) == [line]
    assert table([line], "znver4").rows[0][-6:-1] == ("1", "50%", "L3", "-", "62%")


def test_each_kind_of_core_has_a_table_of_its_own(tmp_path: Path) -> None:
    for core, started in (("znver3", "2026-11-27"), ("znver4", "2026-11-26")):
        under = {"threads": 2, "started": started, "load_average": 0.1}
        line = replace(LINE, conditions={**under, "toolchain": {"codegen": "9"}})
        kept.add(file_of(NAME, core, tmp_path), line)
    found = {table.name: under["started"] for table, under, _ in measured(tmp_path)}
    assert found == {"kernels_znver3": "2026-11-27", "kernels_znver4": "2026-11-26"}


def test_a_run_that_tunes_takes_cases_again_that_have_first_candidates_alone() -> None:
    searched = replace(LINE, tuning=replace(LINE.tuning, wall_s=14.0))
    nothing = replace(LINE, tuning=Tuning())
    assert LINE.is_done(0.0) and not LINE.is_done(14.0)
    assert searched.is_done(14.0) and searched.is_done(0.0) and nothing.is_done(14.0)
    assert not replace(LINE, tuning=Tuning(failure="no end within 254 s")).is_done(0.0)


def test_results_that_are_not_xlas_are_refused() -> None:
    case, right = CASES["softmax 512x1024"], [np.ones((2, 2), np.float32)]
    assert wrong(case, right, [right[0].copy()]) is None
    for found in ([right[0] * 1.1], []):
        refused = wrong(case, right, found)
        assert refused is not None and refused.kind == "wrong_result"
    assert furthest([np.zeros(3)], [np.zeros(3)]) == 0


def test_donated_arguments_are_replaced_by_the_first_results() -> None:
    case = Case(name="", jax=lambda x, y: (x + y, y), given=(f32(2), f32(2)), donated=1)
    made = prepared(case, case.compiled(), [jnp.zeros(2), jnp.ones(2)])
    made.call()
    assert np.asarray(made.results()[0]).tolist() == [1, 1]
    assert np.asarray(made.call()[0]).tolist() == [3, 3]  # type: ignore[index]


@pytest.mark.slow
def test_a_case_is_tuned_from_an_empty_database(tmp_path: Path) -> None:
    case = Case(name="toy", jax=lambda x: jax.nn.softmax(x), given=(f32(300, 1000),))
    found = tuned(case, 12.0, tmp_path)
    assert found.kernels >= 1 and found.first_s and found.limit_s
