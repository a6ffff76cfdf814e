"""How far results may be from exact."""

from typing import Literal, get_args

Numerics = Literal["strict", "standard", "fast"]
"""`strict` results differ from exact ones as sums in another order do; `standard` and `fast` ones
may be off by more, as the documentation of algorithms says."""
NUMERICS: tuple[Numerics, ...] = get_args(Numerics)
"""From the narrowest to the laxest: each allows all that those before it allow."""
