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
    """Each claim on each device that the study plans for; of no study, that one is needed."""
    every = [*BASELINES.values(), IN_MEMORY, DEADLINES, BUFFER, TIGHT]
    if study is None or not study.grid:
        return [unmeasured_record(way, study, "grid") for way in every]
    found: Records = []
    for method, way in BASELINES.items():
        found += [_baseline(study, device, method, way) for device in study.devices]
    for claim in (_in_memory, _deadlines, _buffer, _tight):
        found += [claim(study, device) for device in study.devices]
    return found


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


def _baseline(study: Study, device: StudiedDevice, method: str, way: ClaimText) -> dict[str, Any]:
    own, other = comparison.of(study, device, "STI"), comparison.of(study, device, method)
    compared = _compared(study, device, method)
    if compared.gain_all_deadlines is None:
        return study_record(study, way, "", UNKNOWN, "nothing was run under a common deadline", device.name)
    worse = [share for share in compared.kept if comparison.difference(own, other, share) < 0.0]
    why = f"less accurate at {comparison.percent(worse)} of the whole computation; " if worse else ""
    why += (
        f"late answers included {comparison.told(compared.gain_all_deadlines)}, {100 * comparison.accuracy(own):.1f} against "
    )
    why += f"{100 * comparison.accuracy(other):.1f} %, over {compared.deadlines} deadlines, {_misses(own, other)}"
    return study_record(study, way, compared.describe(), compared.verdict(), why, device.name)


def _in_memory(study: Study, device: StudiedDevice) -> dict[str, Any]:
    own, other = comparison.of(study, device, "STI"), comparison.of(study, device, "PreloadModel-32")
    compared = _compared(study, device, "PreloadModel-32")
    if compared.gain_all_deadlines is None:
        return study_record(study, IN_MEMORY, "", UNKNOWN, "nothing was run under a common deadline", device.name)
    equal = [share for share in compared.kept if own[share].shards == other[share].shards]
    why = f"same operations under {len(equal)} of these {len(compared.kept)} deadlines"
    at_equal = comparison.gain(study, own, other, equal) if len(equal) < len(compared.kept) else None
    why += f", there {comparison.told(at_equal)}" if at_equal is not None else ""
    why += f"; late answers included {comparison.told(compared.gain_all_deadlines)} over {compared.deadlines} deadlines"
    return study_record(study, IN_MEMORY, compared.describe(), compared.verdict(WITHIN), why, device.name)


def _deadlines(study: Study, device: StudiedDevice) -> dict[str, Any]:
    own, held = comparison.of(study, device, "STI"), comparison.of(study, device, "PreloadModel-32")
    can = [share for share in own if share not in comparison.missed(held)]
    late = [share for share in comparison.missed(own) if share in can]
    others = "; ".join(
        f"{method} misses {len(comparison.missed(way))} of {len(way)}"
        for method in BASELINES
        if (way := comparison.of(study, device, method))
    )
    ours = f"{len(can) - len(late)} of {len(can)} kept"
    why = (
        f"by the costs it was planned with; late at {comparison.percent(late)}; {others}" if late else f"by the costs; {others}"
    )
    return study_record(study, DEADLINES, ours, not late, why, device.name)


def _buffer(study: Study, device: StudiedDevice) -> dict[str, Any]:
    own, without = comparison.of(study, device, "STI"), comparison.of(study, device, "STI", 0.0)
    found = comparison.gain(study, own, without)
    if found is None:
        return study_record(study, BUFFER, "", UNKNOWN, "not measured without a buffer", device.name)
    most = max((comparison.difference(own, without, share), share) for share in comparison.common(own, without))
    missed_without, missed_with = len(comparison.missed(without)), len(comparison.missed(own))
    why = (
        f"at most {comparison.POINTS * most[0]:+.2f} points, at {comparison.percent([most[1]])} of the whole computation; "
        f"without it {missed_without} of {len(without)} deadlines are missed, with it {missed_with}"
    )
    verdict = HOLDS if found.low > 0.0 else FAILS if found.high < 0.0 else UNCLEAR
    return study_record(study, BUFFER, comparison.told(found), verdict, why, device.name)


