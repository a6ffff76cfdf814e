"""The parent: goes through cases in order of worth until its time is over."""

import contextlib
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.device.cases import Case
from benchmarks.device.child import Child, ChildFailed
from benchmarks.device.crew import Crew, short
from benchmarks.device.records import Results, Row
from benchmarks.device.table import lead
from benchmarks.device.trials import Outcomes, Trials, about, median
from benchmarks.device.whole import Model, WholeModel
from hlotune.schedules.errors import TargetError
from hlotune.schedules.spaces.gpu.table import gpu_space
from hlotune.schedules.targets.gpu import GpuTarget, gpu_target, gpu_target_of
from hlotune.search.learning.gpu_spaces import corrected

ROUNDS = 5
WITHOUT_DEVICE = gpu_target("cuda:a100")
RIVAL_S = 60.0
"""Longest time until a rival is ready."""
TORCH = ("torch_eager", "torch_compiled")


@dataclass
class Run:
    """One run of the command on one machine."""

    results: Results
    crew: Crew
    seconds: float
    pace: float = 1.0
    """What part of its seconds a case gets."""
    start: float = field(default_factory=time.monotonic)
    target: GpuTarget = WITHOUT_DEVICE
    """Until the device is known; it stays where none is, and kernels are interpreted."""
    device: str = ""
    outcomes: Outcomes = field(default_factory=Outcomes)

    @property
    def left_s(self) -> float:
        return self.seconds - (time.monotonic() - self.start)

    def everything(self, groups: Sequence[Sequence[Case]], models: Sequence[Model] = ()) -> None:
        """Group by group the cases without results; then models without; then, group by group, the
        cases furthest behind.

        All cases again while time is left and a config is new.
        """
        self._look()
        before = -1
        while self.left_s > 0 and self.results.trials > before:
            first, before = before == -1, self.results.trials
            rows = [r for r in self.results.rows if r.get("device") == self.device]
            leads = {c.name: lead(c.name, rows) for c in itertools.chain(*groups)}
            ordered = [sorted(group, key=lambda c: leads[c.name]) for group in groups]
            cases = list(itertools.chain(*ordered))
            if first:
                self._cases([c for c in cases if not leads[c.name]])
                self._models(models)
                cases = [c for c in cases if leads[c.name]]
            self._cases(cases)

    def _cases(self, cases: Sequence[Case]) -> None:
        for case in cases:
            if self.left_s > 0:
                self._case(case)

    def _models(self, models: Sequence[Model]) -> None:
        """Whole models that no earlier run has a result of."""
        done = {r["case"] for r in self.results.rows if r["what"] == "model" and r.get("right")}
        for model in models:
            if self.left_s > 0 and model.name not in done:
                seconds = min(self.left_s, self.pace * model.seconds)
                until = time.monotonic() + seconds
                end = self.start + self.seconds
                WholeModel(
                    self.crew.models, self.results, self.device, model, until, say, end
                ).run()
                self.crew.models.stop()

    def _look(self) -> None:
        """Which device it is, and what it can do."""
        try:
            facts = self.crew.start()
        except ChildFailed as failure:
            raise TargetError(f"expected a device that JAX can use: {failure}") from None
        if facts["platform"] != "gpu" and not self.crew.interpret:
            raise TargetError(
                f"expected a GPU, and JAX has {facts['device']!r}: --tiny interprets small kernels"
            )
        self.device = facts["device"]
        self.results.add({"what": "machine", **facts})
        say(short(facts))
        with contextlib.suppress(TargetError):
            peaks = {"bf16": facts["bf16_flops_per_s"]} if "bf16_flops_per_s" in facts else {}
            known = gpu_target_of(self.device)
            copied = facts.get("copy_bytes_per_s", known.memory_bytes_per_s)
            self.target = known.measured(copied, peaks)

    def _case(self, case: Case) -> None:
        held: list[tuple[Child, str, Row]] = []
        for how in case.rivals:
            child = self.crew.peer if how in TORCH else self.crew.measuring
            row = about(self.device, case, how)
            if self._rival(child, case, how, row).get("right"):
                held.append((child, how, row))
        until = min(time.monotonic() + self.pace * case.seconds, self.start + self.seconds)
        space = corrected(case.kernel, gpu_space(case.kernel, self.target))
        trials = Trials(self.crew, self.results, self.device, case, space, until, self.outcomes)
        starts = self.crew.measuring.starts
        trials.run()
        if self.crew.measuring.starts > starts:  # what it held is lost
            for child, how, row in held:
                if child is self.crew.measuring:
                    self._rival(child, case, how, row)
        for (name, question), (_, config) in zip(trials.champions(), trials.found, strict=False):
            if self.crew.hold(case, question, name):
                held.append((self.crew.measuring, name, trials.row(config)))
        self._rounds(case, held)

    def _rival(self, child: Child, case: Case, how: str, row: Row) -> Row:
        """A rival's outcome, and a record of it where it is new and time did not run out."""
        timeout_s = min(RIVAL_S, max(self.left_s, 1.0))
        outcome = self.crew.program(child, case, how, timeout_s)
        cut_short = "error" in outcome and timeout_s < RIVAL_S
        if not self.results.holds(row) and not cut_short:
            self.results.add({**row, **outcome})
        say(_outcome(case, how, outcome))
        return outcome

    def _rounds(self, case: Case, held: Sequence[tuple[Child, str, Row]]) -> None:
        """All that is held in turns, back and forth, so that each has the same share of heat."""
        bursts: dict[str, list[Row]] = {name: [] for _, name, _ in held}
        for turn in range(ROUNDS):
            for child, name, _ in held if turn % 2 == 0 else reversed(held):
                if self.crew.holds(child, case):
                    try:
                        bursts[name].append(self.crew.round(child, name))
                    except ChildFailed as failure:
                        say(f"{case.name}: {name}: {failure}")
        for _, name, row in held:
            if bursts[name]:
                self.results.add({**row, "what": "rounds", **_of_rounds(bursts[name])})
        times = {n: median([b["seconds"] for b in found]) for n, found in bursts.items() if found}
        say(f"{case.name}: " + ", ".join(f"{n} {s * 1e6:.1f} us" for n, s in times.items()))


def _of_rounds(bursts: Sequence[Row]) -> Row:
    seconds = [b["seconds"] for b in bursts]
    queue = [b["queue_s"] for b in bursts]
    clocks = [b["clocks"].get("sm_mhz") for b in bursts]
    made = {"seconds": median(seconds), "rounds_s": seconds, "queue_s": queue, "sm_mhz": clocks}
    return {**made, "right": True}


def _outcome(case: Case, how: str, outcome: Row) -> str:
    took = f"{outcome['seconds'] * 1e6:.1f} us" if "seconds" in outcome else "no time"
    return f"{case.name}: {how} {took} {outcome.get('error', '')}"


def say(line: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {line}", flush=True)
