"""Which kernels are opened first: by what they promise to save, for a second of tuning."""

from hlotune.measure.timing.timing import FEW_S

WINNERS_LAG = 1.1
"""A winner takes about so many times its roofline."""
LEAST_GAIN = 0.05
"""The share of its time that a kernel is expected to save though the default is at its limit."""
FIXED_S = 0.8
"""The seconds that deciding a kernel takes from its first build to its final, were its calls and
its operands nothing.

These and the following were fitted to 70 kernels that six runs on a Zen 3 decided by their first
candidates (VGG19, its gradient and its batch of 10, ResNet-18's training, DCGAN, MNIST's step):
half of them took 0.68 to 1.47 times what this says."""
DEFAULT_CALLS, LEAST_CALLS = 34.0, 37.0
"""So many calls of the default, and of the roofline, it takes beside that: rounds, and checks, of
which some are of one thread and the oracle's take as long as many calls."""
BYTE_S = 11.5e-9
"""And so many seconds a byte of arguments and results, which are drawn, copied and compared."""
FEW_CALLS = 10.0
"""So many calls of a default of `FEW_S` and more it takes, which is counted, not fitted: the one
that warms up is the first of nine rounds, and one is for checks.  Where candidates are many times
as fast there are two rounds alone."""


def promised(default_s: float, least_s: float, weight: float, size: int = 0) -> float:
    """The seconds of one run of the program that a second of tuning a kernel is expected to save.

    Args:
        default_s: what the default takes for a call, timed or guessed.
        least_s: what a call takes by the roofline; 0 where nobody knows.
        weight: how often it runs in one run of the program.
        size: the bytes of its arguments and results.
    """
    saved_s = max(default_s - WINNERS_LAG * least_s, LEAST_GAIN * default_s)
    return weight * saved_s / cost_s(default_s, least_s, size)


def cost_s(default_s: float, least_s: float = 0.0, size: int = 0) -> float:
    """The seconds of tuning that a kernel is expected to take."""
    calls = DEFAULT_CALLS if default_s < FEW_S else FEW_CALLS
    return FIXED_S + calls * default_s + LEAST_CALLS * least_s + BYTE_S * size
