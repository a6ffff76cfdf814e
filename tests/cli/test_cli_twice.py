"""One tiny product tuned twice from the command line, on this machine: all rooms at work.

The default model needs no torch, and the roofline no xgboost either.
"""

from pathlib import Path

from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.maintenance import check
from tests.support.libraries import tune_without

PRODUCT = """
import jax.numpy as jnp

def model():
    return (lambda x, w: x @ w), (jnp.ones((32, 24)), jnp.ones((24, 40)))
"""


def progress(without: str, *arguments: str) -> list[str]:
    """What a run that ends well says while it goes, but for that others run beside it."""
    done = tune_without(without, "run", *arguments)
    assert done.returncode == 0, done.stderr
    assert "whole program: " in done.stdout
    return [x for x in done.stderr.splitlines() if "another tuner is at work" not in x]


def test_a_second_run_starts_from_what_is_known_and_repeats_none_of_it(tmp_path: Path) -> None:
    (tmp_path / "product.py").write_text(PRODUCT, encoding="utf-8")
    path = tmp_path / "tuning.db"
    command = [f"{tmp_path / 'product.py'}:model", "--trials", "2", "--database", str(path)]
    said = [
        progress("torch", *command), progress("torch,xgboost", *command, "--model", "roofline")
    ]  # fmt: skip
    assert said[0][0].startswith("1 kernel, 0 trials known")
    assert said[1][0].startswith("1 kernel, 2 trials known")
    assert all(lines[-1].startswith("2 trials in ") for lines in said)
    with Database(path, create=False) as database:
        ours = "select schedule from trials where schedule not like '%\"xla\"%'"
        tried = [row["schedule"] for row in database.query(ours)]
        assert len(tried) == len(set(tried)) == 4
        assert len(database.query("select * from finals")) == 2
        assert check(database).problems == ()
