"""Parameters of tests that need torch where they are about its models, and only there."""

from collections.abc import Sequence

import pytest
from _pytest.mark import ParameterSet

MODELS = frozenset({"ensemble", "mlp", "treegru"})
"""Cost models that are networks, or have one among their members."""


def with_torch(*values: object) -> ParameterSet:
    return pytest.param(*values, marks=pytest.mark.torch)


def every_model(names: Sequence[str]) -> list[str | ParameterSet]:
    return [with_torch(name) if name in MODELS else name for name in names]
