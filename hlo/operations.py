"""Tables of operations: which are elementwise, which dialects XLA takes, which meet devices."""

KERNELS_ELEMENTWISE = frozenset({
    "chlo.erf", "chlo.erfc", "stablehlo.abs", "stablehlo.add", "stablehlo.and", "stablehlo.cbrt",
    "stablehlo.ceil", "stablehlo.clamp", "stablehlo.compare", "stablehlo.convert",
    "stablehlo.cosine", "stablehlo.divide", "stablehlo.exponential",
    "stablehlo.exponential_minus_one", "stablehlo.floor", "stablehlo.is_finite", "stablehlo.log",
    "stablehlo.log_plus_one", "stablehlo.logistic", "stablehlo.maximum", "stablehlo.minimum",
    "stablehlo.multiply", "stablehlo.negate", "stablehlo.not", "stablehlo.or", "stablehlo.power",
    "stablehlo.remainder", "stablehlo.round_nearest_even", "stablehlo.rsqrt", "stablehlo.select",
    "stablehlo.sign", "stablehlo.sine", "stablehlo.sqrt", "stablehlo.subtract", "stablehlo.tanh",
    "stablehlo.xor",
})  # fmt: skip
"""Elementwise operations that kernels of ours may have."""
_OTHERS_ELEMENTWISE = frozenset({
    "stablehlo.atan2", "stablehlo.bitcast_convert", "stablehlo.complex",
    "stablehlo.count_leading_zeros", "stablehlo.imag", "stablehlo.popcnt", "stablehlo.real",
    "stablehlo.reduce_precision", "stablehlo.round_nearest_afz", "stablehlo.shift_left",
    "stablehlo.shift_right_arithmetic", "stablehlo.shift_right_logical", "stablehlo.tan",
    "chlo.acos", "chlo.acosh", "chlo.asin", "chlo.asinh", "chlo.atan", "chlo.atanh",
    "chlo.bessel_i1e", "chlo.conj", "chlo.cosh", "chlo.digamma", "chlo.erf_inv", "chlo.is_inf",
    "chlo.is_neg_inf", "chlo.is_pos_inf", "chlo.lgamma", "chlo.next_after", "chlo.polygamma",
    "chlo.sinh", "chlo.square", "chlo.tan", "chlo.zeta",
})  # fmt: skip
ON_SCALARS = KERNELS_ELEMENTWISE | _OTHERS_ELEMENTWISE | {"stablehlo.constant"}
"""Operations that mean the same of scalars, one by one, and of whole tensors."""

DIALECTS = ("chlo", "func", "sdy", "stablehlo")
"""Whose operations XLA takes in a program."""
COLLECTIVES = frozenset({
    "stablehlo.all_gather", "stablehlo.all_reduce", "stablehlo.all_to_all",
    "stablehlo.collective_broadcast", "stablehlo.collective_permute",
    "stablehlo.cross-replica-sum", "stablehlo.reduce_scatter",
})  # fmt: skip
"""Operations in which several devices may take part."""
RANDOM = "stablehlo.rng"
"""Its values are drawn anew in each call."""
