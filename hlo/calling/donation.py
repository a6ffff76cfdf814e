"""Which results of a program lie in the memory of arguments that its callers give away."""

from hlotune.hlo.frontends.program import Program


def donated_pairs(program: Program) -> frozenset[tuple[int, int]]:
    """(result, argument), as values of the program's graph.

    JAX pairs them so: each result, in order, takes the first donated argument of its type that is
    left.
    """
    graph = program.graph
    waiting = list(program.donated)
    pairs = set[tuple[int, int]]()
    for value in dict.fromkeys(graph.results):
        wanted = graph.types[value]
        place = next((k for k in waiting if graph.types[graph.arguments[k]] == wanted), None)
        if place is not None:
            waiting.remove(place)
            pairs.add((value, graph.arguments[place]))
    return frozenset(pairs)
