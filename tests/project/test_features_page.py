"""docs/features.md says of every column what it means, and gives the value of an example."""

import re

import pytest

from hlotune.schedules.features.loop_levels import OPERANDS
from hlotune.schedules.features.loop_trees import BUFFERS, NODE_NAMES
from hlotune.schedules.features.summary import NAMES, OTHER_STAGES
from hlotune.schedules.patterns.gpu import GpuProduct
from hlotune.schedules.spaces.gpu import features as gpu
from hlotune.schedules.spaces.gpu.table import gpu_space
from hlotune.schedules.targets.gpu import gpu_target
from tests.support.documented import example_nest, example_nodes, example_row
from tests.support.tree import ROOT

PAGE = (ROOT / "docs" / "features.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `([\w*]+)` \| (\S.*\S) \| (\S+)(?: at (\w+))? \|$", re.MULTILINE)
FEATURES, OTHERS = PAGE.split("## The nodes of a loop tree")
NODES, BLOCKS = OTHERS.split("## Blocks on GPUs")


def columns(part: str) -> list[str]:
    """Names; a star stands for each operand, each buffer, or each stage beside the main one."""
    names: list[str] = []
    for every, group in (
        ("operand*", [f"operand{k}" for k in range(OPERANDS)]),
        ("buffer*", BUFFERS),
        ("stage*", [f"stage{k}" for k in range(1, 1 + OTHER_STAGES)]),
    ):
        found = [name for name, *_ in ROW.findall(part) if name.startswith(every)]
        names += [name.replace(every, one) for one in group for name in found]
    return [name for name, *_ in ROW.findall(part) if "*" not in name] + names


def test_the_page_names_all_columns_of_rows() -> None:
    assert sorted(columns(FEATURES)) == sorted(NAMES)


def test_the_page_names_all_columns_of_nodes() -> None:
    assert sorted(columns(NODES)) == sorted(NODE_NAMES)


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, _, v, _ in ROW.findall(FEATURES)])
def test_the_example_of_a_column_is_right(name: str, value: str) -> None:
    """Columns of kernels without a contraction are zero in the example, which is one."""
    assert value == f"{example_row().get(name.replace('*', '1'), 0.0):.4g}"


@pytest.mark.parametrize(
    ("name", "value", "node"), [(n, v, node) for n, _, v, node in ROW.findall(NODES)]
)
def test_the_example_of_a_node_is_right(name: str, value: str, node: str) -> None:
    found = example_nodes()[node].get(name.replace("buffer*", "operand1"), 0.0)
    assert value == f"{found:.4g}"


def test_the_page_shows_the_nest_of_its_examples() -> None:
    assert f"```\n{example_nest()}\n```" in PAGE


def test_the_page_names_all_columns_of_blocks_on_gpus_and_their_values() -> None:
    target, product = gpu_target("cuda:h200"), GpuProduct(4096, 4096, 4096, "bf16")
    space = gpu_space(product, target)
    blocks = {"block_m": 128, "block_n": 256, "block_k": 64, "split_k": 1, "group_m": 8}
    config = space.config("triton_product", {**blocks, "warps": 8, "stages": 3})
    seen = dict(zip(gpu.NAMES, gpu.features(product, space, config[None])[0], strict=True))
    shown = {name: value for name, _, value, _ in ROW.findall(BLOCKS)}
    assert shown == {name: f"{seen[name]:.4g}" for name in gpu.MEANT}
