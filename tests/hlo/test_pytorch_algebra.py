"""Factorizations of matrices, branches, and scans of extremes are those of PyTorch."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import load
from hlotune.schedules.errors import ProgramError
from tests.support.torch_modules import Of, exported, flattened, require_equal

pytestmark = pytest.mark.torch


def matrices(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Some that are far from singular."""
    torch.manual_seed(0)
    return torch.randn(*shape, dtype=dtype) + 3 * torch.eye(shape[-1], dtype=dtype)


def positive(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    x = matrices(*shape, dtype=dtype)
    return x @ x.mH


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128])
def test_factors_by_cholesky_and_what_they_solve_are_those_of_pytorch(dtype: torch.dtype) -> None:
    def function(a: Any, b: Any) -> Any:
        of = torch.linalg
        factor, turned = of.cholesky(a), of.cholesky(a, upper=True)
        return (
            factor, turned, of.cholesky(a.tril()), of.cholesky_ex(a)[1],
            torch.cholesky_solve(b, factor), torch.cholesky_solve(b, turned, upper=True),
            torch.cholesky_inverse(factor), torch.cholesky_inverse(turned, upper=True),
            of.solve_triangular(factor, b, upper=False),
            of.solve_triangular(a, b, upper=True),
            of.solve_triangular(a, b.mT, upper=False, left=False, unitriangular=True),
            of.solve_triangular(a[0], b, upper=True), b.mT, b.mH + 0, b.adjoint() + 0, a[0].H + 0,
        )  # fmt: skip

    b = matrices(2, 4, 4, dtype=dtype)[..., :3]
    require_equal(Of(function), positive(2, 4, 4, dtype=dtype), b)


def test_solutions_inverses_and_determinants_are_those_of_pytorch() -> None:
    def function(a: Any, b: Any, vector: Any) -> Any:
        of = torch.linalg
        return (
            of.solve(a, b), of.solve(a, b.mT, left=False), of.solve(a, vector),
            of.solve(a[0], vector[0]), of.solve(a[0], b), of.solve_ex(a, b)[1], of.inv(a),
            a.inverse(), of.inv_ex(a)[0], of.det(a), a[0].det(), *of.slogdet(a), *a.slogdet(),
            (a @ a).logdet(), (-a[:1, :3, :3]).logdet(), of.matrix_power(a, 3),
            of.matrix_power(a, -2), of.cross(b.mT[..., :3], vector[:, None, :3]), a[0].trace(),
        )  # fmt: skip

    a = matrices(2, 5, 5)
    require_equal(Of(lambda *x: flattened(function(*x))), a, a[..., :3].clone(), a[..., 0].clone())


