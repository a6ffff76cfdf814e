"""Which kernels a model is trained on, and which it has never seen.

Both splits look at nothing but the kernels' keys and families, so they are the same for every model
and on every machine.  A kernel's family is the hash of its text without extents.
"""

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

LEAST_KNOWN = 2
"""Kernels of a family that stay in training where others of it are held out."""


@dataclass(frozen=True, slots=True)
class Split:
    """Keys of kernels, in order."""

    train: tuple[str, ...]
    held_out: tuple[str, ...]


def hold_out_kernels(families: Mapping[str, str], *, share: float = 0.25, seed: int = 0) -> Split:
    """Holds out unknown kernels of known families: a share of each family that is large enough,
    one at least.

    Args:
        families: key to family.
        share: of a family's kernels, rounded down but not to none; `LEAST_KNOWN` of them stay.
        seed: of the choice.
    """
    held: list[str] = []
    for members in by_family(families).values():
        most = min(max(1, int(share * len(members))), len(members) - LEAST_KNOWN)
        held += sorted(members, key=lambda key: _draw(key, seed))[: max(0, most)]
    return split(families, held)


def hold_out_families(
    families: Mapping[str, str], *, folds: int = 5, seed: int = 0
) -> tuple[Split, ...]:
    """Holds out whole families: each is held out in exactly one fold.

    The families go to the folds from the largest to the smallest, each to the fold that has fewest
    kernels.  There are no more folds than families.  Raises ValueError for fewer than two folds.
    """
    if folds < 2:
        raise ValueError(f"expected two folds or more, got {folds}; one would train on nothing")
    groups = by_family(families)
    order = sorted(groups, key=lambda family: (-len(groups[family]), _draw(family, seed)))
    held: list[list[str]] = [[] for _ in range(min(folds, len(order)))]
    for family in order:
        min(held, key=len).extend(groups[family])
    return tuple(split(families, keys) for keys in held)


def by_family(families: Mapping[str, str]) -> dict[str, list[str]]:
    """Family to the keys of its kernels, both in order."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for key in sorted(families):
        groups[families[key]].append(key)
    return dict(sorted(groups.items()))


def split(families: Mapping[str, str], held_out: list[str]) -> Split:
    held = set(held_out)
    return Split(tuple(sorted(families.keys() - held)), tuple(sorted(held)))


def _draw(name: str, seed: int) -> str:
    """A place in a random order that does not hang on what else is ordered."""
    return hashlib.sha256(f"{seed} {name}".encode()).hexdigest()
