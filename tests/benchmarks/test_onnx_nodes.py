"""The count of ONNX's own cases tells what passes, what is refused and what is wrong."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.onnx_nodes import Case, Outcome, difference, is_static, outcome, table
from tests.support.onnx_models import model, node, of_one, tensor

ONES = np.ones((2, 3), np.float32)


def case(made: Any, inputs: list[Any], outputs: list[Any]) -> Case:
    return Case("made", made, [(inputs, outputs)])


def test_a_case_passes_with_the_right_numbers_alone(tmp_path: Path) -> None:
    made = model([node("Neg", "x", "y")], [tensor("x", [2, 3])], [tensor("y", [2, 3])])
    assert outcome(case(made, [ONES], [-ONES]), tmp_path) == Outcome("made", True, "passed")
    wrong = outcome(case(made, [ONES], [ONES]), tmp_path)
    assert wrong.state == "wrong" and "Mismatched elements: 6 / 6" in wrong.why


def test_inputs_that_decide_shapes_are_made_initialisers(tmp_path: Path) -> None:
    made = model(
        [node("Reshape", "x s", "y")], [tensor("x", [2, 3]), tensor("s", [1], 7)],
        [tensor("y", [6])],
    )  # fmt: skip
    found = outcome(case(made, [ONES, np.array([6])], [ONES.reshape(6)]), tmp_path)
    assert (found.state, found.fixed) == ("passed", 1)


def test_what_hlotune_refuses_is_told_in_its_words(tmp_path: Path) -> None:
    found = outcome(case(of_one("NonZero", [2, 3]), [ONES], [ONES]), tmp_path)
    assert (found.state, found.is_static) == ("refused", False)
    assert "NonZero" in found.why


@pytest.mark.parametrize(
    ("got", "wanted", "why"),
    [
        ([ONES], [ONES], ""),
        ([ONES + 1e-5], [ONES], ""),
        ([ONES], [], "1 results in place of 0"),
        ([ONES.T], [ONES], r"result 0 is float32\[3, 2\] in place of float32\[2, 3\]"),
        ([ONES.astype(int)], [ONES], "result 0 is int64"),
        ([ONES * np.nan], [ONES], "result 0: .*nan"),
    ],
)
def test_results_differ_by_number_type_shape_and_value(got: Any, wanted: Any, why: str) -> None:
    found = difference(got, wanted, case(None, [], []))
    assert re.match(why, found) if why else not found


def test_cases_of_sequences_texts_and_unknown_sizes_are_not_static() -> None:
    made = of_one("Relu", [2])
    made.graph.output[0].type.tensor_type.shape.dim.add().dim_value = 2
    assert is_static(made)
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    assert not is_static(made)
    made.graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type = 1
    assert not is_static(made)


def test_the_table_counts_all_cases_and_the_static_ones() -> None:
    found = [
        Outcome("a", True, "passed"), Outcome("b", True, "passed", 1), Outcome("c", True, "wrong"),
        Outcome("d", False, "refused"),
    ]  # fmt: skip
    assert "| all | 4 | 2 (50.0%) | 1 | 1 |" in table(found)
    assert "| numeric tensors of static shape | 3 | 2 (66.7%) | 0 | 1 |" in table(found)
    assert "1 cases pass with inputs that decide shapes" in table(found)
