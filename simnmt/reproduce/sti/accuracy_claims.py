"""What a trained classifier says of accuracy under deadlines: against each other way, of the buffer, of time (STI-22, 24)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simnmt.elastic.paired import PairedDifference
from simnmt.reproduce.sti import published, ways
from simnmt.reproduce.sti.studies import Way, told, unasked
from simnmt.reproduce.verdicts import FAILS, HOLDS, UNCLEAR, UNKNOWN, Records

if TYPE_CHECKING:
    from simnmt.calibrate.sti_study.document import StudiedDevice, Study

WITHIN = 0.01
"""Accuracy that may be lost against the whole model in memory (STI-22's accept)."""


def _printed(method: str) -> str:
    return ", ".join(f"{board} +{gains[method]:g}" for board, gains in published.GAINS.items()) + " points"


BASELINES: dict[str, Way] = {
    method: (
        f"STI-22 ({letter})",
        f"On average over deadlines that both keep a plan is at least as accurate as {method}",
        _printed(method),
    )
    for letter, method in zip("abcd", ("Load&Exec", "StdPL-32", "StdPL-2", "StdPL-6"), strict=True)
}
IN_MEMORY: Way = (
    "STI-22 (e)",
    f"On average over deadlines that both keep a plan is within {100 * WITHIN:g} point of the whole model held in memory",
    f"+{published.PRELOAD_GAIN:g} points, and `no more than {published.INTRO_LOSS:g}` lost",
)
DEADLINES: Way = ("STI-22 (f)", "A plan keeps every deadline that computing anything can keep", "")
BUFFER: Way = (
    "STI-24 (d)",
    "The preload buffer makes plans more accurate than without",
    f"up to +{published.BUFFER_GAIN:g} points",
)
TIGHT: Way = (
    "STI-24 (g)",
    "The advantage over other pipelines is larger under tight deadlines than under loose ones",
    f"+{published.NARROW_GAIN:g} points below 200 ms (Odroid), less beyond",
)


def accuracy_claims(study: Study | None) -> Records:
    """Each claim on each device that the study plans for; of no study, that one is needed."""
    every = [*BASELINES.values(), IN_MEMORY, DEADLINES, BUFFER, TIGHT]
    if study is None or not study.grid:
        return [unasked(way, study, "grid") for way in every]
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
        verdicts = [ways.at_least(gain, slack) for gain in (self.gain, self.waiting_gain) if gain is not None]
        return next((verdict for verdict in (FAILS, UNCLEAR, HOLDS) if verdict in verdicts), UNKNOWN)

    def describe(self) -> str:
        """Return both gains in points, with the numbers of deadlines."""
        return "; ".join(
            f"{name} {'never in time together' if gain is None else ways.told(gain)}, {len(kept)} of {self.deadlines} deadlines"
            for name, gain, kept in (
                ("in time:", self.gain, self.kept),
                ("allowed to wait until the deadline:", self.waiting_gain, self.waiting_kept),
            )
        )


def _compared(study: Study, device: StudiedDevice, method: str) -> _Comparison:
    published_plan, waiting_plan, other = (ways.of(study, device, name) for name in ("STI", "STI, waiting", method))
    kept, waiting_kept = ways.in_time(published_plan, other), ways.in_time(waiting_plan, other)
    return _Comparison(
        len(ways.common(published_plan, other)),
        kept,
        ways.gain(study, published_plan, other, kept),
        waiting_kept,
        ways.gain(study, waiting_plan, other, waiting_kept),
        ways.gain(study, published_plan, other),
    )


def _baseline(study: Study, device: StudiedDevice, method: str, way: Way) -> dict[str, Any]:
    own, other = ways.of(study, device, "STI"), ways.of(study, device, method)
    compared = _compared(study, device, method)
    if compared.gain_all_deadlines is None:
        return told(study, way, "", UNKNOWN, "nothing was run under a common deadline", device.name)
    worse = [share for share in compared.kept if ways.difference(own, other, share) < 0.0]
    why = f"less accurate at {ways.percent(worse)} of the whole computation; " if worse else ""
    why += f"late answers included {ways.told(compared.gain_all_deadlines)}, {100 * ways.accuracy(own):.1f} against "
    why += f"{100 * ways.accuracy(other):.1f} %, over {compared.deadlines} deadlines, {_misses(own, other)}"
    return told(study, way, compared.describe(), compared.verdict(), why, device.name)


def _in_memory(study: Study, device: StudiedDevice) -> dict[str, Any]:
    own, other = ways.of(study, device, "STI"), ways.of(study, device, "PreloadModel-32")
    compared = _compared(study, device, "PreloadModel-32")
    if compared.gain_all_deadlines is None:
        return told(study, IN_MEMORY, "", UNKNOWN, "nothing was run under a common deadline", device.name)
    equal = [share for share in compared.kept if own[share].shards == other[share].shards]
    why = f"same operations under {len(equal)} of these {len(compared.kept)} deadlines"
    at_equal = ways.gain(study, own, other, equal) if len(equal) < len(compared.kept) else None
    why += f", there {ways.told(at_equal)}" if at_equal is not None else ""
    why += f"; late answers included {ways.told(compared.gain_all_deadlines)} over {compared.deadlines} deadlines"
    return told(study, IN_MEMORY, compared.describe(), compared.verdict(WITHIN), why, device.name)


def _deadlines(study: Study, device: StudiedDevice) -> dict[str, Any]:
    own, held = ways.of(study, device, "STI"), ways.of(study, device, "PreloadModel-32")
    can = [share for share in own if share not in ways.missed(held)]
    late = [share for share in ways.missed(own) if share in can]
    others = "; ".join(
        f"{method} misses {len(ways.missed(way))} of {len(way)}"
        for method in BASELINES
        if (way := ways.of(study, device, method))
    )
    ours = f"{len(can) - len(late)} of {len(can)} kept"
    why = f"by the costs it was planned with; late at {ways.percent(late)}; {others}" if late else f"by the costs; {others}"
    return told(study, DEADLINES, ours, not late, why, device.name)


def _buffer(study: Study, device: StudiedDevice) -> dict[str, Any]:
    own, without = ways.of(study, device, "STI"), ways.of(study, device, "STI", 0.0)
    found = ways.gain(study, own, without)
    if found is None:
        return told(study, BUFFER, "", UNKNOWN, "not measured without a buffer", device.name)
    most = max((ways.difference(own, without, share), share) for share in ways.common(own, without))
    late = f"without it {len(ways.missed(without))} of {len(without)} deadlines are missed, with it {len(ways.missed(own))}"
    why = f"at most {ways.POINTS * most[0]:+.2f} points, at {ways.percent([most[1]])} of the whole computation; {late}"
    verdict = HOLDS if found.low > 0.0 else FAILS if found.high < 0.0 else UNCLEAR
    return told(study, BUFFER, ways.told(found), verdict, why, device.name)


def _tight(study: Study, device: StudiedDevice) -> dict[str, Any]:
    """Tight: fewer layers fit than the paper names for the board, or the lower half of the deadlines."""
    own = ways.of(study, device, "STI")
    shares = list(own)
    tight, loose = shares[: len(shares) // 2], shares[len(shares) // 2 :]
    said, gaps = [], []
    for method in ("StdPL-2", "StdPL-6"):
        other = ways.of(study, device, method)
        first, second = (ways.gain(study, own, other, each) for each in (tight, loose))
        if first is not None and second is not None:
            gaps.append((first, second))
            said.append(f"{method}: {ways.told(first)} up to {ways.percent(tight[-1:])}, {ways.told(second)} beyond")
    if not gaps:
        return told(study, TIGHT, "", UNKNOWN, "nothing was run under a common deadline", device.name)
    return told(study, TIGHT, "; ".join(said), _larger(gaps), "halves of the deadlines", device.name)


def _larger(gaps: Sequence[tuple[PairedDifference, PairedDifference]]) -> str:
    """By intervals that do not touch; else by nothing."""
    if all(first.low > second.high for first, second in gaps):
        return HOLDS
    return FAILS if any(first.high < second.low for first, second in gaps) else UNCLEAR


def _misses(own: ways.ByDeadline, other: ways.ByDeadline) -> str:
    return f"of which the plan misses {len(ways.missed(own))} and the other {len(ways.missed(other))}"
