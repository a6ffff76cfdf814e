"""Every example is a program: its small form is loaded and called, its full form has a shape."""

from pathlib import Path

import jax
import numpy as np
import pytest

from hlotune import apply, tune
from hlotune.deploy.accuracy import expected_results, relative_error
from hlotune.deploy.inputs import example_inputs
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import load
from hlotune.hlo.oracle.comparison import Reference
from hlotune.schedules.errors import ProgramError
from tests.support.tree import ROOT

SMALL = (
    "vgg19:small", "resnet:small", "resnet:small_training", "mobilenet:small", "squeezenet:small",
    "gpt2:small", "gpt2:small_decode", "llama:small", "llama:small_decode",
    "lstm:small", "dcgan:small", "unet:small",
    "mnist_training:small", "channel_flow:small", "mlp:batch_1000",
)  # fmt: skip


def source(name: str) -> str:
    file, _, factory = name.partition(":")
    return f"{ROOT}/examples/{file}.py:{factory}"


@pytest.mark.parametrize("name", SMALL)
def test_an_example_gives_what_the_oracle_says(name: str) -> None:
    program = load(source(name))
    inputs = example_inputs(program).values
    assert program.in_tree is not None
    arguments, named = jax.tree.unflatten(program.in_tree, inputs)
    results = jax.tree.leaves(jitted(program)(*arguments, **named))
    for wanted, got in zip(expected_results(program.graph, inputs), results, strict=True):
        assert isinstance(wanted, Reference)
        assert np.isfinite(np.asarray(got)).all()
        assert relative_error(wanted.value, np.asarray(got)) < (2e-2 if "llama" in name else 1e-3)


@pytest.mark.torch
def test_the_example_of_pytorch_gives_what_its_module_gives() -> None:
    from examples.resnet18_torch import small

    module, (image,) = small()
    (got,) = jax.tree.leaves(jitted(load(source("resnet18_torch:small")))(image.numpy()))
    assert relative_error(module(image).detach().numpy(), np.asarray(got)) < 1e-3


def test_every_example_has_a_small_form_that_is_tested_here() -> None:
    files = {p.stem for p in (Path(ROOT) / "examples").glob("*.py")}
    tested = {name.partition(":")[0] for name in SMALL}
    older = {"convnet", "resnet18", "bert_base"}
    assert files - {"__init__", "layers", "fire", "resnet18_torch"} - older == tested


@pytest.mark.slow
def test_a_decoder_in_bf16_is_tuned_and_its_logits_are_xlas(tmp_path: Path) -> None:
    from examples.llama import Size, decode

    function, given = decode(Size(2, 256, 8, 2, 512, 1000), 64)
    program = load(function, *given)
    result = tune(program, budget_s=25, database=tmp_path / "llama.db")
    assert result.kernels and not result.wrong
    tuned = apply(program, database=tmp_path / "llama.db")
    for wanted, got in zip(*map(jax.tree.leaves, (function(*given), tuned(*given))), strict=True):
        assert relative_error(np.asarray(wanted, np.float64), np.asarray(got, np.float64)) < 2e-2


def test_particles_need_a_package_and_say_so() -> None:
    try:
        import jax_md  # noqa: F401
    except ImportError:
        with pytest.raises(ProgramError, match="expected the package jax-md, got none"):
            load(source("fire:small"))
    else:
        assert load(source("fire:small")).graph.results
