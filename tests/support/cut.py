"""Some of the sites of a program."""

from hlotune.hlo.frontends.program import Program
from hlotune.hlo.sites.sites import Site, overlap, sites


def contractions(program: Program) -> tuple[Site, ...]:
    """Those around a dot or a convolution."""
    return tuple(s for s in sites(program) if s.pattern == "contraction")


def firsts(program: Program) -> list[Site]:
    """Those that share no operation with one that is named before them."""
    found: list[Site] = []
    for site in sites(program):
        if not any(overlap(site, x) for x in found):
            found.append(site)
    return found
