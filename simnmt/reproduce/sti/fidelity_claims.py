"""What bits, depth, width, importance and the buffer's size do to a trained classifier's accuracy (STI-24, 27)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any

from simnmt.elastic.paired import PairedDifference, paired_difference
from simnmt.reproduce.sti import published, ways
from simnmt.reproduce.sti.studies import Way, told, unasked
from simnmt.reproduce.verdicts import FAILS, HOLDS, UNCLEAR, UNKNOWN, Records, worst

if TYPE_CHECKING:
    from simnmt.calibrate.sti_study.document import Point, Study, Uniform, Upgraded

RISES: Way = ("STI-27", "Accuracy rises with bits, with layers and with slices, on average", "")
IMPORTANCE: Way = (
    "STI-24 (e)",
    "Raising shards by importance is at least as accurate as raising as many at random, on average",
    f"+{published.IMPORTANCE[0]:g} points on average, up to +{published.IMPORTANCE[1]:g}",
)
SIZES: Way = (
    "STI-24 (f)",
    "A larger preload buffer makes plans more accurate",
    f"+{published.SIZE_GAIN[2]:g} points from {published.SIZE_GAIN[0] / 1e6:g} to {published.SIZE_GAIN[1] / 1e6:g} MB",
)


def fidelity_claims(study: Study | None) -> Records:
    """Three claims by one study; of none, that they need one."""
    parts = {"uniform": RISES, "upgrades": IMPORTANCE, "sizes": SIZES}
    found: Records = []
    if study is None:
        return [unasked(way, None, part) for part, way in parts.items()]
    found.append(_rises(study) if study.uniform else unasked(RISES, study, "uniform"))
    found.append(_importance(study) if study.upgrades else unasked(IMPORTANCE, study, "upgrades"))
    found.append(_sizes(study) if study.sizes else unasked(SIZES, study, "sizes"))
    return found


def _rises(study: Study) -> dict[str, Any]:
    """Least against most of each, all else being the whole model."""
    whole = [each for each in study.uniform if (each.layers, each.slices, each.bits) == _full(study)]
    if not whole:
        return told(study, RISES, "", UNKNOWN, "the whole model was not measured")
    said, verdicts, falls = [], [], 0
    for name, others in (("bits", ("layers", "slices")), ("layers", ("slices", "bits")), ("slices", ("layers", "bits"))):
        own = [each for each in study.uniform if all(getattr(each, other) == getattr(whole[0], other) for other in others)]
        own.sort(key=lambda each: int(getattr(each, name)))
        if len(own) < 2:
            continue
        found = paired_difference(*(each.outcome.right(study.task.examples) for each in (own[-1], own[0])))
        verdicts.append(HOLDS if found.low > 0.0 else FAILS if found.high < 0.0 else UNCLEAR)
        falls += sum(after.outcome.accuracy < before.outcome.accuracy for before, after in pairwise(own))
        said.append(f"{name} from {getattr(own[0], name)} to {getattr(own[-1], name)}: {ways.told(found)}")
    why = f"one of them at a time, the others as in the whole model; {falls} single steps fall"
    return told(study, RISES, "; ".join(said), worst(verdicts), why)


def _full(study: Study) -> tuple[int, int, int]:
    return study.model.layers, study.model.heads, 32


def importance_gain(study: Study, case: Upgraded) -> PairedDifference:
    """By importance over the mean of the random orders, example by example."""
    return paired_difference(case.best.right(study.task.examples).astype(float), ways.mean_right(study, list(case.random)))


def _importance(study: Study) -> dict[str, Any]:
    cases = [case for case in study.upgrades if case.random]
    if not cases:
        return told(study, IMPORTANCE, "", UNKNOWN, "no random order was measured")
    gains = [importance_gain(study, case) for case in cases]
    best = [case.best.right(study.task.examples).astype(float) for case in cases]
    by_chance = [ways.mean_right(study, list(case.random)) for case in cases]
    found = paired_difference(sum(best[1:], best[0]) / len(best), sum(by_chance[1:], by_chance[0]) / len(best))
    worse = [case for case, own in zip(cases, gains, strict=True) if own.difference < 0.0]
    each = "; ".join(
        f"{case.layers} x {case.slices}, {case.raised} to {case.to_bits} bits: {ways.told(own)}"
        for case, own in zip(cases, gains, strict=True)
    )
    orders = fmean(len(case.random) for case in cases)
    why = f"{each}; {orders:.0f} random orders each, all else at 2 bits; worse in {len(worse)} of {len(cases)}"
    if study.importance.task_sha256 == study.task.sha256:
        why += "; the order was found on the same examples, as in the paper"
    return told(study, IMPORTANCE, ways.told(found), ways.at_least(found), why)


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
        said.append(f"{device}, {ways.percent([share])}: {ways.told(found)}")
    if not gains:
        return told(study, SIZES, "", UNKNOWN, "one size alone was measured")
    clear = [HOLDS if each.low > 0.0 else FAILS if each.high < 0.0 else UNCLEAR for each in gains]
    verdict = FAILS if FAILS in clear else HOLDS if HOLDS in clear else UNCLEAR
    why = f"smallest to largest buffer under one deadline; {falls} of {steps} single steps fall, as the planner is greedy; "
    why += f"clear in {clear.count(HOLDS)} of {len(clear)} sweeps"
    return told(study, SIZES, "; ".join(said), verdict, why)


def _sweeps(points: Sequence[Point]) -> list[tuple[tuple[str, float], list[Point]]]:
    """By device and deadline, the smallest buffer first."""

    def key(each: Point) -> tuple[str, float]:
        return each.device, each.deadline_share

    ordered = sorted(points, key=lambda each: (*key(each), each.preload_bytes))
    return [(which, list(own)) for which, own in groupby(ordered, key=key)]


def by_size(uniform: Sequence[Uniform]) -> list[Uniform]:
    """In the order in which tables show them."""
    return sorted(uniform, key=lambda each: (each.bits, each.layers, each.slices))
