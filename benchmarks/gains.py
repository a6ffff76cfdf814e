"""The paragraph of README.md that says what tuning gains, made of tracked results.

python -m benchmarks.page
"""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import tracked
from benchmarks.kernels import kept as kernels
from benchmarks.kernels import table as kernel_table
from benchmarks.kernels.cases import CASES
from benchmarks.models import kept as models
from benchmarks.models import table as model_table
from benchmarks.models.contestants import PEERS_OF_MODELS, TITLES
from benchmarks.models.examples import EXAMPLES
from benchmarks.models.networks import NETWORKS
from benchmarks.results import geometric_mean

NAME = "gains"
CORE, WHERE = "znver4", "two cores of a Zen 4"
"""The machine that the paragraph is of, as files of results and as readers call it."""
NAMES: Mapping[str, str] = {
    "resnet18": "ResNet-18", "resnet50": "ResNet-50", "vgg19": "VGG19", "mobilenet": "MobileNetV2",
    "bert_base": "BERT-base", "mlp": "an MLP",
}  # fmt: skip
WIDTH = 105


def paragraph(folder: Path = tracked.RESULTS) -> str:
    """Nothing where the machine has no results of models or of kernels."""
    whole = models.lines(tracked.file_of(model_table.NAME, CORE, folder), EXAMPLES)
    single = kernels.lines(tracked.file_of(kernel_table.NAME, CORE, folder), CASES)
    if not whole or not single:
        return ""
    said = " ".join(
        (of_networks([x for x in whole if x.model in NETWORKS]), *of_fire(whole), _TABLES)
    )
    text = f"{said} {of_kernels(single)}"
    return textwrap.fill(text, WIDTH, break_on_hyphens=False, break_long_words=False)


_TABLES = "[docs/performance.md](docs/performance.md) has the tables, with versions and intervals."


def of_networks(lines: Sequence[models.Line]) -> str:
    over_xla = [(x.model, r.median) for x in lines if (r := x.over_ours(x.default))]
    over_peers = [r.median for x in lines if (r := x.over_ours(x.best_peer))]
    budgets = sorted({x.tuning.seconds for x in lines})
    seconds = " to ".join(f"{s:g}" for s in dict.fromkeys((budgets[0], budgets[-1])))
    (first, ratio), *others = over_xla
    gains = [f"{NAMES[first]} {times(ratio)} as fast as XLA"]
    gains += [f"{NAMES[model]} {times(r)}" for model, r in others]
    runtimes = [TITLES[peer.label] for peer in PEERS_OF_MODELS]
    mean = geometric_mean(over_peers)
    return (
        f"On {WHERE}, {seconds} s of tuning make {listed(gains)}. In the geometric mean over these "
        f"{len(over_peers)} that is {mean:.2f} times the speed of the fastest of "
        f"{listed(runtimes)}, each chosen for its model{_behind(lines)}."
    )


def _behind(lines: Sequence[models.Line]) -> str:
    found = []
    for x in lines:
        ratio = x.over_ours(x.best_peer)
        if ratio and x.best_peer and model_table.verdict(x) == "behind":
            share = 1 / ratio.median - 1
            found.append(f"{NAMES[x.model]} is {share:.0%} behind {TITLES[x.best_peer]}")
    return f"; {listed(found)}" if found else ""


def of_fire(lines: Sequence[models.Line]) -> list[str]:
    ratios = [r.median for x in lines if x.model == "fire" and (r := x.over_ours(x.default))]
    return [
        f"A minimisation of soft spheres by jax-md (FIRE) is {times(r)} as fast as by XLA."
        for r in ratios
    ]


def of_kernels(lines: Sequence[kernels.Line]) -> str:
    """What first candidates gain; XLA's time counts where no kernel is put in."""
    firsts = [(x, s) for x in lines if (s := first_s(x)) and x.xla_s]
    xla = [x.xla_s / s for x, s in firsts if x.xla_s]
    peers = [x.best_peer[1] / s for x, s in firsts if x.best_peer]
    slower = sum(
        bool(x.left_to_xla)
        or (x.best_peer is not None and x.best_peer[1] / s < 1 / kernel_table.NEAR)
        for x, s in firsts
    )
    return (
        f"Of {len(firsts)} single kernels the first candidates, without a search, are "
        f"{geometric_mean(xla):.1f} times as fast as XLA and {geometric_mean(peers):.2f} times as "
        "fast as the best of PyTorch, ONNX Runtime and OpenVINO in the geometric mean, and behind "
        f"these, or left to XLA, in {slower} ([docs/lab/kernels.md](docs/lab/kernels.md))."
    )


def first_s(line: kernels.Line) -> float | None:
    return line.xla_s if line.left_to_xla else line.times_s.get(kernels.FIRST)


def times(ratio: float) -> str:
    return f"{ratio:.1f} times"


def listed(items: Sequence[str]) -> str:
    """`a, b and c`."""
    *first, last = items
    return f"{', '.join(first)} and {last}" if first else last