def test_logarithms_of_determinants_out_of_range_are_those_of_pytorch() -> None:
    def function(a: Any, b: Any, c: Any, d: Any) -> Any:
        of = torch.linalg
        return (
            a.logdet(), (-a).logdet(), (-a[1:, 1:]).logdet(), *of.slogdet(a), b.logdet(),
            *of.slogdet(b), c.logdet(), *of.slogdet(c), d.logdet(), *of.slogdet(d),
        )  # fmt: skip

    swapped = torch.eye(4)[torch.tensor([[0, 1, 2, 3], [1, 0, 2, 3], [1, 2, 0, 3]])]
    c = torch.cat([1e30 * swapped, -1e30 * swapped, 0 * swapped[:1]])
    of_complex = (3 + 1j) * torch.eye(200, dtype=torch.complex64)
    require_equal(
        Of(lambda *x: flattened(function(*x))),
        3 * torch.eye(200), 1e30 * torch.tensor([[1.0, 2], [3, 1]]), c, of_complex,
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch, about its own decompositions
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
def test_what_is_made_of_matrices_without_factors_is_told_by_info(dtype: torch.dtype) -> None:
    def whole(info: Any, made: Any) -> Any:
        return torch.where(info[:, None, None] == 0, made, 7)

    def function(a: Any, b: Any) -> Any:
        of = torch.linalg
        lower, of_lower = of.cholesky_ex(a)
        upper, of_upper = of.cholesky_ex(a, upper=True)
        parts = of.inv_ex(a), of.solve_ex(a, b), of.solve_ex(a, b.mT, left=False)
        vectors, of_vectors = of.solve_ex(a, b[:, :, 0])
        return (
            whole(of_lower, lower), whole(of_upper, upper), of_lower != 0, of_upper != 0,
            *(whole(info, made) for made, info in parts), *(info for _, info in parts),
            torch.where(of_vectors[:, None] == 0, vectors, 7), of_vectors,
            of.solve_ex(a[0], b)[1], of.solve_ex(a, b[0])[1],
        )  # fmt: skip

    diagonals = [[1, 2, 3, 4], [1, 1, 0, 2], [1, -1, 2, 1], [0, 0, 0, 0], [5, 1, 2, 0]]
    a = torch.diag_embed(torch.tensor(diagonals).to(dtype))
    b = matrices(5, 4, 4, dtype=dtype)[..., :3].clone()
    require_equal(Of(function), a, b)
    require_equal(torch.export.export(Of(function), (a, b)).run_decompositions().module(), a, b)


def test_orthogonal_factors_are_those_of_pytorch() -> None:
    def function(a: Any, s: Any) -> Any:
        of = torch.linalg
        u, values, v = of.svd(a, full_matrices=False)
        far, vectors = of.eigh(s)
        whole = of.svd(a)
        return (
            *of.qr(a), *of.qr(a.mT), *of.qr(a, mode="complete"), of.qr(a, mode="r")[1],
            values, of.svdvals(a), (u * values[:, None]) @ v, u.mT @ u,
            whole[0] @ whole[0].mT, whole[2] @ whole[2].mT,
            far, of.eigvalsh(s), (vectors * far[:, None]) @ vectors.mT, of.eigh(s.tril())[0],
            of.eigvalsh(s.triu(), UPLO="U"),
        )  # fmt: skip

    require_equal(
        Of(lambda *x: flattened(function(*x))), torch.randn(2, 5, 3).double(), positive(2, 4, 4)
    )


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch, about its own decompositions
def test_factors_have_rules_in_programs_of_fewer_operations_too() -> None:
    def function(a: Any) -> Any:
        of = torch.linalg
        return (
            of.cholesky(a), of.inv(a), of.det(a), *of.slogdet(a), of.solve(a, a[..., :1]),
            of.eigvalsh(a), of.svdvals(a), *of.svd(a)[1:2], of.matrix_power(a, 3),
        )  # fmt: skip

    a = positive(2, 4, 4)
    program = torch.export.export(Of(function), (a,)).run_decompositions()
    require_equal(program.module(), a)


def test_extremes_so_far_are_those_of_pytorch() -> None:
    def function(x: Any, n: Any) -> Any:
        of_x = (*x.cummax(1), *x.cummin(-1), *x.cummax(0), *x.cummin(0))
        return (*of_x, *n.cummax(1), *n.cummin(0), *x[0, 0].cummax(0))

    none, inf = float("nan"), float("inf")
    x = torch.tensor([[1.0, 3, 3, none, 5, none, 0], [-0.0, 0, -0.0, inf, inf, 2, 1], [7] * 7])
    require_equal(Of(function), x, torch.tensor([[2, 2, 1, 5, 5], [3, 1, 1, 0, 4]]))


def test_extremes_so_far_have_the_sign_of_the_last_zero() -> None:
    def function(x: Any) -> Any:
        return 1 / x.cummax(1)[0], 1 / x.cummin(1)[0], 1 / x.cummax(0)[0]

    x = torch.tensor([[0.0, -0.0, 0, -0.0, -1, 0], [-0.0, 0, -0.0, 2, -0.0, -3]])
    for dtype in (torch.float32, torch.float64):
        require_equal(Of(function), x.to(dtype))


def test_functions_of_bessel_and_bilinear_forms_are_those_of_pytorch() -> None:
    def function(x: Any, n: Any) -> Any:
        of = torch.special
        return of.i0(x), x.i0(), of.i0e(x), of.i1(x), of.i1e(x), n.i0(), x * torch.rrelu(x)

    torch.manual_seed(0)
    require_equal(Of(function).eval(), torch.linspace(-12, 12, 49), torch.arange(-3, 4))
    require_equal(nn.RReLU(0.1, 0.4).eval(), torch.randn(3, 4))
    for bias in (True, False):
        form = nn.Bilinear(4, 5, 3, bias=bias)
        require_equal(form, torch.randn(2, 6, 4), torch.randn(2, 6, 5))


class Branching(nn.Module):
    """Goes one of two ways by a value, each with weights of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> Any:
        def inner(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            positive = torch.cond(x[0, 0] > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
            return self.one(positive), x.max(1)[1]

        def outer(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.other(x), x.min(1)[1]

        return torch.cond(x.sum() > 0, inner, outer, (x,))


def test_a_branch_is_chosen_by_a_value_as_in_pytorch(tmp_path: Any) -> None:
    torch.manual_seed(0)
    module, x = Branching().eval(), torch.rand(5, 4)
    for given in (x, -x, torch.cat([-x[:1], x])):
        require_equal(module, given)
    program = load(exported(tmp_path, module, x))
    assert sum(op.name in ("stablehlo.if", "stablehlo.case") for op in program.graph.ops) == 1


class Resizing(nn.Module):
    """Goes one of two ways, and computes with sizes in both, those from outside among them."""

    def forward(self, x: torch.Tensor) -> Any:
        count, sums = x.shape[0], x.sum(0)

        def one(sums: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return sums.expand(count, -1) * 2, sums.new_ones(sums.shape[0] + 1)

        def other(sums: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return sums.cos().expand(count, -1) / count, sums.new_zeros(sums.shape[0] + 1)

        return torch.cond(x.sum() > 0, one, other, (sums,))


def test_branches_compute_with_symbolic_sizes(tmp_path: Path) -> None:
    path, module = tmp_path / "branches.pt2", Resizing()
    rows, columns = torch.export.Dim("rows"), torch.export.Dim("columns")
    with torch.no_grad():
        made = torch.export.export(
            module, (torch.rand(5, 4),), dynamic_shapes=({0: rows, 1: columns},)
        )
        torch.export.save(made, path)
    program, x = load(path, dims={"x.0": 3, "x.1": 7}), torch.rand(3, 7)
    assert sum(op.name in ("stablehlo.if", "stablehlo.case") for op in program.graph.ops) == 1
    for given in (x, -x):
        for got, wanted in zip(jitted(program)(given.numpy()), module(given), strict=True):
            np.testing.assert_allclose(got, wanted.numpy(), rtol=2e-5, atol=2e-6)


def looping(x: Any) -> Any:
    loop = torch._higher_order_ops.while_loop
    return loop(lambda x: x.sum() < 9, lambda x: (x + 1,), (x,))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Of(lambda x: x + torch.randn(3)), r"got randn, whose numbers .* as an argument"),
        (Of(torch.rand_like), r"got rand_like, whose numbers"),
        (Of(lambda x: x.bernoulli()), r"got bernoulli, whose numbers"),
        (nn.RReLU().train(), r"rrelu in training: call module\.eval\(\)"),
        (
            Of(looping),
            r"rules for .*higher_order\.while_loop",
        ),
        (
            Of(lambda x: torch.cond(
                x.sum() > 0, lambda x: torch.special.bessel_j0(x), lambda x: x.sin(), (x,))),
            r"rules for .*aten\.special_bessel_j0",
        ),
        (
            Of(lambda x: torch.cond(
                x.sum() > 0, lambda x: x + torch.randn(3), lambda x: x.sin(), (x,))),
            r"^expected what hlotune has a rule for in [^(]*, got randn, whose numbers",
        ),
    ],
    ids=["draw", "like", "bernoulli", "training", "loop", "in a branch", "draw in a branch"],
)  # fmt: skip
def test_what_has_no_rule_in_a_program_is_named(module: nn.Module, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        load(module, torch.rand(3))
