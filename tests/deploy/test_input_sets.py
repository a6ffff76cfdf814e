"""Whatever checks a program does so on the same inputs: the example alone where calls take long."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

from hlotune.cli.xla_trial import answer
from hlotune.deploy.accuracy import Judge
from hlotune.deploy.apply import applied
from hlotune.deploy.bench import checked_whole, prepared
from hlotune.deploy.exported import exported
from hlotune.deploy.input_sets import input_sets
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import Program, load
from hlotune.tuning_logs.database import Database
from tests.support.applied import normal
from tests.support.call_times import calls_take
from tests.support.stand_in_runtime import install

LONG_S, SHORT_S = 10.0, 0.1
EXPECTED = [(LONG_S, ["example"]), (SHORT_S, ["example", "random"])]


@pytest.fixture
def program() -> Program:
    return load(lambda x: jnp.tanh(x @ x.T), normal(4, 4))


@pytest.mark.parametrize(("call_s", "names"), EXPECTED)
def test_a_default_of_long_calls_is_called_once(
    call_s: float, names: list[str], program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    default, given = jitted(program), list[Any]()

    def counted(x: Any) -> Any:
        given.append(x)
        return default(x)

    calls_take(call_s, monkeypatch)
    found = input_sets(program, counted, "cpu")
    assert [inputs.name for inputs in found.sets] == names
    assert found.is_sample == (call_s == LONG_S)
    assert len(given) == (1 if call_s == LONG_S else 3), "twice the example, once the random inputs"


@pytest.mark.parametrize(("call_s", "names"), EXPECTED)
def test_what_is_compared_applied_and_exported_is_checked_alike(
    call_s: float,
    names: list[str],
    program: Program,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(tmp_path, monkeypatch)
    calls_take(call_s, monkeypatch)
    Database(tmp_path / "empty.db").close()
    tuned = applied(program, database=tmp_path / "empty.db")
    assert [judge.inputs.name for judge in prepared(program).judges] == names
    assert [a.inputs for a in checked_whole(tuned)] == names
    assert [a.inputs for a in exported(program, tmp_path / "model.onnx").accuracy] == names


@pytest.mark.parametrize(("call_s", "names"), EXPECTED)
def test_options_of_xla_are_checked_alike(
    call_s: float, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged, real = list[str](), Judge.of

    def noted(program: Program, default: Any, inputs: Any, *rest: Any, **named: Any) -> Judge:
        judged.append(inputs.name)
        return real(program, default, inputs, *rest, **named)

    monkeypatch.setattr(Judge, "of", noted)
    calls_take(call_s, monkeypatch)
    (tmp_path / "small.py").write_text(
        "import jax.numpy as jnp\ndef model(): return lambda x: x @ x, (jnp.ones((4, 4)),)\n"
    )
    request = {"program": f"{tmp_path}/small.py:model", "arg": [], "dim": []}
    found = answer({**request, "numerics": "standard", "target": None, "options": {}, "pairs": 6})
    assert len(found["tried_s"]) == 6 and judged == names
