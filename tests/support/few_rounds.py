"""Trees that learn offline in a few rounds, which takes a tenth of the time."""

from dataclasses import replace

import pytest

from hlotune.costmodel.trees import GROWTH


def grow_few_rounds(patch: pytest.MonkeyPatch) -> None:
    """Trees are made as any are, of fewer rounds in larger steps: for tests that ask how they are
    made, or what they know even so.
    """
    growth = replace(GROWTH["offline"], rounds=12, patience=6, eta=0.3)
    patch.setitem(GROWTH, "offline", growth)
