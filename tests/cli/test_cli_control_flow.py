"""`tune kernels` says how often loops and branches run, and is told."""

import json
from pathlib import Path

import pytest

from hlotune.cli.loading import load_program, trips_of
from hlotune.schedules.errors import ProgramError
from tests.cli.test_cli import refused
from tests.support.commands import tune

LOOPING = """
import jax, jax.numpy as jnp
from jax import lax

def looping(x):
    y = lax.fori_loop(0, 6, lambda i, y: y @ x, x)
    y = lax.while_loop(lambda y: y.sum() < 9, lambda y: y @ x, y)
    return lax.cond(y[0, 0] > 0, lambda: jnp.sort(y), lambda: y)
"""


@pytest.fixture
def program(tmp_path: Path) -> list[str]:
    path = tmp_path / "program.py"
    path.write_text(LOOPING)
    return [f"{path}:looping", "--arg", "f32[64,64]", "--target", "cuda:h100"]


def test_kernels_lists_loops_and_branches(program: list[str]) -> None:
    lines = tune("kernels", *program).stdout.splitlines()[-3:]
    assert lines == [
        "while0 runs 6 times (its counter)",
        "while1 counts as running once: its trips are not evident (--trips while1=N)",
        "case0 takes its branches 0.5 : 0.5 (not evident: --trips case0=A,B)",
    ]


def test_trips_of_all_loops_are_refused_where_the_open_ones_are_named(program: list[str]) -> None:
    said = refused("kernels", *program, "--trips", "50", "--trips", "while1=7")
    assert "whose loops do, or are named (while0 6 times, while1 7 times); leave --trips" in said


def test_kernels_counts_calls_by_what_it_is_told(program: list[str]) -> None:
    told = ["--trips", "20", "--trips", "case0=0.9,0.1", "--json"]
    data = json.loads(tune("kernels", *program, *told).stdout)
    assert [(flow["name"], flow["runs"], flow["why"]) for flow in data["control_flow"]] == [
        ("while0", [6, 6], "its counter"), ("while1", [20, 20], "told"),
        ("case0", [0.9, 0.1], "told"),
    ]  # fmt: skip
    assert 26 in [kernel["calls"] for kernel in data["kernels"]]


@pytest.mark.parametrize("text", ["while0", "while0=", "while0=a", "0.5,", "while0=5=6", "=5"])
def test_trips_that_are_no_numbers_are_refused(text: str) -> None:
    with pytest.raises(ProgramError, match=f"expected trips as in 50, while0=50 .*got '{text}'"):
        trips_of([text])


@pytest.mark.parametrize("texts", [["5", "6"], ["while0=5", "while1=6", "while0=5"]])
def test_trips_that_are_told_twice_are_refused(texts: list[str]) -> None:
    with pytest.raises(
        ProgramError, match=f"got '{texts[-1]}', its second time; .* each name once"
    ):
        trips_of(texts)


WITHOUT_OPEN_LOOPS = """
import jax, jax.numpy as jnp
from jax import lax

def straight(x):
    return x @ x

def counted(x):
    return lax.fori_loop(0, 6, lambda i, y: y @ x, x)

def choosing(x):
    return lax.cond(x[0, 0] > 0, lambda: jnp.sort(x), lambda: x)
"""


@pytest.mark.parametrize(
    ("name", "trips", "message"),
    [
        ("straight", "50", "got program straight, which has no loop; leave --trips out\n"),
        ("straight", "while0=50", "neither loops nor branches, got those of 'while0'; leave"),
        ("choosing", "50", "got program choosing, which has no loop; leave --trips out\n"),
        ("counted", "50", "whose loops do (while0 6 times); leave --trips out, or name a loop"),
        ("counted", "while1=50", "expected trips of while0, got 'while1'; `tune kernels` lists"),
    ],
)
def test_trips_of_a_program_without_such_loops_are_refused(
    name: str, trips: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "program.py"
    path.write_text(WITHOUT_OPEN_LOOPS)
    options = ["--arg", "f32[64,64]", "--trips", trips]
    assert message in refused("kernels", f"{path}:{name}", *options)
    if trips == "50":
        with pytest.raises(ProgramError, match="expected a loop that does not say itself how"):
            load_program(f"{path}:{name}", ["f32[64,64]"], None, [trips])
        alike = load_program(f"{path}:{name}", ["f32[64,64]"], None, [trips], may_lack_loops=True)
        assert alike.trips == {"": (50,)}
