"""What `tune model` refuses before anything that takes long, and in which words."""

from pathlib import Path

import pytest

from hlotune.cli.main import run_command
from hlotune.costmodel.pretrained import shipped
from tests.cli.test_cli import refused

TREES = str(shipped("trees"))


@pytest.mark.parametrize("model", ["random", "roofline"])
def test_what_learns_nothing_is_not_trained(model: str, tmp_path: Path) -> None:
    message = refused("model", "train", "--model", model, "-o", str(tmp_path / "m.npz"))
    assert f"expected a model that learns, got {model}; train another" in message


@pytest.mark.parametrize("command", [("train", "-o"), ("eval", "--plot")])
def test_a_place_that_is_not_there_is_refused_at_once(
    command: tuple[str, str], tmp_path: Path
) -> None:
    name, option = command
    nowhere, missing = tmp_path / "none" / "file", tmp_path / "missing.db"
    message = refused("model", name, option, str(nowhere), "--database", str(missing))
    assert f"expected to write to {nowhere}, got no folder for it" in message


def test_a_chart_of_another_form_is_refused_at_once(tmp_path: Path) -> None:
    plot, missing = tmp_path / "plot.png", tmp_path / "missing.db"
    message = refused("model", "eval", "--plot", str(plot), "--database", str(missing))
    assert f"expected a file whose name ends in .svg, got {plot}; rename it" in message


@pytest.mark.parametrize("command", [("train", "-o"), ("eval", "--plot")])
def test_a_folder_that_nothing_can_be_written_to_is_refused_at_once(
    command: tuple[str, str], tmp_path: Path
) -> None:
    """`/proc` takes no files, whoever asks; a link into it is no better."""
    name, option = command
    (tmp_path / "link.npz").symlink_to("/proc/m.npz")
    for place in (Path("/proc/m.npz"), tmp_path / "link.npz"):
        missing = str(tmp_path / "missing.db")
        message = refused("model", name, option, str(place), "--database", missing)
        assert f"expected to write to {place}, got" in message
        assert "name another path" in message


def test_looking_for_a_place_leaves_nothing_there_and_what_was_there_alone(tmp_path: Path) -> None:
    (tmp_path / "m.npz").write_bytes(b"kept")
    missing = str(tmp_path / "missing.db")
    for name in ("m.npz", "new.npz"):
        refused("model", "train", "-o", str(tmp_path / name), "--database", missing)
    assert [f.name for f in tmp_path.iterdir()] == ["m.npz"]
    assert (tmp_path / "m.npz").read_bytes() == b"kept"


def test_a_damaged_file_is_refused_before_trials_are_read(tmp_path: Path) -> None:
    (tmp_path / "m.npz").write_bytes(b"no model")
    missing = str(tmp_path / "missing.db")
    message = refused("model", "eval", "--file", str(tmp_path / "m.npz"), "--database", missing)
    assert "got one that is damaged or of another kind" in message


def test_a_trained_file_and_models_to_train_are_too_much() -> None:
    message = refused("model", "eval", "--file", TREES, "--model", "mlp")
    assert "expected models to train or a trained file, got both" in message


def test_a_file_of_another_model_is_not_exported(tmp_path: Path) -> None:
    out = tmp_path / "m.json"
    message = refused("model", "export", "--file", TREES, "--model", "mlp", "-o", str(out))
    assert "expected a file of the model mlp, got one of trees" in message
    assert not out.exists()


def test_a_model_that_does_not_come_with_hlotune_is_trained_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["model", "export", "--model", "mlp", "-o", str(tmp_path / "m.npz")]) == 1
    assert "`tune model train --model mlp` makes one for --file" in capsys.readouterr().err