def _tight(study: Study, device: StudiedDevice) -> dict[str, Any]:
    """Tight: fewer layers fit than the paper names for the board, or the lower half of the deadlines."""
    own = comparison.of(study, device, "STI")
    shares = list(own)
    tight, loose = shares[: len(shares) // 2], shares[len(shares) // 2 :]
    said, gaps = [], []
    for method in ("StdPL-2", "StdPL-6"):
        other = comparison.of(study, device, method)
        first, second = (comparison.gain(study, own, other, each) for each in (tight, loose))
        if first is not None and second is not None:
            gaps.append((first, second))
            said.append(
                f"{method}: {comparison.told(first)} up to {comparison.percent(tight[-1:])}, {comparison.told(second)} beyond"
            )
    if not gaps:
        return study_record(study, TIGHT, "", UNKNOWN, "nothing was run under a common deadline", device.name)
    return study_record(study, TIGHT, "; ".join(said), _larger(gaps), "halves of the deadlines", device.name)


def _larger(gaps: Sequence[tuple[PairedDifference, PairedDifference]]) -> str:
    """By intervals that do not touch; else by nothing."""
    if all(first.low > second.high for first, second in gaps):
        return HOLDS
    return FAILS if any(first.high < second.low for first, second in gaps) else UNCLEAR


def _misses(own: comparison.ByDeadline, other: comparison.ByDeadline) -> str:
    return f"of which the plan misses {len(comparison.missed(own))} and the other {len(comparison.missed(other))}"


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
    """Three claims by one study; of none, that they need one."""
    parts = {"uniform": RISES, "upgrades": IMPORTANCE, "sizes": SIZES}
    found: Records = []
    if study is None:
        return [unmeasured_record(way, None, part) for part, way in parts.items()]
    found.append(_rises(study) if study.uniform else unmeasured_record(RISES, study, "uniform"))
    found.append(_importance(study) if study.upgrades else unmeasured_record(IMPORTANCE, study, "upgrades"))
    found.append(_sizes(study) if study.sizes else unmeasured_record(SIZES, study, "sizes"))
    return found


def _rises(study: Study) -> dict[str, Any]:
    """Least against most of each, all else being the whole model."""
    whole = [each for each in study.uniform if (each.layers, each.slices, each.bits) == _full(study)]
    if not whole:
        return study_record(study, RISES, "", UNKNOWN, "the whole model was not measured")
    said, verdicts, falls = [], [], 0
    for name, others in (("bits", ("layers", "slices")), ("layers", ("slices", "bits")), ("slices", ("layers", "bits"))):
        own = [each for each in study.uniform if all(getattr(each, other) == getattr(whole[0], other) for other in others)]
        own.sort(key=lambda each: int(getattr(each, name)))
        if len(own) < 2:
            continue
        found = paired_difference(*(each.outcome.right(study.task.examples) for each in (own[-1], own[0])))
        verdicts.append(HOLDS if found.low > 0.0 else FAILS if found.high < 0.0 else UNCLEAR)
        falls += sum(after.outcome.accuracy < before.outcome.accuracy for before, after in pairwise(own))
        said.append(f"{name} from {getattr(own[0], name)} to {getattr(own[-1], name)}: {comparison.told(found)}")
    why = f"one of them at a time, the others as in the whole model; {falls} single steps fall"
    return study_record(study, RISES, "; ".join(said), worst_verdict(verdicts), why)


def _full(study: Study) -> tuple[int, int, int]:
    return study.model.layers, study.model.heads, 32


def importance_gain(study: Study, case: Upgraded) -> PairedDifference:
    """By importance over the mean of the random orders, example by example."""
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
    found = paired_difference(sum(best[1:], best[0]) / len(best), sum(by_chance[1:], by_chance[0]) / len(best))
    worse = [case for case, own in zip(cases, gains, strict=True) if own.difference < 0.0]
    each = "; ".join(
        f"{case.layers} x {case.slices}, {case.raised} to {case.to_bits} bits: {comparison.told(own)}"
        for case, own in zip(cases, gains, strict=True)
    )
    orders = fmean(len(case.random) for case in cases)
    why = f"{each}; {orders:.0f} random orders each, all else at 2 bits; worse in {len(worse)} of {len(cases)}"
    if study.importance.task_sha256 == study.task.sha256:
        why += "; the order was found on the same examples, as in the paper"
    return study_record(study, IMPORTANCE, comparison.told(found), comparison.at_least(found), why)


def _sizes(study: Study) -> dict[str, Any]:
    said, gains, falls, steps = [], [], 0, 0
    for (device, share), own in _sweeps(study.sizes):
        outcomes = [each.outcome for each in own if each.outcome is not None]
        if len(outcomes) < 2:
            continue
        found = paired_difference(*(each.right(study.task.examples) for each in (outcomes[-1], outcomes[0])))
        gains.append(found)
        falls += sum(after.accuracy < before.accuracy for before, after in pairwise(outcomes))
        steps += len(outcomes) - 1
        said.append(f"{device}, {comparison.percent([share])}: {comparison.told(found)}")
    if not gains:
        return study_record(study, SIZES, "", UNKNOWN, "one size alone was measured")
    clear = [HOLDS if each.low > 0.0 else FAILS if each.high < 0.0 else UNCLEAR for each in gains]
    verdict = FAILS if FAILS in clear else HOLDS if HOLDS in clear else UNCLEAR
    why = f"smallest to largest buffer under one deadline; {falls} of {steps} single steps fall, as the planner is greedy; "
    why += f"clear in {clear.count(HOLDS)} of {len(clear)} sweeps"
    return study_record(study, SIZES, "; ".join(said), verdict, why)


def _sweeps(points: Sequence[Point]) -> list[tuple[tuple[str, float], list[Point]]]:
    """By device and deadline, the smallest buffer first."""

    def key(each: Point) -> tuple[str, float]:
        return each.device, each.deadline_share

    ordered = sorted(points, key=lambda each: (*key(each), each.preload_bytes))
    return [(which, list(own)) for which, own in groupby(ordered, key=key)]


def by_size(uniform: Sequence[Uniform]) -> list[Uniform]:
    """In the order in which tables show them."""
    return sorted(uniform, key=lambda each: (each.bits, each.layers, each.slices))


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
    """Each claim on each device that the study plans for; of no study, that one is needed."""
    every = (MEMORY, EQUAL_WORK, MORE_FULL, MORE_LOW, SHAPES, BUSY)
    if study is None or not study.grid:
        return [unmeasured_record(way, study, "grid") for way in every]
    found = [_memory(study, device) for device in study.devices]
    found += [_equal(study, device) for device in study.devices]
    for way, methods in ((MORE_FULL, ("Load&Exec", "StdPL-32")), (MORE_LOW, ("StdPL-2", "StdPL-6"))):
        found += [_more(study, device, way, methods) for device in study.devices]
    return [*found, _shapes(study), *(_busy(study, device) for device in study.devices)]


def _memory(study: Study, device: StudiedDevice) -> dict[str, Any]:
    own = comparison.of(study, device, "STI")
    found = {
        method: comparison.ratio(comparison.of(study, device, method), own, lambda each: each.held_bytes)
        for method in ("PreloadModel-32", "PreloadModel-6")
    }
    known = {method: ratio for method, ratio in found.items() if ratio is not None}
    if len(known) < len(found):
        return study_record(study, MEMORY, "", UNKNOWN, "nothing is held under a common deadline", device.name)
    ours = "; ".join(f"{ratio:.0f} times fewer than {method}" for method, ratio in known.items())
    share = 100 * device.preload_share
    whole = comparison.of(study, device, "PreloadModel-32")
    working = fmean(each.working_bytes for each in own.values()) / fmean(each.held_bytes for each in whole.values())
    why = f"a buffer of {share:.2f} % of all shards in float32, as on the board, so by construction; the working buffer of one "
    why += (
        f"layer in float32, {100 * working:.1f} %, and the compressed shards that an execution reads come on top while it runs"
    )
    holds = all(log10(ratio) >= published.LEAST_ORDER for ratio in known.values())
    return study_record(study, MEMORY, ours, holds, why, device.name)


def _equal(study: Study, device: StudiedDevice) -> dict[str, Any]:
    own = comparison.of(study, device, "STI")
    found = comparison.ratio(own, comparison.of(study, device, "PreloadModel-32"), lambda each: each.shards)
    if found is None:
        return study_record(study, EQUAL_WORK, "", UNKNOWN, "nothing was run under a common deadline", device.name)
    return study_record(
        study, EQUAL_WORK, f"{found:.2f} times", abs(found - 1.0) <= EQUAL, "n x m, mean over deadlines", device.name
    )


def _more(study: Study, device: StudiedDevice, way: ClaimText, methods: tuple[str, ...]) -> dict[str, Any]:
    own = comparison.of(study, device, "STI")
    found = {
        method: comparison.ratio(own, comparison.of(study, device, method), lambda each: each.shards) for method in methods
    }
    known = {method: ratio for method, ratio in found.items() if ratio is not None}
    if not known:
        return study_record(study, way, "", UNKNOWN, "nothing was run under a common deadline", device.name)
    ours = "; ".join(f"{ratio:.2f} times {method}" for method, ratio in known.items())
    ran = {method: len(comparison.of(study, device, method)) for method in methods}
    why = f"n x m, mean over those of {len(own)} deadlines under which the other runs anything: "
    why += ", ".join(f"{method} {count}" for method, count in ran.items())
    return study_record(study, way, ours, all(ratio > 1.0 for ratio in known.values()), why, device.name)


def _shapes(study: Study) -> dict[str, Any]:
    """By how flat each device's computation is over slices."""
    flat = {device.name: device.comp_s[len(device.comp_s) // 4 - 1] / device.comp_s[-1] for device in study.devices}
    if len(flat) < 2 or max(flat.values()) < 0.9 or min(flat.values()) > 0.6:
        return study_record(
            study, SHAPES, "", UNKNOWN, "needs a device whose computation grows with slices, and one of which it hardly does"
        )
    names = sorted(flat, key=lambda name: flat[name])
    deep, shallow = (next(each for each in study.devices if each.name == name) for name in (names[0], names[-1]))
    ratios = {
        device.name: fmean(each.layers / each.slices for each in comparison.of(study, device, "STI").values())
        for device in (deep, shallow)
    }
    own = [comparison.of(study, device, "STI") for device in (deep, shallow)]
    shares = comparison.common(*own)
    middle = shares[len(shares) // 2]
    ours = "; ".join(
        f"{name}: {way[middle].layers} x {way[middle].slices} at {comparison.percent([middle])}"
        for name, way in zip(ratios, own, strict=True)
    )
    why = "; ".join(f"{name}: layers over slices {ratio:.2f} on average" for name, ratio in ratios.items())
    record = study_record(study, SHAPES, ours, ratios[deep.name] > ratios[shallow.name], why)
    return record | {"basis": basis_of(study, [deep.name, shallow.name])}


def _busy(study: Study, device: StudiedDevice) -> dict[str, Any]:
    own = comparison.of(study, device, "STI")
    found = {
        method: comparison.ratio(own, comparison.of(study, device, method), lambda each: each.busy_s)
        for method in ("Load&Exec", "StdPL-32", "PreloadModel-32")
    }
    known = {method: ratio for method, ratio in found.items() if ratio is not None}
    if "PreloadModel-32" not in known or len(known) < 2:
        return study_record(study, BUSY, "", UNKNOWN, "nothing was run under a common deadline", device.name)
    ours = "; ".join(f"{ratio:.2f} times as long as {method}" for method, ratio in known.items())
    near = abs(known.pop("PreloadModel-32") - 1.0) <= EQUAL
    io_s = fmean(each.io_s for each in own.values())
    why = f"the disk is busy for {1e3 * io_s:.1f} ms beside it; busy times alone, no energy was measured"
    return study_record(study, BUSY, ours, near and all(ratio > 1.0 for ratio in known.values()), why, device.name)
