"""The package installs without make, in less than a gigabyte, and tunes without torch."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.project.test_packaging import wheel
from tests.support.tree import ROOT

CONSTRAINTS = ROOT / (
    "constraints.txt" if sys.version_info >= (3, 12) else "constraints-oldest.txt"
)


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment that has the package with its extra `tune`, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    made = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", made], check=True)
    package = f"hlotune[tune] @ {wheel(folder).as_uri()}"
    subprocess.run(
        [made / "bin" / "python", "-m", "pip", "install", "--quiet", "-c", CONSTRAINTS, package],
        check=True,
    )
    return made / "bin"


def ran(scripts: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [scripts / "tune", *arguments], cwd=folder, capture_output=True, text=True
    )


@pytest.mark.slow
def test_it_takes_less_than_a_gigabyte(scripts: Path) -> None:
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(scripts.parent)}))
    files = [path for path in packages.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(files) > 1000
    assert sum(path.stat().st_size for path in files) < 1e9
    assert not (packages / "torch").exists() and not list(packages.glob("nvidia*"))


@pytest.mark.slow
def test_a_program_is_tuned_with_the_default_model(scripts: Path, tmp_path: Path) -> None:
    program = f"{ROOT / 'examples' / 'mlp.py'}:model"
    done = ran(scripts, tmp_path, "run", program, "--trials", "8", "--database", "a.db")
    assert done.returncode == 0, done.stderr
    assert "model: trees, trained on" in done.stderr
    assert " of 3 kernels won" in done.stderr


@pytest.mark.slow
def test_a_model_that_needs_torch_names_the_command_that_installs_it(
    scripts: Path, tmp_path: Path
) -> None:
    program = f"{ROOT / 'examples' / 'mlp.py'}:model"
    done = ran(scripts, tmp_path, "run", program, "--trials", "8", "--model", "mlp")
    assert done.returncode == 2
    assert "install it with `pip install torch`" in done.stderr
