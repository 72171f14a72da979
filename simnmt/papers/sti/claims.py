"""The claims that a study of a trained classifier decides: accuracy, fidelity, memory and operations (STI-22 to 25, 27)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import log10
from statistics import fmean

from simnmt.papers.kit.claims import (
    Claim,
    ClaimRecord,
    Effect,
    Facts,
    Printed,
    Result,
    Undecided,
    at_least,
    judge,
    of_paper,
    unmeasured,
)
from simnmt.papers.sti.comparison import (
    POINTS,
    Comparison,
    compare,
    difference,
    format_shares,
    importance_gain,
    points_of,
)
from simnmt.papers.sti.pipeline import PIPELINE_CLAIMS, OfPipeline, PipelineMeasurement
from simnmt.papers.sti.printed import BASELINES, PAPER, PRINTED_CLAIMS
from simnmt.papers.sti.study import StudiedDevice, Study

NEEDS = "needs a study of a trained classifier: give --study, or --store and --task"
WITHIN = 0.01
"""Accuracy that may be lost against the whole model in memory (STI-22's accept)."""
EQUAL = 0.10
"""Relative difference of operations and busy times that still counts as equal."""


@dataclass(frozen=True)
class OfStudy(Facts):
    """A study, which claims about a part of it are judged on."""

    study: Study

    @property
    def device(self) -> str:  # type: ignore[override]
        """The model and its task."""
        return self.study.name

    def lacks(self, need: str) -> Undecided | None:
        """Return that the study has not this part."""
        return None if getattr(self.study, need) else Undecided(f"the study has no part `{need}`", "needs --study")

    def rises(self) -> Result:
        """Return the gain of the most over the fewest bits, layers and slices, the other two as in the whole model."""
        names = ("bits", "layers", "slices")
        whole = {"bits": 32, "layers": self.study.model.layers, "slices": self.study.model.heads}
        sizes = [({name: int(getattr(entry, name)) for name in names}, entry.outcome) for entry in self.study.uniform]
        if whole not in (size for size, _ in sizes):
            raise Undecided("the whole model was not measured")
        effects: dict[str, Effect] = {}
        texts, falls = [], 0
        for name in names:
            line = [(size[name], outcome) for size, outcome in sizes if size | {name: 0} == whole | {name: 0}]
            series = sorted(line, key=lambda entry: entry[0])
            if len(series) < 2:
                continue
            (least, first), (most, last) = series[0], series[-1]
            gain = difference(last, first, self.study.task.examples)
            effects[name] = gain.above
            falls += sum(after.accuracy < before.accuracy for (_, before), (_, after) in pairwise(series))
            texts.append(f"{name} from {least} to {most}: {gain}")
        why = f"one of them at a time, the others as in the whole model; {falls} single steps fall"
        return Result(effects, "; ".join(texts), why, words=None)

    def importance(self) -> Result:
        """Return the gain of raising by importance over raising as many shards at random."""
        cases, examples = [case for case in self.study.upgrades if case.random], self.study.task.examples
        if not cases:
            raise Undecided("no random order was measured")
        gains, overall = [importance_gain([case], examples) for case in cases], importance_gain(cases, examples)
        by_case = "; ".join(
            f"{case.layers} x {case.slices}, {case.raised} to {case.to_bits} bits: {gain}"
            for case, gain in zip(cases, gains, strict=True)
        )
        orders, worse = fmean(len(case.random) for case in cases), sum(gain.difference < 0.0 for gain in gains)
        why = f"{by_case}; {orders:.0f} random orders each, all else at 2 bits; worse in {worse} of {len(cases)}"
        if self.study.ranked_on_judged:
            why += "; the order was found on the same examples, as in the paper"
        return Result(overall.at_least(0.0), str(overall), why)

    def sizes(self) -> Result:
        """Return the gain of the largest preload buffer over the smallest, by device and deadline."""
        texts, effects, falls, steps = [], list[Effect](), 0, 0
        ordered = sorted(self.study.sizes, key=lambda point: (point.device, point.deadline_share, point.preload_bytes))
        for (device, share), points in groupby(ordered, key=lambda point: (point.device, point.deadline_share)):
            outcomes = [point.outcome for point in points]
            if len(outcomes) > 1:
                gain = difference(outcomes[-1], outcomes[0], self.study.task.examples)
                effects.append(gain.above)
                falls += sum(after.accuracy < before.accuracy for before, after in pairwise(outcomes))
                steps += len(outcomes) - 1
                texts.append(f"{device}, {format_shares([share])}: {gain}")
        if not texts:
            raise Undecided("one size alone was measured")
        effect: Effect = False if False in effects else True if True in effects else [True, False]
        why = f"smallest to largest buffer under one deadline; {falls} of {steps} single steps fall, as the planner is greedy; "
        return Result(effect, "; ".join(texts), f"{why}clear in {effects.count(True)} of {len(effects)} sweeps")

    def shapes(self) -> Result:
        """Return the submodels of the devices whose computation grows most and least with slices."""

        def flatness(device: StudiedDevice) -> float:
            return device.comp_s[len(device.comp_s) // 4 - 1] / device.comp_s[-1]

        by_growth = sorted(self.study.devices, key=flatness)
        if len(by_growth) < 2 or flatness(by_growth[-1]) < 0.9 or flatness(by_growth[0]) > 0.6:
            raise Undecided("needs a device whose computation grows with slices, and one of which it hardly does")
        devices = by_growth[0], by_growth[-1]
        plans = {device.name: points_of(self.study, device, "STI") for device in devices}
        deep, shallow = plans.values()
        shares = [share for share in deep if share in shallow]
        if not shares:
            raise Undecided("nothing was run under a common deadline")
        middle = shares[len(shares) // 2]
        ratios = {name: fmean(point.layers / point.slices for point in plan.values()) for name, plan in plans.items()}
        at = format_shares([middle])
        ours = "; ".join(f"{name}: {plan[middle].layers} x {plan[middle].slices} at {at}" for name, plan in plans.items())
        why = "; ".join(f"{name}: layers over slices {ratio:.2f} on average" for name, ratio in ratios.items())
        basis = max((device.kind for device in devices), key=("measured", "inferred", "synthetic").index)
        first, second = ratios.values()
        return Result(first > second, ours, why, basis=basis)


STUDY_CLAIMS: list[Claim[OfStudy]] = of_paper(
    PAPER,
    [
        Claim("STI-24 (h)", value=OfStudy.shapes, needs="grid"),
        Claim("STI-27", value=OfStudy.rises, needs="uniform"),
        Claim("STI-24 (e)", value=OfStudy.importance, needs="upgrades"),
        Claim("STI-24 (f)", value=OfStudy.sizes, needs="sizes"),
    ],
)


@dataclass(frozen=True)
class OnDevice(OfStudy):
    """A study and the costs of one device, by which its plans were made."""

    on: StudiedDevice

    @property
    def device(self) -> str:  # type: ignore[override]
        """The model with its task, and the device."""
        return f"{self.study.name}, {self.on.name}"

    @property
    def basis(self) -> str:  # type: ignore[override]
        """Of the device's costs."""
        return self.on.kind

    def against(self, method: str, first: str = "STI", second_share: float | None = None) -> Comparison:
        """Compare a method, by default STI, with another one."""
        return compare(self.study, self.on, first, method, second_share)

    def _in_time(self, method: str, why: str, slack: float = 0.0) -> Result:
        """Return the gains of the published plan and of the one that may wait, where neither side is late."""
        over_all, waiting = self.against(method), self.against(method, "STI, waiting")
        plans = {"in time:": over_all.in_time, "allowed to wait until the deadline:": waiting.in_time}
        gains = {name: plan.gain if plan.pairs else None for name, plan in plans.items()}
        ours = "; ".join(
            f"{name} {gains[name] or 'never in time together'}, {len(plan.pairs)} of {len(over_all.pairs)} deadlines"
            for name, plan in plans.items()
        )
        effects = {name: gain.at_least(-slack) for name, gain in gains.items() if gain is not None}
        return Result(effects, ours, why, words=None)

    def baseline(self, method: str) -> Result:
        """Return the gain over a baseline."""
        over_all = self.against(method)
        pairs = over_all.in_time.pairs
        worse = [first.deadline_share for first, second in pairs if first.outcome.accuracy < second.outcome.accuracy]
        why = f"less accurate at {format_shares(worse)} of the whole computation; " if worse else ""
        (accuracy, other), (missed, other_missed) = over_all.accuracies, over_all.missed
        why += f"late answers included {over_all.gain}, {100 * accuracy:.1f} against {100 * other:.1f} %, over "
        why += f"{len(over_all.pairs)} deadlines, of which the plan misses {missed} and the other {other_missed}"
        return self._in_time(method, why)

    def in_memory(self) -> Result:
        """Return the loss against the whole model in memory."""
        over_all = self.against("PreloadModel-32")
        in_time = len(over_all.in_time.pairs)
        equal = over_all.in_time.where(lambda first, second: first.shards == second.shards)
        why = f"same operations under {len(equal.pairs)} of these {in_time} deadlines"
        why += f", there {equal.gain}" if 0 < len(equal.pairs) < in_time else ""
        why += f"; late answers included {over_all.gain} over {len(over_all.pairs)} deadlines"
        return self._in_time("PreloadModel-32", why, WITHIN)

    def deadlines(self) -> Result:
        """Return whether the plan keeps the deadlines that the whole model in memory keeps."""
        pairs = self.against("PreloadModel-32").where(lambda _, in_memory: not in_memory.misses).pairs
        late = [planned.deadline_share for planned, _ in pairs if planned.misses]
        by_method = {method: points_of(self.study, self.on, method).values() for method in BASELINES}
        others = [f"{method} misses {sum(p.misses for p in points)} of {len(points)}" for method, points in by_method.items()]
        why = f"by the costs it was planned with; late at {format_shares(late)}" if late else "by the costs"
        return Result(not late, f"{len(pairs) - len(late)} of {len(pairs)} kept", "; ".join([why, *others]))

    def buffer(self) -> Result:
        """Return the gain of the preload buffer."""
        compared = self.against("STI", second_share=0.0)
        gains = [(one.outcome.accuracy - other.outcome.accuracy, one.deadline_share) for one, other in compared.pairs]
        (most, share), (missed, missed_without) = max(gains), compared.missed
        why = f"at most {POINTS * most:+.2f} points, at {format_shares([share])} of the whole computation; "
        why += f"without it {missed_without} of {len(compared.pairs)} deadlines are missed, with it {missed}"
        return Result(compared.gain.above, str(compared.gain), why)

    def tight(self) -> Result:
        """Return the gains under the lower half of the deadlines (tight) and under the upper half (loose)."""
        texts, gaps = [], []
        for method in ("StdPL-2", "StdPL-6"):
            compared = self.against(method)
            middle = len(compared.pairs) // 2
            if not middle:
                raise Undecided("one deadline has no halves")
            tight, loose = (Comparison(compared.examples, half) for half in (compared.pairs[:middle], compared.pairs[middle:]))
            gaps.append((tight.gain, loose.gain))
            limit = format_shares([tight.pairs[-1][0].deadline_share])
            texts.append(f"{method}: {tight.gain} up to {limit}, {loose.gain} beyond")
        clear = all(first.low > second.high for first, second in gaps)
        refuted = any(first.high < second.low for first, second in gaps)
        return Result(True if clear else False if refuted else [True, False], "; ".join(texts), "halves of the deadlines")

    def memory(self) -> Result:
        """Return by how many orders of magnitude fewer bytes are held than the whole model's."""
        compared = {method: self.against("STI", method) for method in ("PreloadModel-32", "PreloadModel-6")}
        ratios = {method: pairs.ratio(lambda point: point.held_bytes) for method, pairs in compared.items()}
        whole, planned = zip(*compared["PreloadModel-32"].pairs, strict=True)
        working = fmean(point.working_bytes for point in planned) / fmean(point.held_bytes for point in whole)
        why = (
            f"a buffer of {100 * self.on.preload_share:.2f} % of all shards in float32, as on the board, so by construction; "
            f"the working buffer of one layer in float32, {100 * working:.1f} %, and the compressed shards that an execution "
            "reads come on top while it runs"
        )
        ours = "; ".join(f"{ratio:.0f} times fewer than {method}" for method, ratio in ratios.items())
        return Result({method: log10(ratio) for method, ratio in ratios.items()}, ours, why, words=None)

    def equal_work(self) -> Result:
        """Return whether plans compute as many shards as the model in memory."""
        ratio = self.against("PreloadModel-32").ratio(lambda point: point.shards)
        return Result(abs(ratio - 1.0) <= EQUAL, f"{ratio:.2f} times", "n x m, mean over deadlines")

    def more_work(self, *methods: str) -> Result:
        """Return whether plans compute more shards than these methods."""
        compared = {method: self.against(method) for method in methods}
        ratios = {method: pairs.ratio(lambda point: point.shards) for method, pairs in compared.items()}
        deadlines = len(points_of(self.study, self.on, "STI"))
        why = f"n x m, mean over those of {deadlines} deadlines under which the other runs anything: "
        why += ", ".join(f"{method} {len(pairs.pairs)}" for method, pairs in compared.items())
        ours = "; ".join(f"{ratio:.2f} times {method}" for method, ratio in ratios.items())
        return Result(min(ratios.values()) > 1.0, ours, why)

    def busy(self) -> Result:
        """Return for how long computation is busy, over other methods."""
        methods = ("Load&Exec", "StdPL-32", "PreloadModel-32")
        ratios = {method: self.against(method).ratio(lambda point: point.busy_s) for method in methods}
        ours = "; ".join(f"{ratio:.2f} times as long as {method}" for method, ratio in ratios.items())
        near = abs(ratios.pop("PreloadModel-32") - 1.0) <= EQUAL
        io_s = fmean(point.io_s for point in points_of(self.study, self.on, "STI").values())
        why = f"the disk is busy for {1e3 * io_s:.1f} ms beside it; busy times alone, no energy was measured"
        return Result(near and min(ratios.values()) > 1.0, ours, why)


DEVICE_CLAIMS: list[Claim[OnDevice]] = of_paper(
    PAPER,
    [
        Claim("STI-22 (a)", value=lambda facts: facts.baseline("Load&Exec"), needs="grid"),
        Claim("STI-22 (b)", value=lambda facts: facts.baseline("StdPL-32"), needs="grid"),
        Claim("STI-22 (c)", value=lambda facts: facts.baseline("StdPL-2"), needs="grid"),
        Claim("STI-22 (d)", value=lambda facts: facts.baseline("StdPL-6"), needs="grid"),
        Claim("STI-22 (e)", value=OnDevice.in_memory, needs="grid"),
        Claim("STI-22 (f)", value=OnDevice.deadlines, needs="grid"),
        Claim("STI-24 (d)", value=OnDevice.buffer, needs="grid"),
        Claim("STI-24 (g)", value=OnDevice.tight, needs="grid"),
        Claim("STI-23 (c)", value=OnDevice.memory, holds=at_least(PAPER["least_order"]), needs="grid"),
        Claim("STI-24 (a)", value=OnDevice.equal_work, needs="grid"),
        Claim("STI-24 (b)", value=lambda facts: facts.more_work("Load&Exec", "StdPL-32"), needs="grid"),
        Claim("STI-24 (c)", value=lambda facts: facts.more_work("StdPL-2", "StdPL-6"), needs="grid"),
        Claim("STI-25", value=OnDevice.busy, needs="grid"),
    ],
)


def all_claims(studies: Sequence[Study], pipeline: PipelineMeasurement | None) -> list[ClaimRecord]:
    """Return every verdict: by each study, by the pipeline, and by the printed figures."""
    devices = [OnDevice(study, device) for study in studies for device in study.devices]
    no_study = Undecided(NEEDS, "needs --study")
    no_pipeline = Undecided(
        "needs a file of `python -m benchmarks.sti_pipeline --out FILE`: give --pipeline", "needs --pipeline"
    )
    return [
        *judge(DEVICE_CLAIMS, devices, no_study),
        *judge(STUDY_CLAIMS, [OfStudy(study) for study in studies], no_study),
        *judge(PIPELINE_CLAIMS, [] if pipeline is None else [OfPipeline(pipeline)], no_pipeline),
        *judge(PRINTED_CLAIMS, [Printed()]),
        *unmeasured(PAPER.unmeasured),
    ]
