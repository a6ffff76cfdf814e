"""Operations that no program has, each with the reason why."""

from collections.abc import Callable
from typing import Any

from hlotune.hlo.frontends.pytorch.types import Refusal, rows

DRAWING = (
    "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal",
    "normal_functional", "poisson", "rand", "rand_like", "randint", "randint_like", "randn",
    "randn_like", "random", "randperm", "uniform",
)  # fmt: skip
"""Those whose numbers come from the state of PyTorch's generator."""


def _drawn(name: str) -> Callable[..., Any]:
    def rule(*given: Any, **inputs: Any) -> Any:
        raise Refusal(
            f"{name}, whose numbers PyTorch's generator draws anew in each call: draw them outside "
            "of the module, and give them to it as an argument"
        )

    return rule


ROWS = rows(False, **{name: _drawn(name) for name in DRAWING})
