"""The claims that a study of a trained classifier decides: accuracy, fidelity, memory and operations (STI-22 to 25, 27)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby, pairwise
from math import log10
from statistics import fmean

from simnmt.papers.kit import claim as kit
from simnmt.papers.kit.claim import FAILS, HOLDS, UNCLEAR, ClaimRecord, Judgement, Undecided, holds_if, worst_verdict
from simnmt.papers.sti import published
from simnmt.papers.sti.comparison import (
    POINTS,
    Comparison,
    above,
    at_least,
    compare,
    difference,
    format_gain,
    format_shares,
    importance_gain,
    points_of,
)
from simnmt.papers.sti.study import StudiedDevice, Study

NEEDS = "needs a study of a trained classifier: give --study, or --store and --task"
WITHIN = 0.01
"""Accuracy that may be lost against the whole model in memory (STI-22's accept)."""
EQUAL = 0.10
"""Relative difference of operations and busy times that still counts as equal."""
BASELINES = ("Load&Exec", "StdPL-32", "StdPL-2", "StdPL-6")


CLAIMS = kit.ClaimList()


def study_claims(study: Study | None) -> list[ClaimRecord]:
    """Return all claims on the study, one record for each device or one; without a study, records that one is needed."""
    if study is None:
        return [claim.unknown(NEEDS, basis="needs --study") for claim in CLAIMS]
    return [record for claim in CLAIMS for record in claim_records(claim, study)]


def claim_records(claim: kit.Claim, study: Study) -> list[ClaimRecord]:
    """Return the verdict by the claim's part of the study, or if it names no part, by the grid on each device."""
    part = claim.part or "grid"
    if not getattr(study, part):
        return [claim.unknown(f"the study has no part `{part}`", study.name, basis="needs --study")]
    if claim.part:
        return [claim.record(study, device=study.name)]
    return [claim.record(study, device, device=f"{study.name}, {device.name}", basis=device.kind) for device in study.devices]


def _judge_in_time(study: Study, device: StudiedDevice, method: str, why: str, slack: float = 0.0) -> Judgement:
    """Judge by the weaker verdict of the published plan and of the one that may wait, where neither side is late."""
    over_all = compare(study, device, "STI", method)
    waiting = compare(study, device, "STI, waiting", method)
    plans = {"in time:": over_all.in_time, "allowed to wait until the deadline:": waiting.in_time}
    verdicts = [at_least(plan.gain, slack) for plan in plans.values() if plan.pairs]
    gains = {name: format_gain(plan.gain) if plan.pairs else "never in time together" for name, plan in plans.items()}
    deadlines = len(over_all.pairs)
    ours = "; ".join(f"{name} {gains[name]}, {len(plan.pairs)} of {deadlines} deadlines" for name, plan in plans.items())
    return Judgement(ours, worst_verdict(verdicts), why)


def _baseline(method: str, study: Study, device: StudiedDevice) -> Judgement:
    over_all = compare(study, device, "STI", method)
    pairs = over_all.in_time.pairs
    worse = [first.deadline_share for first, second in pairs if first.outcome.accuracy < second.outcome.accuracy]
    why = f"less accurate at {format_shares(worse)} of the whole computation; " if worse else ""
    (accuracy, other), (missed, other_missed) = over_all.accuracies, over_all.missed
    why += f"late answers included {format_gain(over_all.gain)}, {100 * accuracy:.1f} against {100 * other:.1f} %, over "
    why += f"{len(over_all.pairs)} deadlines, of which the plan misses {missed} and the other {other_missed}"
    return _judge_in_time(study, device, method, why)


def _format_gains(method: str) -> str:
    return ", ".join(f"{board} +{gains[method]:g}" for board, gains in published.GAINS.items()) + " points"


CLAIMS += [
    kit.Claim(
        "STI-22 (a)",
        "On average over deadlines that both keep a plan is at least as accurate as Load&Exec",
        _format_gains("Load&Exec"),
        partial(_baseline, "Load&Exec"),
    ),
    kit.Claim(
        "STI-22 (b)",
        "On average over deadlines that both keep a plan is at least as accurate as StdPL-32",
        _format_gains("StdPL-32"),
        partial(_baseline, "StdPL-32"),
    ),
    kit.Claim(
        "STI-22 (c)",
        "On average over deadlines that both keep a plan is at least as accurate as StdPL-2",
        _format_gains("StdPL-2"),
        partial(_baseline, "StdPL-2"),
    ),
    kit.Claim(
        "STI-22 (d)",
        "On average over deadlines that both keep a plan is at least as accurate as StdPL-6",
        _format_gains("StdPL-6"),
        partial(_baseline, "StdPL-6"),
    ),
]


@CLAIMS.declare(
    "STI-22 (e)",
    f"On average over deadlines that both keep a plan is within {100 * WITHIN:g} point of the whole model held in memory",
    f"+{published.PRELOAD_GAIN:g} points, and `no more than {published.INTRO_LOSS:g}` lost",
)
def _in_memory(study: Study, device: StudiedDevice) -> Judgement:
    over_all = compare(study, device, "STI", "PreloadModel-32")
    deadlines, equal = len(over_all.in_time.pairs), over_all.in_time.where(lambda first, second: first.shards == second.shards)
    why = f"same operations under {len(equal.pairs)} of these {deadlines} deadlines"
    why += f", there {format_gain(equal.gain)}" if 0 < len(equal.pairs) < deadlines else ""
    why += f"; late answers included {format_gain(over_all.gain)} over {len(over_all.pairs)} deadlines"
    return _judge_in_time(study, device, "PreloadModel-32", why, WITHIN)


@CLAIMS.declare("STI-22 (f)", "A plan keeps every deadline that the whole model in memory keeps")
def _deadlines(study: Study, device: StudiedDevice) -> Judgement:
    pairs = compare(study, device, "STI", "PreloadModel-32").where(lambda _, in_memory: not in_memory.misses).pairs
    late = [planned.deadline_share for planned, _ in pairs if planned.misses]
    by_method = [(method, points_of(study, device, method).values()) for method in BASELINES]
    others = "; ".join(f"{method} misses {sum(p.misses for p in points)} of {len(points)}" for method, points in by_method)
    why = f"by the costs it was planned with; late at {format_shares(late)}" if late else "by the costs"
    return Judgement(f"{len(pairs) - len(late)} of {len(pairs)} kept", holds_if(not late), f"{why}; {others}")


@CLAIMS.declare(
    "STI-24 (d)",
    "The preload buffer makes plans more accurate than without",
    f"up to +{published.BUFFER_GAIN:g} points",
)
def _buffer(study: Study, device: StudiedDevice) -> Judgement:
    compared = compare(study, device, "STI", "STI", second_share=0.0)
    most, share = max(
        (first.outcome.accuracy - second.outcome.accuracy, first.deadline_share) for first, second in compared.pairs
    )
    missed, missed_without = compared.missed
    why = (
        f"at most {POINTS * most:+.2f} points, at {format_shares([share])} of the whole computation; "
        f"without it {missed_without} of {len(compared.pairs)} deadlines are missed, with it {missed}"
    )
    return Judgement(format_gain(compared.gain), above(compared.gain), why)


@CLAIMS.declare(
    "STI-24 (g)",
    "The advantage over other pipelines is larger under tight deadlines than under loose ones",
    f"+{published.NARROW_GAIN:g} points below 200 ms (Odroid), less beyond",
)
def _tight(study: Study, device: StudiedDevice) -> Judgement:
    """Compare the gains of the lower half of the deadlines (tight) with those of the upper half (loose)."""
    texts, gaps = [], []
    for method in ("StdPL-2", "StdPL-6"):
        compared = compare(study, device, "STI", method)
        middle = len(compared.pairs) // 2
        if not middle:
            raise Undecided("one deadline has no halves")
        tight, loose = (Comparison(compared.examples, half) for half in (compared.pairs[:middle], compared.pairs[middle:]))
        gaps.append((tight.gain, loose.gain))
        limit = format_shares([tight.pairs[-1][0].deadline_share])
        texts.append(f"{method}: {format_gain(tight.gain)} up to {limit}, {format_gain(loose.gain)} beyond")
    clear = all(first.low > second.high for first, second in gaps)
    verdict = HOLDS if clear else FAILS if any(first.high < second.low for first, second in gaps) else UNCLEAR
    return Judgement("; ".join(texts), verdict, "halves of the deadlines")


@CLAIMS.declare(
    "STI-23 (c)",
    "Parameters held between executions are 1 to 2 orders of magnitude fewer bytes than the whole model's",
    f"{published.MEMORY['PreloadModel-32']:g} times fewer than in full, {published.MEMORY['PreloadModel-6']:g} at 6 bits",
)
def _memory(study: Study, device: StudiedDevice) -> Judgement:
    compared = {method: compare(study, device, method, "STI") for method in ("PreloadModel-32", "PreloadModel-6")}
    ratios = {method: pairs.ratio(lambda point: point.held_bytes) for method, pairs in compared.items()}
    whole, planned = zip(*compared["PreloadModel-32"].pairs, strict=True)
    working = fmean(point.working_bytes for point in planned) / fmean(point.held_bytes for point in whole)
    why = (
        f"a buffer of {100 * device.preload_share:.2f} % of all shards in float32, as on the board, so by construction; the "
        f"working buffer of one layer in float32, {100 * working:.1f} %, and the compressed shards that an execution reads "
        "come on top while it runs"
    )
    ours = "; ".join(f"{ratio:.0f} times fewer than {method}" for method, ratio in ratios.items())
    holds = all(log10(ratio) >= published.LEAST_ORDER for ratio in ratios.values())
    return Judgement(ours, holds_if(holds), why)


@CLAIMS.declare("STI-24 (a)", "Plans compute as many shards as the model in memory does", "as high as PreloadModel")
def _equal_work(study: Study, device: StudiedDevice) -> Judgement:
    ratio = compare(study, device, "STI", "PreloadModel-32").ratio(lambda point: point.shards)
    return Judgement(f"{ratio:.2f} times", holds_if(abs(ratio - 1.0) <= EQUAL), "n x m, mean over deadlines")


def _more_work(methods: Sequence[str], study: Study, device: StudiedDevice) -> Judgement:
    compared = {method: compare(study, device, "STI", method) for method in methods}
    ratios = {method: pairs.ratio(lambda point: point.shards) for method, pairs in compared.items()}
    ours = "; ".join(f"{ratio:.2f} times {method}" for method, ratio in ratios.items())
    why = f"n x m, mean over those of {len(points_of(study, device, 'STI'))} deadlines under which the other runs anything: "
    why += ", ".join(f"{method} {len(pairs.pairs)}" for method, pairs in compared.items())
    return Judgement(ours, holds_if(min(ratios.values()) > 1.0), why)


CLAIMS += [
    kit.Claim(
        "STI-24 (b)",
        "Plans compute more shards than Load&Exec and StdPL-32",
        f"{published.SHARDS['Load&Exec']:g} times",
        partial(_more_work, ("Load&Exec", "StdPL-32")),
    ),
    kit.Claim(
        "STI-24 (c)",
        "Plans compute more shards than StdPL-2 and StdPL-6",
        f"{published.SHARDS['StdPL-2']:g} times",
        partial(_more_work, ("StdPL-2", "StdPL-6")),
    ),
]


@CLAIMS.declare("STI-24 (h)", "A processor takes deep and narrow submodels, a GPU shallow and wide ones", part="grid")
def _shapes(study: Study) -> Judgement:
    """Compare the submodels of the devices whose computation grows most and least with slices."""
    by_growth = sorted(study.devices, key=lambda device: device.comp_s[len(device.comp_s) // 4 - 1] / device.comp_s[-1])
    flat = [device.comp_s[len(device.comp_s) // 4 - 1] / device.comp_s[-1] for device in by_growth]
    if len(flat) < 2 or flat[-1] < 0.9 or flat[0] > 0.6:
        raise Undecided("needs a device whose computation grows with slices, and one of which it hardly does")
    deep, shallow = by_growth[0], by_growth[-1]
    plans = [points_of(study, device, "STI") for device in (deep, shallow)]
    shares = [share for share in plans[0] if share in plans[1]]
    if not shares:
        raise Undecided("nothing was run under a common deadline")
    middle = shares[len(shares) // 2]
    ratios = [fmean(point.layers / point.slices for point in plan.values()) for plan in plans]
    names = (deep.name, shallow.name)
    basis = max(deep.kind, shallow.kind, key=("measured", "inferred", "synthetic").index)
    ours = "; ".join(
        f"{name}: {plan[middle].layers} x {plan[middle].slices} at {format_shares([middle])}"
        for name, plan in zip(names, plans, strict=True)
    )
    why = "; ".join(f"{name}: layers over slices {ratio:.2f} on average" for name, ratio in zip(names, ratios, strict=True))
    return Judgement(ours, holds_if(ratios[0] > ratios[1]), why, basis)


@CLAIMS.declare(
    "STI-25",
    "Computation is busy for longer than with Load&Exec and StdPL-32, and for about as long as with PreloadModel-32",
    "expected, not measured",
)
def _busy(study: Study, device: StudiedDevice) -> Judgement:
    methods = ("Load&Exec", "StdPL-32", "PreloadModel-32")
    ratios = {method: compare(study, device, "STI", method).ratio(lambda point: point.busy_s) for method in methods}
    ours = "; ".join(f"{ratio:.2f} times as long as {method}" for method, ratio in ratios.items())
    near = abs(ratios.pop("PreloadModel-32") - 1.0) <= EQUAL
    io_s = fmean(point.io_s for point in points_of(study, device, "STI").values())
    why = f"the disk is busy for {1e3 * io_s:.1f} ms beside it; busy times alone, no energy was measured"
    return Judgement(ours, holds_if(near and min(ratios.values()) > 1.0), why)


@CLAIMS.declare("STI-27", "Accuracy rises with bits, with layers and with slices, on average", part="uniform")
def _rises(study: Study) -> Judgement:
    """Compare the fewest with the most bits, layers and slices, the other two as in the whole model."""
    names = ("bits", "layers", "slices")
    whole = {"bits": 32, "layers": study.model.layers, "slices": study.model.heads}
    sizes = [({name: int(getattr(entry, name)) for name in names}, entry.outcome) for entry in study.uniform]
    if whole not in (size for size, _ in sizes):
        raise Undecided("the whole model was not measured")
    texts, verdicts, falls = [], [], 0
    for name in names:
        series = sorted(
            ((size[name], outcome) for size, outcome in sizes if size | {name: 0} == whole | {name: 0}),
            key=lambda entry: entry[0],
        )
        if len(series) < 2:
            continue
        (least, first), (most, last) = series[0], series[-1]
        gain = difference(last, first, study.task.examples)
        verdicts.append(above(gain))
        falls += sum(after.accuracy < before.accuracy for (_, before), (_, after) in pairwise(series))
        texts.append(f"{name} from {least} to {most}: {format_gain(gain)}")
    why = f"one of them at a time, the others as in the whole model; {falls} single steps fall"
    return Judgement("; ".join(texts), worst_verdict(verdicts), why)


@CLAIMS.declare(
    "STI-24 (e)",
    "Raising shards by importance is at least as accurate as raising as many at random, on average",
    f"+{published.IMPORTANCE[0]:g} points on average, up to +{published.IMPORTANCE[1]:g}",
    "upgrades",
)
def _importance(study: Study) -> Judgement:
    cases = [case for case in study.upgrades if case.random]
    if not cases:
        raise Undecided("no random order was measured")
    gains = [importance_gain([case], study.task.examples) for case in cases]
    overall_gain = importance_gain(cases, study.task.examples)
    by_case = "; ".join(
        f"{case.layers} x {case.slices}, {case.raised} to {case.to_bits} bits: {format_gain(gain)}"
        for case, gain in zip(cases, gains, strict=True)
    )
    orders, worse = fmean(len(case.random) for case in cases), sum(gain.difference < 0.0 for gain in gains)
    why = f"{by_case}; {orders:.0f} random orders each, all else at 2 bits; worse in {worse} of {len(cases)}"
    if study.ranked_on_judged:
        why += "; the order was found on the same examples, as in the paper"
    return Judgement(format_gain(overall_gain), at_least(overall_gain), why)


@CLAIMS.declare(
    "STI-24 (f)",
    "A larger preload buffer makes plans more accurate",
    f"+{published.SIZE_GAIN[2]:g} points from {published.SIZE_GAIN[0] / 1e6:g} to {published.SIZE_GAIN[1] / 1e6:g} MB",
    "sizes",
)
def _sizes(study: Study) -> Judgement:
    texts, verdicts, falls, steps = [], [], 0, 0
    ordered = sorted(study.sizes, key=lambda point: (point.device, point.deadline_share, point.preload_bytes))
    for (device, share), points in groupby(ordered, key=lambda point: (point.device, point.deadline_share)):
        outcomes = [point.outcome for point in points]
        if len(outcomes) > 1:
            gain = difference(outcomes[-1], outcomes[0], study.task.examples)
            verdicts.append(above(gain))
            falls += sum(after.accuracy < before.accuracy for before, after in pairwise(outcomes))
            steps += len(outcomes) - 1
            texts.append(f"{device}, {format_shares([share])}: {format_gain(gain)}")
    if not texts:
        raise Undecided("one size alone was measured")
    verdict = next(verdict for verdict in (FAILS, HOLDS, UNCLEAR) if verdict in verdicts)
    why = f"smallest to largest buffer under one deadline; {falls} of {steps} single steps fall, as the planner is greedy; "
    why += f"clear in {verdicts.count(HOLDS)} of {len(verdicts)} sweeps"
    return Judgement("; ".join(texts), verdict, why)
