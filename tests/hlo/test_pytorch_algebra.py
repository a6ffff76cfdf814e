"""Factorizations of matrices, branches, and scans of extremes are those of PyTorch."""

from typing import Any

import pytest
import torch
from torch import nn

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
    ],
    ids=["draw", "like", "bernoulli", "training", "loop", "inside of a branch"],
)  # fmt: skip
def test_what_has_no_rule_in_a_program_is_named(module: nn.Module, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        load(module, torch.rand(3))
