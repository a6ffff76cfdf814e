"""A kernel: a small StableHLO function whose canonical text is its identity."""

import hashlib
import re
from dataclasses import dataclass

CANONICAL_VERSION = "1"
_EXTENTS = re.compile(r"tensor<(?:\d+x)+")
_RANKS = re.compile(r"<(?:\d+x)+")
_LISTS = re.compile(r"_(?:, _)+")
_NUMBERS = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|0x[0-9A-Fa-f]+")


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

    @property
    def form(self) -> str:
        """Hash of the text with all numbers and ranks erased: kernels of the same operations share
        it.

        Wider than the family: windows of other strides, means over other counts, and element types
        of other widths are of one form.  What a model is judged by holds out whole forms, so that
        no twin of a kernel is learned from.
        """
        numbers = _NUMBERS.sub("_", _RANKS.sub("<", self.text))
        erased = _LISTS.sub("_", numbers)
        return hashlib.sha256(f"{CANONICAL_VERSION}\n{erased}".encode()).hexdigest()[:32]
