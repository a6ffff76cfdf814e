"""Commands that write a file refuse to replace a database, or what they read."""

from pathlib import Path

import pytest

from hlotune.costmodel.pretrained import shipped
from hlotune.tuning_logs.database import Database
from tests.cli.test_cli import refused
from tests.support.mlp_records import recorded

COMMANDS = {
    "export": ("db", "export", "{out}", "--database", "{db}"),
    "apply": ("apply", "examples/mlp.py:model", "-o", "{out}", "--database", "{db}"),
    "export to ONNX": ("export", "--onnx", "examples/mlp.py:model", "-o", "{out}"),
    "train": ("model", "train", "-o", "{out}", "--database", "{db}"),
    "eval": ("model", "eval", "--plot", "{out}", "--database", "{db}"),
    "model export": ("model", "export", "-o", "{out}"),
    "candidates": ("export-candidates", "examples/mlp.py:model", "{out}", "--target", "cuda:h200"),
    "measure": ("measure", "candidates.jsonl", "--output", "{out}"),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(recorded(tmp_path_factory.mktemp("records")))


def filled_in(command: str, out: Path, path: Path) -> list[str]:
    return [word.format(out=out, db=path) for word in COMMANDS[command]]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("form", ["itself", "link", "journal", "other"])
def test_no_command_writes_over_a_database(
    command: str, form: str, path: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(path)
    Database(tmp_path / "other.db").close()
    places = {
        "itself": path,
        "link": tmp_path / "link",
        "journal": path.with_name(f"{path.name}-journal"),
        "other": tmp_path / "other.db",
    }
    before = path.read_bytes(), (tmp_path / "other.db").read_bytes()
    message = refused(*filled_in(command, places[form], path))
    database = tmp_path / "other.db" if form == "other" else path
    assert f"got {places[form]}, where the database {database} would be lost" in message
    assert (path.read_bytes(), (tmp_path / "other.db").read_bytes()) == before
    assert not places["journal"].exists()


def test_the_database_that_the_environment_names_is_not_written_over(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HLOTUNE_DB", str(path))
    before = path.read_bytes()
    assert "would be lost; name another path" in refused("db", "export", str(path))
    assert path.read_bytes() == before


def test_a_program_is_not_written_over(path: Path, tmp_path: Path) -> None:
    program = tmp_path / "mlp.py"
    program.write_text(Path("examples/mlp.py").read_text(encoding="utf-8"), encoding="utf-8")
    command = ("apply", f"{program}:model", "-o", str(program), "--database", str(path))
    assert f"got {program}, which this command reads; name another path" in refused(*command)
    assert "def model" in program.read_text(encoding="utf-8")


def test_a_program_is_not_written_over_by_its_candidates(tmp_path: Path) -> None:
    program = tmp_path / "mlp.py"
    program.write_text(Path("examples/mlp.py").read_text(encoding="utf-8"), encoding="utf-8")
    command = ("export-candidates", f"{program}:model", str(program), "--target", "cuda:h200")
    assert f"got {program}, which this command reads; name another path" in refused(*command)
    assert "def model" in program.read_text(encoding="utf-8")


def test_candidates_are_not_written_over_by_what_was_measured(tmp_path: Path) -> None:
    lines = tmp_path / "candidates.jsonl"
    lines.write_text("{}\n")
    message = refused("measure", str(lines), "--output", str(lines))
    assert "which this command reads" in message
    assert lines.read_text() == "{}\n"


def test_records_are_not_written_over_by_what_is_learned_of_them(tmp_path: Path) -> None:
    lines = tmp_path / "records.jsonl"
    lines.write_text("{}\n")
    message = refused("model", "train", "-o", str(lines), "--database", str(lines))
    assert "which this command reads" in message
    assert lines.read_text() == "{}\n"


def test_a_model_is_not_written_over_by_its_own_export(tmp_path: Path) -> None:
    model = tmp_path / "trees.npz"
    trees = shipped("trees")
    assert trees is not None
    model.write_bytes(trees.read_bytes())
    message = refused("model", "export", "--file", str(model), "-o", str(model))
    assert "which this command reads" in message
    assert model.read_bytes() == trees.read_bytes()
