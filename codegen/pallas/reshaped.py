"""A lowered module under the types of its site, whose axes a compute may have merged."""

import re
from collections.abc import Sequence

from hlotune.codegen.backend import Signature
from hlotune.hlo.graph import TensorType

_MAIN = re.compile(r"func\.func public @main\((.*)\) -> (.*) \{\n")
_TENSOR = re.compile(r"tensor<[^>]*>")
INNER = "of_merged_axes"
"""What the module's own function is called then."""


def with_types(text: str, signature: Signature) -> str:
    """The module with a `@main` that takes and gives the signature's types, element by element
    those of its own."""
    found = _MAIN.search(text)
    assert found is not None, "a lowered module has a main function"
    taken, given = (_TENSOR.findall(part) for part in found.groups())
    takes, gives = (list(map(str, types)) for types in (signature.arguments, signature.results))
    if (taken, given) == (takes, gives):
        return text
    inner = text.replace("func.func public @main(", f"func.func private @{INNER}(", 1)
    end = inner.rindex("}")
    return f"{inner[:end]}{_main(taken, given, signature)}\n{inner[end:]}"


def _main(taken: Sequence[str], given: Sequence[str], signature: Signature) -> str:
    arguments = ", ".join(f"%a{k}: {t}" for k, t in enumerate(signature.arguments))
    results = ", ".join(map(str, signature.results))
    several = len(given) > 1
    called = f"%r:{len(given)}" if several else "%r"
    inner = ", ".join(f"%m{k}" for k in range(len(taken)))
    lines = [
        f"  func.func public @main({arguments}) -> ({results}) {{",
        *(_reshape(f"m{k}", f"a{k}", t, of) for k, (of, t) in _pairs(signature.arguments, taken)),
        f"    {called} = call @{INNER}({inner}) : ({', '.join(taken)}) -> ({', '.join(given)})",
        *(
            _reshape(f"y{k}", f"r#{k}" if several else "r", of, t)
            for k, (of, t) in _pairs(signature.results, given)
        ),
        f"    return {', '.join(f'%y{k}' for k in range(len(given)))} : {results}",
        "  }",
    ]
    return "\n".join(lines)


def _pairs(types: Sequence[TensorType], own: Sequence[str]) -> list[tuple[int, tuple[str, str]]]:
    return list(enumerate(zip(map(str, types), own, strict=True)))


def _reshape(name: str, value: str, to: str, source: str) -> str:
    return f"    %{name} = stablehlo.reshape %{value} : ({source}) -> {to}"
