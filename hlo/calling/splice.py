"""Putting replacements in the places of sites."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from hlotune.hlo.frontends.program import Program
from hlotune.hlo.mlir import module as mlir
from hlotune.hlo.mlir import rewrite
from hlotune.hlo.sites.sites import Site
from hlotune.hlo.sites.stacks import Stack
from hlotune.schedules.errors import ProgramError


@dataclass(frozen=True, slots=True)
class Spliced:
    """A program with replacements in it.

    `hidden` are its further arguments, after those of the program: (site, position among the hidden
    ones).  The replacement's own further arguments follow each other in their order.
    """

    module: mlir.Module
    hidden: tuple[tuple[Site, int], ...]

    @property
    def bytecode(self) -> bytes:
        return self.module.bytecode()


def splice(
    program: Program,
    replacements: Mapping[Site, str],
    stacks: Mapping[Site, Sequence[Stack]] = MappingProxyType({}),
) -> Spliced:
    """The program with each site replaced by the text of a module.

    Its `@main` takes the site's arguments, and maybe more: those become hidden arguments of the
    program.

    Args:
        stacks: of a site, those whose indices its text takes behind the site's arguments.

    Raises:
        ProgramError: sites share operations, or a replacement does not have its site's types.
    """
    _check_disjoint(list(replacements))
    module = mlir.parse(program.cut)
    places = mlir.numbered(module, "main")
    entry = module.function("main")
    held = []  # modules whose functions are copied have to live until then
    hidden: list[tuple[Site, int]] = []
    blocks = {site.path: places[site.path].block for site in replacements}
    indices = {
        site: [_index(places[site.path], stack) for stack in stacks.get(site, ())]
        for site in replacements
    }
    for site, text in replacements.items():
        other, function = rewrite.parse_beside(module, text)
        held.append(other)
        place = places[site.path]
        given = [*(place.values[v] for v in site.arguments), *indices[site]]
        extra = rewrite.add_arguments(entry, _extra_types(site, place, given, function))
        hidden += [(site, len(hidden) + i) for i in range(len(extra))]
        _replace(site, places, function, [*given, *extra])
    for block in blocks.values():
        rewrite.sort_block(block)
    module.check("the program after splicing")
    module.run("canonicalize", "cse", "symbol-dce")
    return Spliced(module, tuple(hidden))


def _check_disjoint(sites: Sequence[Site]) -> None:
    owners: dict[tuple[tuple[int, ...], int], Site] = {}
    for site in sites:
        for op in site.ops:
            other = owners.setdefault((site.path, op), site)
            if other is not site:
                raise ProgramError(
                    f"expected sites that share no operation, got {other.name} and {site.name}; "
                    "take a disjoint set, as choose() does"
                )


def _index(place: mlir.Numbered, stack: Stack) -> Any:
    """The index of a stack, computed by operations of its own: others may be part of a kernel."""
    copies = rewrite.copied([place.operations[i] for i in stack.made_by])
    return copies.get(place.values[stack.index], place.values[stack.index])


def _extra_types(
    site: Site, place: mlir.Numbered, given: Sequence[Any], function: Any
) -> list[Any]:
    """Types of the arguments that a replacement has beyond those that it is given."""
    takes, gives = rewrite.signature(function)
    wanted = [value.type for value in given]
    wanted_results = [place.values[v].type for v in site.results]
    if takes[: len(wanted)] != wanted or gives != wanted_results:
        raise ProgramError(
            f"expected a replacement of {site.name} with the types ({_join(wanted)}) -> "
            f"({_join(wanted_results)}), "
            f"got ({_join(takes)}) -> ({_join(gives)}); arguments of its own come after those of "
            "the site"
        )
    return takes[len(wanted) :]


def _join(types: Sequence[Any]) -> str:
    return ", ".join(map(str, types))


def _replace(
    site: Site,
    places: Mapping[tuple[int, ...], mlir.Numbered],
    function: Any,
    arguments: Sequence[Any],
) -> None:
    place = places[site.path]
    group = [place.operations[i] for i in sorted(site.ops)]
    old = [place.values[v] for v in site.results]
    new = rewrite.replace_group(group, old, function, arguments)
    for other in places.values():
        for before, after in zip(old, new, strict=True):
            other.substitute(before, after)
