"""A kernel: a small StableHLO function whose canonical text is its identity."""

import hashlib
import re
from dataclasses import dataclass

CANONICAL_VERSION = "1"
_EXTENTS = re.compile(r"tensor<(?:\d+x)+")


@dataclass(frozen=True, slots=True)
class Kernel:
    """The canonical text of a function `@kernel`.

    Equal texts are the same kernel, everywhere and for ever.
    """

    text: str

    @property
    def key(self) -> str:
        """Hash of text and version of the canonical form: 32 hex digits.

        Commands take any unique prefix.
        """
        return hashlib.sha256(f"{CANONICAL_VERSION}\n{self.text}".encode()).hexdigest()[:32]

    @property
    def family(self) -> str:
        """Hash of the text with extents erased: kernels that differ in shape alone share it.

        Ranks, element types and attributes stay: a strided convolution is of another family than a
        dense one, and a product in f64 of another than one in f32.
        """
        erased = _EXTENTS.sub(lambda found: re.sub(r"\d+", "_", found[0]), self.text)
        return hashlib.sha256(f"{CANONICAL_VERSION}\n{erased}".encode()).hexdigest()[:32]
