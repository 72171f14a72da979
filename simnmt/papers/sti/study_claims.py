"""The claims that a study of a trained classifier decides: accuracy, fidelity, memory and operations (STI-22 to 25, 27)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import log10
from statistics import fmean
from typing import TYPE_CHECKING, Any

from simnmt.papers.kit.claim import FAILS, HOLDS, UNCLEAR, UNKNOWN, Records, worst_verdict
from simnmt.papers.sti import comparison, published
from simnmt.papers.sti.evidence import ClaimText, basis_of, study_record, unmeasured_record
from simnmt.streaming.paired_difference import PairedDifference, paired_difference

if TYPE_CHECKING:
    from simnmt.papers.sti.study import Point, StudiedDevice, Study, Uniform, Upgraded

WITHIN = 0.01
"""Accuracy that may be lost against the whole model in memory (STI-22's accept)."""


def _printed(method: str) -> str:
    return ", ".join(f"{board} +{gains[method]:g}" for board, gains in published.GAINS.items()) + " points"


BASELINES: dict[str, ClaimText] = {
    method: (
        f"STI-22 ({letter})",
        f"On average over deadlines that both keep a plan is at least as accurate as {method}",
        _printed(method),
    )
    for letter, method in zip("abcd", ("Load&Exec", "StdPL-32", "StdPL-2", "StdPL-6"), strict=True)
}
IN_MEMORY: ClaimText = (
    "STI-22 (e)",
    f"On average over deadlines that both keep a plan is within {100 * WITHIN:g} point of the whole model held in memory",
    f"+{published.PRELOAD_GAIN:g} points, and `no more than {published.INTRO_LOSS:g}` lost",
)
DEADLINES: ClaimText = ("STI-22 (f)", "A plan keeps every deadline that computing anything can keep", "")
BUFFER: ClaimText = (
    "STI-24 (d)",
    "The preload buffer makes plans more accurate than without",
    f"up to +{published.BUFFER_GAIN:g} points",
)
TIGHT: ClaimText = (
    "STI-24 (g)",
    "The advantage over other pipelines is larger under tight deadlines than under loose ones",
    f"+{published.NARROW_GAIN:g} points below 200 ms (Odroid), less beyond",
)


def accuracy_claims(study: Study | None) -> Records:
    """Return the accuracy claims on each device of the study; without a study, records that one is needed."""
    every = [*BASELINES.values(), IN_MEMORY, DEADLINES, BUFFER, TIGHT]
    if study is None or not study.grid:
        return [unmeasured_record(claim_text, study, "grid") for claim_text in every]
    records: Records = []
    for method, claim_text in BASELINES.items():
        records += [_baseline(study, device, method, claim_text) for device in study.devices]
    for claim in (_in_memory, _deadlines, _buffer, _tight):
        records += [claim(study, device) for device in study.devices]
    return records


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Gains of plans over one other method: by deadlines that both sides keep, and over all that both ran under."""

    deadlines: int
    """Under which both ran."""
    kept: list[float]
    """Of these, the ones that both keep."""
    gain: PairedDifference | None
    """Of the published plan, over `kept`; None for no such deadline."""
    waiting_kept: list[float]
    """The same for the plan that may wait until its deadline."""
    waiting_gain: PairedDifference | None
    gain_all_deadlines: PairedDifference | None
    """Of the published plan, over all deadlines, late answers of either side included."""

    def verdict(self, slack: float = 0.0) -> str:
        """Return the weaker verdict of the two plans; unknown where neither was in time together with the other method."""
        verdicts = [comparison.at_least(gain, slack) for gain in (self.gain, self.waiting_gain) if gain is not None]
        return next((verdict for verdict in (FAILS, UNCLEAR, HOLDS) if verdict in verdicts), UNKNOWN)

    def describe(self) -> str:
        """Return both gains in points, with the numbers of deadlines."""
        return "; ".join(
            f"{name} {'never in time together' if gain is None else comparison.told(gain)}, "
            f"{len(kept)} of {self.deadlines} deadlines"
            for name, gain, kept in (
                ("in time:", self.gain, self.kept),
                ("allowed to wait until the deadline:", self.waiting_gain, self.waiting_kept),
            )
        )


def _compared(study: Study, device: StudiedDevice, method: str) -> _Comparison:
    published_plan, waiting_plan, other = (comparison.of(study, device, name) for name in ("STI", "STI, waiting", method))
    kept, waiting_kept = comparison.in_time(published_plan, other), comparison.in_time(waiting_plan, other)
    return _Comparison(
        len(comparison.common(published_plan, other)),
        kept,
        comparison.gain(study, published_plan, other, kept),
        waiting_kept,
        comparison.gain(study, waiting_plan, other, waiting_kept),
        comparison.gain(study, published_plan, other),
    )


def _baseline(study: Study, device: StudiedDevice, method: str, claim_text: ClaimText) -> dict[str, Any]:
    planned, other = comparison.of(study, device, "STI"), comparison.of(study, device, method)
    compared = _compared(study, device, method)
    if compared.gain_all_deadlines is None:
        return study_record(study, claim_text, "", UNKNOWN, "nothing was run under a common deadline", device.name)
    worse = [share for share in compared.kept if comparison.difference(planned, other, share) < 0.0]
    why = f"less accurate at {comparison.percent(worse)} of the whole computation; " if worse else ""
    why += (
        f"late answers included {comparison.told(compared.gain_all_deadlines)}, "
        f"{100 * comparison.accuracy(planned):.1f} against "
    )
    why += f"{100 * comparison.accuracy(other):.1f} %, over {compared.deadlines} deadlines, {_misses(planned, other)}"
    return study_record(study, claim_text, compared.describe(), compared.verdict(), why, device.name)


def _in_memory(study: Study, device: StudiedDevice) -> dict[str, Any]:
    planned, other = comparison.of(study, device, "STI"), comparison.of(study, device, "PreloadModel-32")
    compared = _compared(study, device, "PreloadModel-32")
    if compared.gain_all_deadlines is None:
        return study_record(study, IN_MEMORY, "", UNKNOWN, "nothing was run under a common deadline", device.name)
    equal = [share for share in compared.kept if planned[share].shards == other[share].shards]
    why = f"same operations under {len(equal)} of these {len(compared.kept)} deadlines"
    at_equal = comparison.gain(study, planned, other, equal) if len(equal) < len(compared.kept) else None
    why += f", there {comparison.told(at_equal)}" if at_equal is not None else ""
    why += f"; late answers included {comparison.told(compared.gain_all_deadlines)} over {compared.deadlines} deadlines"
    return study_record(study, IN_MEMORY, compared.describe(), compared.verdict(WITHIN), why, device.name)


def _deadlines(study: Study, device: StudiedDevice) -> dict[str, Any]:
    planned, held = comparison.of(study, device, "STI"), comparison.of(study, device, "PreloadModel-32")
    can = [share for share in planned if share not in comparison.missed(held)]
    late = [share for share in comparison.missed(planned) if share in can]
    others = "; ".join(
        f"{method} misses {len(comparison.missed(other))} of {len(other)}"
        for method in BASELINES
        if (other := comparison.of(study, device, method))
    )
    ours = f"{len(can) - len(late)} of {len(can)} kept"
    why = (
        f"by the costs it was planned with; late at {comparison.percent(late)}; {others}" if late else f"by the costs; {others}"
    )
    return study_record(study, DEADLINES, ours, not late, why, device.name)


def _buffer(study: Study, device: StudiedDevice) -> dict[str, Any]:
    planned, without = comparison.of(study, device, "STI"), comparison.of(study, device, "STI", 0.0)
    gain = comparison.gain(study, planned, without)
    if gain is None:
        return study_record(study, BUFFER, "", UNKNOWN, "not measured without a buffer", device.name)
    most = max((comparison.difference(planned, without, share), share) for share in comparison.common(planned, without))
    missed_without, missed_with = len(comparison.missed(without)), len(comparison.missed(planned))
    why = (
        f"at most {comparison.POINTS * most[0]:+.2f} points, at {comparison.percent([most[1]])} of the whole computation; "
        f"without it {missed_without} of {len(without)} deadlines are missed, with it {missed_with}"
    )
    verdict = HOLDS if gain.low > 0.0 else FAILS if gain.high < 0.0 else UNCLEAR
    return study_record(study, BUFFER, comparison.told(gain), verdict, why, device.name)


def _tight(study: Study, device: StudiedDevice) -> dict[str, Any]:
    """Compare the gains of the lower half of the deadlines (tight) with those of the upper half (loose)."""
    planned = comparison.of(study, device, "STI")
    shares = list(planned)
    tight, loose = shares[: len(shares) // 2], shares[len(shares) // 2 :]
    gain_texts, gaps = [], []
    for method in ("StdPL-2", "StdPL-6"):
        other = comparison.of(study, device, method)
        first, second = (comparison.gain(study, planned, other, half) for half in (tight, loose))
        if first is not None and second is not None:
            gaps.append((first, second))
            gain_texts.append(
                f"{method}: {comparison.told(first)} up to {comparison.percent(tight[-1:])}, {comparison.told(second)} beyond"
            )
    if not gaps:
        return study_record(study, TIGHT, "", UNKNOWN, "nothing was run under a common deadline", device.name)
    return study_record(study, TIGHT, "; ".join(gain_texts), _larger(gaps), "halves of the deadlines", device.name)


def _larger(gaps: Sequence[tuple[PairedDifference, PairedDifference]]) -> str:
    """Return the verdict by intervals that do not touch; UNCLEAR otherwise."""
    if all(first.low > second.high for first, second in gaps):
        return HOLDS
    return FAILS if any(first.high < second.low for first, second in gaps) else UNCLEAR


def _misses(planned: comparison.ByDeadline, other: comparison.ByDeadline) -> str:
    return f"of which the plan misses {len(comparison.missed(planned))} and the other {len(comparison.missed(other))}"


RISES: ClaimText = ("STI-27", "Accuracy rises with bits, with layers and with slices, on average", "")
IMPORTANCE: ClaimText = (
    "STI-24 (e)",
    "Raising shards by importance is at least as accurate as raising as many at random, on average",
    f"+{published.IMPORTANCE[0]:g} points on average, up to +{published.IMPORTANCE[1]:g}",
)
SIZES: ClaimText = (
    "STI-24 (f)",
    "A larger preload buffer makes plans more accurate",
    f"+{published.SIZE_GAIN[2]:g} points from {published.SIZE_GAIN[0] / 1e6:g} to {published.SIZE_GAIN[1] / 1e6:g} MB",
)


def fidelity_claims(study: Study | None) -> Records:
    """Return the three claims that one study decides; without a study, records that one is needed."""
    parts = {"uniform": RISES, "upgrades": IMPORTANCE, "sizes": SIZES}
    records: Records = []
    if study is None:
        return [unmeasured_record(claim_text, None, part) for part, claim_text in parts.items()]
    records.append(_rises(study) if study.uniform else unmeasured_record(RISES, study, "uniform"))
    records.append(_importance(study) if study.upgrades else unmeasured_record(IMPORTANCE, study, "upgrades"))
    records.append(_sizes(study) if study.sizes else unmeasured_record(SIZES, study, "sizes"))
    return records


def _rises(study: Study) -> dict[str, Any]:
    """Compare the fewest with the most bits, layers and slices, the other two as in the whole model."""
    whole = [submodel for submodel in study.uniform if (submodel.layers, submodel.slices, submodel.bits) == _full(study)]
    if not whole:
        return study_record(study, RISES, "", UNKNOWN, "the whole model was not measured")
    gain_texts, verdicts, falls = [], [], 0
    for name, others in (("bits", ("layers", "slices")), ("layers", ("slices", "bits")), ("slices", ("layers", "bits"))):
        series = [
            submodel
            for submodel in study.uniform
            if all(getattr(submodel, other) == getattr(whole[0], other) for other in others)
        ]
        series.sort(key=lambda submodel: int(getattr(submodel, name)))
        if len(series) < 2:
            continue
        gain = paired_difference(*(submodel.outcome.right(study.task.examples) for submodel in (series[-1], series[0])))
        verdicts.append(HOLDS if gain.low > 0.0 else FAILS if gain.high < 0.0 else UNCLEAR)
        falls += sum(after.outcome.accuracy < before.outcome.accuracy for before, after in pairwise(series))
        gain_texts.append(f"{name} from {getattr(series[0], name)} to {getattr(series[-1], name)}: {comparison.told(gain)}")
    why = f"one of them at a time, the others as in the whole model; {falls} single steps fall"
    return study_record(study, RISES, "; ".join(gain_texts), worst_verdict(verdicts), why)


def _full(study: Study) -> tuple[int, int, int]:
    return study.model.layers, study.model.heads, 32


def importance_gain(study: Study, case: Upgraded) -> PairedDifference:
    """Return the gain of raising by importance over the mean of the random orders, example by example."""
    return paired_difference(
        case.best.right(study.task.examples).astype(float), comparison.mean_right(study, list(case.random))
    )


def _importance(study: Study) -> dict[str, Any]:
    cases = [case for case in study.upgrades if case.random]
    if not cases:
        return study_record(study, IMPORTANCE, "", UNKNOWN, "no random order was measured")
    gains = [importance_gain(study, case) for case in cases]
    best = [case.best.right(study.task.examples).astype(float) for case in cases]
    by_chance = [comparison.mean_right(study, list(case.random)) for case in cases]
    overall_gain = paired_difference(sum(best[1:], best[0]) / len(best), sum(by_chance[1:], by_chance[0]) / len(best))
    worse = [case for case, gain in zip(cases, gains, strict=True) if gain.difference < 0.0]
    by_case = "; ".join(
        f"{case.layers} x {case.slices}, {case.raised} to {case.to_bits} bits: {comparison.told(gain)}"
        for case, gain in zip(cases, gains, strict=True)
    )
    orders = fmean(len(case.random) for case in cases)
    why = f"{by_case}; {orders:.0f} random orders each, all else at 2 bits; worse in {len(worse)} of {len(cases)}"
    if study.importance.task_sha256 == study.task.sha256:
        why += "; the order was found on the same examples, as in the paper"
    return study_record(study, IMPORTANCE, comparison.told(overall_gain), comparison.at_least(overall_gain), why)


def _sizes(study: Study) -> dict[str, Any]:
    gain_texts, gains, falls, steps = [], [], 0, 0
    for (device, share), points in _sweeps(study.sizes):
        outcomes = [point.outcome for point in points if point.outcome is not None]
        if len(outcomes) < 2:
            continue
        gain = paired_difference(*(outcome.right(study.task.examples) for outcome in (outcomes[-1], outcomes[0])))
        gains.append(gain)
        falls += sum(after.accuracy < before.accuracy for before, after in pairwise(outcomes))
        steps += len(outcomes) - 1
        gain_texts.append(f"{device}, {comparison.percent([share])}: {comparison.told(gain)}")
    if not gains:
        return study_record(study, SIZES, "", UNKNOWN, "one size alone was measured")
    clear = [HOLDS if gain.low > 0.0 else FAILS if gain.high < 0.0 else UNCLEAR for gain in gains]
    verdict = FAILS if FAILS in clear else HOLDS if HOLDS in clear else UNCLEAR
    why = f"smallest to largest buffer under one deadline; {falls} of {steps} single steps fall, as the planner is greedy; "
    why += f"clear in {clear.count(HOLDS)} of {len(clear)} sweeps"
    return study_record(study, SIZES, "; ".join(gain_texts), verdict, why)


def _sweeps(points: Sequence[Point]) -> list[tuple[tuple[str, float], list[Point]]]:
    """Group points by device and deadline, the smallest buffer first."""

    def key(point: Point) -> tuple[str, float]:
        return point.device, point.deadline_share

    ordered = sorted(points, key=lambda point: (*key(point), point.preload_bytes))
    return [(which, list(group)) for which, group in groupby(ordered, key=key)]


def by_size(uniform: Sequence[Uniform]) -> list[Uniform]:
    """Sort submodels by bits, layers and slices, the order of the tables."""
    return sorted(uniform, key=lambda submodel: (submodel.bits, submodel.layers, submodel.slices))


EQUAL = 0.10
"""By how much operations and busy times may differ and still count as alike."""

MEMORY: ClaimText = (
    "STI-23 (c)",
    "Parameters held between executions are 1 to 2 orders of magnitude fewer bytes than the whole model's",
    f"{published.MEMORY['PreloadModel-32']:g} times fewer than in full, {published.MEMORY['PreloadModel-6']:g} at 6 bits",
)
EQUAL_WORK: ClaimText = ("STI-24 (a)", "Plans compute as many shards as the model in memory does", "as high as PreloadModel")
MORE_FULL: ClaimText = (
    "STI-24 (b)",
    "Plans compute more shards than Load&Exec and StdPL-32",
    f"{published.SHARDS['Load&Exec, StdPL-32']:g} times",
)
MORE_LOW: ClaimText = (
    "STI-24 (c)",
    "Plans compute more shards than StdPL-2 and StdPL-6",
    f"{published.SHARDS['StdPL-2, StdPL-6']:g} times",
)
SHAPES: ClaimText = ("STI-24 (h)", "A processor takes deep and narrow submodels, a GPU shallow and wide ones", "")
BUSY: ClaimText = (
    "STI-25",
    "Computation is busy for longer than with Load&Exec and StdPL-32, and for about as long as with PreloadModel-32",
    "expected, not measured",
)


def resource_claims(study: Study | None) -> Records:
    """Return the resource claims on each device of the study; without a study, records that one is needed."""
    every = (MEMORY, EQUAL_WORK, MORE_FULL, MORE_LOW, SHAPES, BUSY)
    if study is None or not study.grid:
        return [unmeasured_record(claim_text, study, "grid") for claim_text in every]
    records = [_memory(study, device) for device in study.devices]
    records += [_equal(study, device) for device in study.devices]
    for claim_text, methods in ((MORE_FULL, ("Load&Exec", "StdPL-32")), (MORE_LOW, ("StdPL-2", "StdPL-6"))):
        records += [_more(study, device, claim_text, methods) for device in study.devices]
    return [*records, _shapes(study), *(_busy(study, device) for device in study.devices)]


def _memory(study: Study, device: StudiedDevice) -> dict[str, Any]:
    planned = comparison.of(study, device, "STI")
    ratios = {
        method: comparison.ratio(comparison.of(study, device, method), planned, lambda point: point.held_bytes)
        for method in ("PreloadModel-32", "PreloadModel-6")
    }
    known = {method: ratio for method, ratio in ratios.items() if ratio is not None}
    if len(known) < len(ratios):
        return study_record(study, MEMORY, "", UNKNOWN, "nothing is held under a common deadline", device.name)
    ours = "; ".join(f"{ratio:.0f} times fewer than {method}" for method, ratio in known.items())
    share = 100 * device.preload_share
    whole = comparison.of(study, device, "PreloadModel-32")
    working = fmean(point.working_bytes for point in planned.values()) / fmean(point.held_bytes for point in whole.values())
    why = f"a buffer of {share:.2f} % of all shards in float32, as on the board, so by construction; the working buffer of one "
    why += (
        f"layer in float32, {100 * working:.1f} %, and the compressed shards that an execution reads come on top while it runs"
    )
    holds = all(log10(ratio) >= published.LEAST_ORDER for ratio in known.values())
    return study_record(study, MEMORY, ours, holds, why, device.name)


def _equal(study: Study, device: StudiedDevice) -> dict[str, Any]:
    planned = comparison.of(study, device, "STI")
    ratio = comparison.ratio(planned, comparison.of(study, device, "PreloadModel-32"), lambda point: point.shards)
    if ratio is None:
        return study_record(study, EQUAL_WORK, "", UNKNOWN, "nothing was run under a common deadline", device.name)
    return study_record(
        study, EQUAL_WORK, f"{ratio:.2f} times", abs(ratio - 1.0) <= EQUAL, "n x m, mean over deadlines", device.name
    )


def _more(study: Study, device: StudiedDevice, claim_text: ClaimText, methods: tuple[str, ...]) -> dict[str, Any]:
    planned = comparison.of(study, device, "STI")
    ratios = {
        method: comparison.ratio(planned, comparison.of(study, device, method), lambda point: point.shards)
        for method in methods
    }
    known = {method: ratio for method, ratio in ratios.items() if ratio is not None}
    if not known:
        return study_record(study, claim_text, "", UNKNOWN, "nothing was run under a common deadline", device.name)
    ours = "; ".join(f"{ratio:.2f} times {method}" for method, ratio in known.items())
    ran = {method: len(comparison.of(study, device, method)) for method in methods}
    why = f"n x m, mean over those of {len(planned)} deadlines under which the other runs anything: "
    why += ", ".join(f"{method} {count}" for method, count in ran.items())
    return study_record(study, claim_text, ours, all(ratio > 1.0 for ratio in known.values()), why, device.name)


def _shapes(study: Study) -> dict[str, Any]:
    """Compare the submodels of the devices whose computation grows most and least with slices."""
    flat = {device.name: device.comp_s[len(device.comp_s) // 4 - 1] / device.comp_s[-1] for device in study.devices}
    if len(flat) < 2 or max(flat.values()) < 0.9 or min(flat.values()) > 0.6:
        return study_record(
            study, SHAPES, "", UNKNOWN, "needs a device whose computation grows with slices, and one of which it hardly does"
        )
    names = sorted(flat, key=lambda name: flat[name])
    deep, shallow = (next(device for device in study.devices if device.name == name) for name in (names[0], names[-1]))
    ratios = {
        device.name: fmean(point.layers / point.slices for point in comparison.of(study, device, "STI").values())
        for device in (deep, shallow)
    }
    plans = [comparison.of(study, device, "STI") for device in (deep, shallow)]
    shares = comparison.common(*plans)
    middle = shares[len(shares) // 2]
    ours = "; ".join(
        f"{name}: {planned[middle].layers} x {planned[middle].slices} at {comparison.percent([middle])}"
        for name, planned in zip(ratios, plans, strict=True)
    )
    why = "; ".join(f"{name}: layers over slices {ratio:.2f} on average" for name, ratio in ratios.items())
    record = study_record(study, SHAPES, ours, ratios[deep.name] > ratios[shallow.name], why)
    return record | {"basis": basis_of(study, [deep.name, shallow.name])}


def _busy(study: Study, device: StudiedDevice) -> dict[str, Any]:
    planned = comparison.of(study, device, "STI")
    ratios = {
        method: comparison.ratio(planned, comparison.of(study, device, method), lambda point: point.busy_s)
        for method in ("Load&Exec", "StdPL-32", "PreloadModel-32")
    }
    known = {method: ratio for method, ratio in ratios.items() if ratio is not None}
    if "PreloadModel-32" not in known or len(known) < 2:
        return study_record(study, BUSY, "", UNKNOWN, "nothing was run under a common deadline", device.name)
    ours = "; ".join(f"{ratio:.2f} times as long as {method}" for method, ratio in known.items())
    near = abs(known.pop("PreloadModel-32") - 1.0) <= EQUAL
    io_s = fmean(point.io_s for point in planned.values())
    why = f"the disk is busy for {1e3 * io_s:.1f} ms beside it; busy times alone, no energy was measured"
    return study_record(study, BUSY, ours, near and all(ratio > 1.0 for ratio in known.values()), why, device.name)
