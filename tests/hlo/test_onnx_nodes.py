"""Some of ONNX's own cases, of each family of operators; `benchmarks/onnx_nodes.py` runs all."""

import fnmatch
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from onnx.reference.ops import op_pool_common

from benchmarks.onnx_nodes import Case, cases, outcome
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import load
from hlotune.schedules.errors import ProgramError
from tests.support.onnx_models import model, node, saved, tensor

PASSING = (
    "test_attention_4d_gqa_causal", "test_averagepool_2d_ceil_last_window_starts_on_pad",
    "test_averagepool_2d_pads_count_include_pad", "test_basic_conv_with_padding",
    "test_batchnorm_example", "test_bitshift_right_uint8", "test_cast_FLOAT_to_FLOAT8E4M3FN",
    "test_clip_default_int8_min", "test_convinteger_with_padding", "test_convtranspose_pads",
    "test_cumsum_1d_reverse_exclusive", "test_depthtospace_crd_mode_example",
    "test_dequantizelinear_blocked", "test_div_int32_trunc", "test_dropout_default_ratio",
    "test_dynamicquantizelinear", "test_einsum_batch_matmul", "test_gather_negative_indices",
    "test_gathernd_example_int32_batch_dim1", "test_gemm_all_attributes", "test_gru_seq_length",
    "test_gridsample_bicubic", "test_group_normalization_epsilon", "test_hardmax_axis_1", "test_if",
    "test_instancenorm_epsilon", "test_isinf_negative", "test_layer_normalization_2d_axis1",
    "test_logsoftmax_large_number", "test_loop11", "test_lrn_default", "test_lstm_with_peepholes",
    "test_maxpool_with_argmax_2d_precomputed_pads", "test_mod_mixed_sign_int32",
    "test_nllloss_NCd1d2_with_weight_reduction_sum_ii", "test_onehot_negative_indices",
    "test_qlinearconv", "test_qlinearmatmul_2D_int8_float32", "test_quantizelinear_axis",
    "test_range_int32_type_negative_delta", "test_reduce_log_sum_exp_keepdims_example",
    "test_reflect_pad", "test_resize_downsample_scales_cubic_A_n0p5_exclude_outside",
    "test_resize_tf_crop_and_resize", "test_reshape_zero_and_negative_dim",
    "test_rms_normalization_3d_axis1_epsilon", "test_rotary_embedding_interleaved",
    "test_scan9_sum", "test_scatter_elements_with_reduction_max", "test_scatternd_add",
    "test_simple_rnn_with_initial_bias", "test_slice_neg_steps", "test_softmax_axis_1",
    "test_split_variable_parts_2d_opset18", "test_top_k_smallest", "test_tril_zero",
    "test_unsqueeze_unsorted_axes", "test_where_long_example",
    "pytorch-converted/test_Conv3d_stride_padding", "simple/test_sequence_model3",
    "simple/test_sequence_model7", "test_optional_get_element_tensor",
    "test_optional_has_element_empty_no_input_tensor_input",
)  # fmt: skip
REFUSED = {
    "test_nonzero_example": "NonZero whose result has a shape that depends on values",
    "test_compress_0": "Compress whose result has a shape that depends on values",
    "test_bernoulli": "Bernoulli which draws random numbers",
    "test_sequence_insert_at_back": "tensors of numbers, got sequence_type",
    "test_strnormalizer_nostopwords_nochangecase": "tensors of numbers, got texts",
    "test_if_opt": "Optional which makes optional values",
    "test_split_to_sequence_1": "expected results that are tensors, got a sequence of tensors",
    "test_adam": "ai.onnx.preview.training.Adam of opset 1, which it has no rule for",
}


@pytest.fixture(scope="module")
def known() -> dict[str, Case]:
    """All cases.  Results of pools over three dimensions are left out: ONNX computes them as it
    imports its cases, in three quarters of all that this takes, and none is among those here.
    """
    whole = op_pool_common.pool

    def pool(
        padded: Any, shape: Any, kernel: Any, strides: Any, out: Any, *more: Any, **named: Any
    ) -> Any:
        if len(out) < 3:
            return whole(padded, shape, kernel, strides, out, *more, **named)
        return np.zeros((*shape[:2], *out), padded.dtype)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(op_pool_common, "pool", pool)
        return {case.name: case for case in cases()}


