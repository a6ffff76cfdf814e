"""Which kernels are opened first: by what they promise to save, for a second of tuning."""

WINNERS_LAG = 1.1
"""A winner takes about so many times its roofline."""
LEAST_GAIN = 0.05
"""The share of its time that a kernel is expected to save though the default is at its limit."""
FIXED_S, CALLS = 2.0, 150
"""The seconds that a kernel takes from its first build to its final, but for calls of it, and about
how many of these there are: a check by the oracle takes as long as many calls."""
FEWER_FROM_S, CALLS_ABOVE = 0.25, 20
"""Calls as long as this are made less often: what they take above it counts so many times."""


def promised(default_s: float, least_s: float, weight: float) -> float:
    """The seconds of one run of the program that a second of tuning a kernel is expected to save.

    Args:
        default_s: what the default takes for a call, timed or guessed.
        least_s: what a call takes by the roofline; 0 where nobody knows.
        weight: how often it runs in one run of the program.
    """
    saved_s = max(default_s - WINNERS_LAG * least_s, LEAST_GAIN * default_s)
    return weight * saved_s / cost_s(default_s)


def cost_s(call_s: float) -> float:
    """The seconds of tuning that a kernel takes whose default's call takes so long, at a guess."""
    return (
        FIXED_S + CALLS * min(call_s, FEWER_FROM_S) + CALLS_ABOVE * max(0.0, call_s - FEWER_FROM_S)
    )
