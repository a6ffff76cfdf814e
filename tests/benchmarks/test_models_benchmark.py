"""The benchmark of whole models: its examples, what it keeps, and what its tables say."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from math import inf
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from benchmarks import tracked
from benchmarks.models import kept, networks
from benchmarks.models.contestants import (
    ARGUMENTS,
    NUDGED,
    OPTIONS,
    OURS,
    OURSELVES,
    PEERS_OF_MODELS,
    TITLES,
    XLA,
)
from benchmarks.models.examples import EXAMPLES, Example, chosen
from benchmarks.models.formats import MAKERS, made
from benchmarks.models.kept import Line, timed
from benchmarks.models.losses import batches, line_of, losses, trained
from benchmarks.models.losses import measured as measured_losses
from benchmarks.models.losses import table as loss_table
from benchmarks.models.measuring import apart_by_norm, takes_part, wrong
from benchmarks.models.paper import ROWS
from benchmarks.models.peer_ours import (
    borrowed,
    default,
    found_options,
    nudged_xla,
    prepared,
    said_options,
)
from benchmarks.models.table import peers_table, reasons, standing, tables, verdict
from benchmarks.models.tuning import Tuning
from benchmarks.peers.environments import python_for, version_in
from benchmarks.peers.worker import Unsupported
from hlotune import freeze, load
from hlotune.hlo.sites.sites import sites
from hlotune.measure.machine.targets import host_target, toolchain
from hlotune.schedules.errors import ProgramError
from hlotune.schedules.spaces.xla_options.space import schedule_of
from hlotune.schedules.spaces.xla_options.table import Value
from hlotune.schedules.steps.schedule import Schedule
from hlotune.search.xla_options import whole_kernel
from hlotune.tuning_logs.best_options import SPACE
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.finals import Final, Paired
from tests.benchmarks.test_tracked import CONDITIONS
from tests.support.tree import ROOT

ORT, NCNN = "onnxruntime model", "ncnn model"
TURNS_S = {
    XLA: (24e-3, 22e-3, 23e-3), ARGUMENTS: (26e-3, 27e-3, 28e-3), ORT: (17e-3, 17e-3, 17e-3),
    NCNN: (12e-3, 13e-3, 14e-3), OURS: (10e-3, 10e-3, 10e-3),
}  # fmt: skip
LINE = Line(
    model="resnet18",
    conditions={
        "versions": {"ours": "1", "ncnn": "2"}, "started": "now", "threads": 2,
        "load_average": 0.1, "toolchain": {"codegen": "9"},
    },
    tuning=Tuning(database="a.db", seconds=60.0, trials=300, wall_s=61.0, kernels=19, won=17),
    timed=timed(TURNS_S),
    refused={"mnn model": "missing: no environment at build/peers/mnn"},
    errors={NCNN: 3e-6, OURS: 2e-6},
)  # fmt: skip


def test_every_example_is_there_and_a_wrong_name_is_told() -> None:
    for example in EXAMPLES.values():
        file, _, factory = example.path.partition(":")
        assert f"def {factory}(" in (ROOT / file).read_text(encoding="utf-8")
        assert example.schedules_of in ("", *EXAMPLES)
    assert [x.name for x in chosen(["unet", "mlp"])] == ["unet", "mlp"]
    assert len(chosen([])) == len(EXAMPLES)
    with pytest.raises(ProgramError, match=r"expected one of resnet18, .* got 'vgg'; name one"):
        chosen(["vgg"])
    with pytest.raises(ProgramError, match=r"No module named .examples.nothing"):
        Example(name="nothing", source="nothing.py:model").made()


def test_every_peer_has_its_module_its_versions_and_a_format_that_is_made() -> None:
    requirements = ROOT / "benchmarks" / "peers" / "requirements"
    for peer in PEERS_OF_MODELS:
        contestant = peer.contestant
        assert (ROOT / f"{contestant.module.replace('.', '/')}.py").exists()
        assert peer.format in ("", *MAKERS) and peer.label in TITLES
        name = contestant.environment.name if contestant.environment else ""
        assert name == ".venv-oldest" or (requirements / f"{name}.txt").exists()
    assert {f"{OURSELVES.name} {form}" for form in OURSELVES.forms} == {
        XLA,
        ARGUMENTS,
        OPTIONS,
        OURS,
        NUDGED,
    }


def test_environments_are_made_with_the_python_that_their_requirements_name() -> None:
    assert version_in("# Versions.\n# python 3.11\nncnn==1\n") == "3.11"
    assert version_in("numpy==2\n") == "" and python_for("numpy==2\n")
    assert python_for("# python 3.99\n") == ""


def test_a_network_has_the_weights_and_the_input_of_its_example() -> None:
    network, example = networks.NETWORKS["mlp"], EXAMPLES["mlp"]
    function, (x,) = example.made()
    np.testing.assert_array_equal(x, network.x())
    found = np.asarray(network.forward(network.weights(), x))
    np.testing.assert_allclose(found, np.asarray(function(x)), rtol=1e-5, atol=1e-5)
    assert set(networks.NETWORKS) <= set(EXAMPLES)


def test_the_files_of_a_network_are_written_once(tmp_path: Path) -> None:
    networks.write("mlp", tmp_path)
    with np.load(tmp_path / "weights.npz") as file:
        assert {*file} == {f"{layer}/{part}" for layer in range(3) for part in range(2)}
    before = (tmp_path / "weights.npz").stat().st_mtime_ns
    networks.write("mlp", tmp_path)
    assert (tmp_path / "weights.npz").stat().st_mtime_ns == before


def test_what_cannot_be_converted_says_why_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert made("mnn", "mlp", tmp_path) == "no environment at .venv-oldest"
    python = tmp_path / ".venv-oldest" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho 'a trace\nNo module named torch' >&2\nexit 1\n")
    python.chmod(0o755)
    assert made("ncnn", "mlp", tmp_path) == "no model.pt: No module named torch"
    assert takes_part(Example(name="unet", source="unet.py:model")) == ([], {})


def test_a_model_that_is_measured_again_has_its_new_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    later = replace(LINE, notes={OURS: "of late"})
    found = later.over_ours(NCNN)
    assert found and (found.low, found.high) == (0.0, inf), "three turns prove nothing"
    for line in (LINE, replace(LINE, model="gone"), later):
        kept.add(path, line)
    (found_again,) = kept.lines(path, EXAMPLES)
    assert found_again.notes == later.notes and tables([found_again])[0][0] == tables([later])[0][0]


def with_turns(turns_s: Mapping[str, tuple[float, ...]]) -> Line:
    return replace(LINE, timed=timed(turns_s))


def test_a_line_says_how_ours_stands_to_xla_and_to_the_best_peer() -> None:
    assert LINE.default == XLA and LINE.best_peer == NCNN
    with_options = with_turns({**TURNS_S, OPTIONS: (9e-3,) * 3})
    assert with_options.default == XLA and with_options.best_peer == NCNN
    assert ["XLA, best options", "9 / 9"] in peers_table([with_options]).rows
    assert verdict(LINE) == "ahead"
    assert verdict(with_turns({**TURNS_S, OURS: (13.2e-3,) * 3})) == "level"
    assert verdict(with_turns({**TURNS_S, OURS: (15e-3,) * 3})) == "behind"
    assert verdict(with_turns({k: TURNS_S[k] for k in (XLA, OURS)})) == "no peer"
    assert verdict(with_turns({XLA: (1.0,)})) == "failed"


def test_the_tables_have_every_model_and_every_runtime() -> None:
    (models, _), (peers, networks_of_it) = tables([LINE])
    assert networks_of_it == [LINE]
    (row,) = models.rows
    assert row[:4] == ("resnet18", "23", "10", "2.30")
    assert row[6:12] == ("ncnn", "13", "1.30", "ahead", "9", "17 of 19")
    assert any("the best peer, 1 models: 1.30 times" in note for note in models.notes)
    assert [r[0] for r in peers.rows] == [
        TITLES[k] for k in TITLES if k in (*TURNS_S, *LINE.refused)
    ]
    assert ["MNN", "-"] in peers.rows and ["ncnn", "13 / 12"] in peers.rows
    assert "resnet18: MNN: missing: no environment at build/peers/mnn" in peers.notes
    assert "resnet18: largest error 3e-06 of ncnn, hlotune's 2e-06" in peers.notes
    assert standing(LINE, "mnn model") == "-" and peers_table([]).rows == []


def test_reasons_leave_out_what_an_entry_was_never_meant_to_do() -> None:
    refused = {ARGUMENTS: "unsupported: an example of one form", XLA: "timeout: no answer"}
    found = reasons([replace(LINE, refused=refused, tuning=Tuning(failure="no end"))])
    assert found == [
        "resnet18: tuning failed: no end",
        f"resnet18: {TITLES[XLA]}: timeout: no answer",
    ]


def test_vgg19_stands_beside_the_figures_of_the_paper() -> None:
    assert set(ROWS) <= set(EXAMPLES)
    lines = [replace(LINE, model=model) for model in ("unet", "vgg19_10", "vgg19_gradient")]
    (_, of_all), (found, of_paper) = tables(lines)
    assert (of_all, of_paper) == (lines, lines[1:])
    assert found.rows == [
        ("forward", "10", "0.023", "0.01", "2.30", "6.67", "9.55", "64.8", "0.74"),
        ("gradient", "1", "0.023", "0.01", "2.30", "-", "-", "-", "-"),
    ]


def test_results_that_are_not_xlas_are_refused() -> None:
    network, step = EXAMPLES["resnet18"], Example(name="step", source="a.py:b", trains=True)
    assert set(wrong(network, {NCNN: 2e-3, OURS: 1e-6, ORT: float("nan")})) == {NCNN, ORT}
    assert not wrong(step, {OURS: 2e-3})
    assert not wrong(network, {OURS: 2e-2}, moved=2e-3)
    assert set(wrong(network, {OURS: 4e-2}, moved=2e-3)) == {OURS}
    assert set(wrong(network, {OURS: 0.2}, moved=inf)) == {OURS}
    assert apart_by_norm([np.array([3.0, 4.0])], [np.array([3.0, 4.5])]) == pytest.approx(0.1)
    assert apart_by_norm([np.ones(2)], [np.ones(3)]) == float("inf")


def test_a_training_step_goes_on_from_the_state_that_it_left() -> None:
    def step(state: Any, x: Any) -> tuple[Any, Any]:
        return {"w": state["w"] + x}, state["w"].sum()

    example = Example(name="step", source="a.py:b", trains=True)
    given = ({"w": np.zeros(2, np.float32)}, np.ones(2, np.float32))
    found = prepared(example, example.jitted(step), given)
    assert found.results()[0].tolist() == [1, 1]
    made: Any = found.call()
    assert np.asarray(made[0]["w"]).tolist() == [2, 2]


@pytest.mark.torch
@pytest.mark.parametrize("name", ["resnet18", "resnet50", "vgg19", "mobilenet", "bert_base", "mlp"])
def test_modules_of_pytorch_give_what_the_examples_give(name: str, tmp_path: Path) -> None:
    import torch

    from benchmarks.models.torch_networks import network
    from examples import bert_base, mobilenet, resnet, vgg19
    from examples.layers import image

    given: Any = bert_base.model()[1]
    layers, tokens = given
    small: dict[str, Any] = {
        "resnet18": (resnet.parameters(18, narrower=16), image(1, 64)),
        "resnet50": (resnet.parameters(50, narrower=16), image(1, 64)),
        "vgg19": (vgg19.parameters(64, 64, 8), image(1, 64)),
        "mobilenet": (mobilenet.parameters(narrower=8), image(1, 64)),
        "bert_base": (list(layers)[:1], tokens),
        "mlp": (networks.NETWORKS["mlp"].weights(), networks.NETWORKS["mlp"].x()[:8]),
    }  # fmt: skip
    weights, x = small[name]
    wanted = np.asarray(jax.jit(networks.NETWORKS[name].forward)(weights, x))
    np.savez(tmp_path / "weights.npz", **networks.named(weights))  # type: ignore[arg-type]
    first = np.asarray(x).transpose(0, 3, 1, 2) if x.ndim == 4 else np.asarray(x)
    with torch.no_grad():
        module = network(name, tmp_path / "weights.npz")
        found = module(torch.from_numpy(np.ascontiguousarray(first))).numpy()
    assert np.abs(found - wanted).max() < 1e-4 * np.abs(wanted).max()


def test_losses_of_equal_steps_are_equal_and_the_state_is_kept(tmp_path: Path) -> None:
    from examples.mnist_training import small

    function, (state, x, _) = small()
    given = list(batches(x.shape, 4))
    step = jax.jit(lambda s, x, labels: function(s, x, labels % 4), donate_argnums=0)
    first, again = (tuple(losses(step, state, given)) for _ in range(2))
    assert first == again and len(first) == 4 and len(set(first)) == 4
    equal, other = (
        line_of("mnist_training", {}, first, ours, "")
        for ours in (again, (*again[:-1], again[-1] * 1.01))
    )
    assert equal.apart == 0 and other.apart == pytest.approx(0.01)
    assert [row[-1] for row in loss_table("znver4", [equal, other]).rows] == [
        "as with XLA",
        "apart",
    ]
    lost = line_of("mnist_training", {}, (3.0, 2.0, 1.0), (3.0, float("nan"), 1.0), "")
    assert lost.apart is None and not lost.is_as_with_xla
    tracked.put(
        tmp_path / "losses_znver4.jsonl", "model", {**asdict(lost), "conditions": CONDITIONS}
    )
    ((shown, _, _),) = measured_losses(tmp_path)
    assert shown.rows[0][-2:] == ("-", "apart")
    with pytest.raises(ProgramError, match="expected a step of training, mnist_training or"):
        trained(EXAMPLES["unet"], 1.0, {})


def test_another_batch_takes_the_schedules_of_a_smaller_one(tmp_path: Path) -> None:
    from examples.layers import convolution_weights, convolve, generator, normal, relu

    weights = convolution_weights(generator(), 3, 8, 8)
    function = freeze(lambda w, x: relu(convolve(w, x)), weights)
    images = [normal(generator(1), (batch, 6, 6, 8)) for batch in (1, 4)]
    smaller, larger = (load(function, x) for x in images)
    paired = Paired(default_s=(2.0,) * 7, tuned_s=(1.0,) * 7, speedup=2.0, low=2.0, high=2.0)
    with Database(tmp_path / "smaller.db") as database:
        run = database.start_run(None, host_target(), toolchain())
        final = Final(
            schedule=Schedule("direct"), numerics="standard", paired=paired, outcome="tuned",
            margin=1.0,
        )  # fmt: skip
        database.record_final(run, sites(smaller)[0].kernel, final)
    made, note = borrowed(larger, smaller, tmp_path / "smaller.db")
    assert note == "1 of 1 sites have the schedules of another batch"
    wanted = np.asarray(function(images[1]))
    np.testing.assert_allclose(np.asarray(made(images[1])), wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("low", [1.2, 0.9])
def test_the_row_of_best_options_compiles_with_those_that_are_proven_faster(
    low: float, tmp_path: Path
) -> None:
    example = EXAMPLES["mlp"]
    options: dict[str, Value] = {"xla_cpu_multi_thread_eigen": False}
    path, paired = (
        tmp_path / "a.db",
        Paired(default_s=(2.0,) * 7, tuned_s=(1.0,) * 7, speedup=2.0, low=low, high=3.0),
    )
    final = Final(
        schedule=schedule_of(options), numerics="standard", paired=paired, outcome="tuned",
        margin=low - 1,
    )  # fmt: skip
    program = load(lambda x: x + 1, np.ones(2, np.float32))
    with Database(path) as database:
        run = database.start_run(program, host_target(), toolchain(), options={"space": SPACE})
        database.record_final(run, whole_kernel(program), final)
    if low < 1:
        with pytest.raises(Unsupported, match="no options of XLA are proven faster than none"):
            found_options(path)
        return
    assert found_options(path) == options
    assert said_options(options) == "xla_cpu_multi_thread_eigen=False"
    assert default(example, lambda x: x + 1, options)(np.ones(2)).tolist() == [2, 2]
    with pytest.raises(Exception, match="No such compile option"):
        default(example, lambda x: x + 1, {"xla_no_such_option": True})(np.ones(2))


def test_xla_is_called_on_nudged_inputs_where_ties_decide() -> None:
    with pytest.raises(Unsupported, match="without ties"):
        nudged_xla(EXAMPLES["mlp"])
    example = replace(EXAMPLES["mlp"], has_ties=True)
    function, given = example.made()
    (exact,) = prepared(example, jax.jit(function), given).results()
    (found,) = nudged_xla(example).results()
    apart = np.abs(found - exact).max() / np.abs(exact).max()
    assert 0 < apart < 1e-5