@pytest.mark.parametrize("name", PASSING)
def test_a_case_of_onnx_passes(name: str, known: dict[str, Case], tmp_path: Path) -> None:
    found = outcome(known[name], tmp_path)
    assert (found.state, found.why) == ("passed", "")


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_case_of_onnx_is_refused_in_words(
    name: str, known: dict[str, Case], tmp_path: Path
) -> None:
    found = outcome(known[name], tmp_path)
    assert found.state == "refused" and REFUSED[name] in found.why


def test_names_of_cases_are_of_different_families() -> None:
    assert len(set(PASSING)) == len(PASSING) and not fnmatch.filter(PASSING, "*_expanded")


def looping(body: Sequence[Any], stored: dict[str, Any], limit: int) -> Any:
    """A loop that carries one value; its body names it `a`, `b` is the next, `g` goes on."""
    graph = model(
        body, [tensor("i", [], 7), tensor("c", [], 9), tensor("a", [2])],
        [tensor("g", [], 9), tensor("b", [2])],
    ).graph  # fmt: skip
    loop = node("Loop", "limit - x", "y", body=graph)
    return model([loop], [tensor("x", [2])], [tensor("y", [2])], {"limit": limit, **stored})


@pytest.mark.parametrize("limit", [3, 100])
def test_a_loop_ends_by_its_count_or_by_its_condition(limit: int, tmp_path: Path) -> None:
    body = [
        node("Add", "a one", "b"),
        node("ReduceMax", "b", "m", keepdims=0),
        node("Less", "m top", "g"),
    ]
    stored = {"one": np.float32(1), "top": np.float32(10)}
    path = saved(looping(body, stored, limit), tmp_path / "a.onnx")
    (got,) = jitted(load(path))(np.array([0, 5], np.float32))
    np.testing.assert_array_equal(got, [3, 8] if limit == 3 else [5, 10])


def test_a_long_loop_that_only_counts_is_one_loop_of_the_program(tmp_path: Path) -> None:
    body = [node("Add", "a one", "b"), node("Identity", "c", "g")]
    path = saved(looping(body, {"one": np.float32(1)}, 100), tmp_path / "a.onnx")
    program = load(path)
    assert [op.name for op in program.graph.ops].count("stablehlo.while") == 1
    (got,) = jitted(program)(np.array([0, 5], np.float32))
    np.testing.assert_array_equal(got, [100, 105])


def test_a_loop_of_unknown_length_that_keeps_results_is_refused(tmp_path: Path) -> None:
    graph = model(
        [node("Identity", "c", "g"), node("Identity", "a", "b"), node("Identity", "a", "r")],
        [tensor("i", [], 7), tensor("c", [], 9), tensor("a", [2])],
        [tensor("g", [], 9), tensor("b", [2]), tensor("r", [2])],
    ).graph
    made = model(
        [node("Loop", "limit - x", "y all", body=graph)],
        [tensor("x", [2]), tensor("limit", [], 7)],
        [tensor("all", [5, 2])],
    )
    with pytest.raises(ProgramError, match=r"Loop with results of each iteration whose number is"):
        load(saved(made, tmp_path / "a.onnx"))


EXPORT = """
import sys, warnings
import torch
warnings.simplefilter("ignore")
torch.manual_seed(0)
network = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
    torch.nn.MaxPool2d(2), torch.nn.Upsample(scale_factor=2.0, mode="bilinear"),
    torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(128, 16), torch.nn.GELU(),
    torch.nn.LayerNorm(16), torch.nn.Unflatten(1, (2, 8)),
    torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
).eval()
x = torch.randn(2, 3, 16, 16)
torch.onnx.export(
    network, (x,), sys.argv[1], dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "batch"}}
)
import numpy
numpy.savez(sys.argv[2], x=x.numpy(), y=network(x).detach().numpy())
"""


@pytest.mark.torch
def test_what_pytorch_exports_gives_its_numbers(tmp_path: Path) -> None:
    path, values = tmp_path / "net.onnx", tmp_path / "values.npz"
    subprocess.run([sys.executable, "-c", EXPORT, str(path), str(values)], check=True)
    with np.load(values) as stored:
        program = load(path, dims={"batch": len(stored["x"])})
        (got,) = jax.tree.leaves(jitted(program)(x=stored["x"]))
        np.testing.assert_allclose(got, stored["y"], rtol=1e-4, atol=1e-5)
