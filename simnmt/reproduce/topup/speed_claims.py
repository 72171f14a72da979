"""What each device says of the paper's speeds: figures 6 and 7 by their text (FNI-16)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from simnmt.reproduce.topup import published
from simnmt.reproduce.topup.devices import Decoder
from simnmt.reproduce.topup.published import SETS
from simnmt.reproduce.topup.speeds import Gain, RefillLimit, Speed, gain
from simnmt.reproduce.topup.undecided import Cell, passed_over, undecided
from simnmt.reproduce.verdicts import HOLDS, UNKNOWN, Records, record_of, together

Speeds = Mapping[tuple[str, int, str, str], Speed]
"""By device, beam, set and strategy."""

HARMLESS = -0.01
"""A loss within which top-up with maxi-batching does no harm."""
AS_FAST = -0.03
"""A loss within which top-up alone is as fast as maxi-batching."""


def speed_claims(
    decoders: Sequence[Decoder], speeds: Speeds, limits: Iterable[RefillLimit], sentences: int | None = None
) -> Records:
    """One record per claim and device. What was not measured, or not for long enough, is told of and decides nothing.

    `sentences`: that were timed of a set at most; None: all.
    """
    by_key = {(each.device, each.beam, each.test_set, each.strategy): each for each in limits}
    records = []
    for device in dict.fromkeys(each.device for each in decoders):
        own = [each for each in decoders if each.device == device]
        records += _of_device(_Device(own, speeds, by_key, sentences))
    return records


class _Device:
    """One device's numbers, and how records of them are made."""

    def __init__(
        self,
        decoders: Sequence[Decoder],
        speeds: Speeds,
        limits: Mapping[tuple[str, int, str, str], RefillLimit],
        sentences: int | None,
    ) -> None:
        self.decoders, self._speeds, self._limits, self.sentences = decoders, speeds, limits, sentences
        self.name = decoders[0].device

    def gain(self, cell: Cell, ours: str, theirs: str) -> Gain:
        """Of one strategy over another."""
        decoder, test_set = cell
        speeds = (self._speeds[decoder.device, decoder.beam, test_set, strategy] for strategy in (ours, theirs))
        return gain(*speeds)

    def limit(self, cell: Cell, strategy: str) -> RefillLimit:
        """What a refill may cost under a strategy."""
        return self._limits[cell[0].device, cell[0].beam, cell[1], strategy]

    def record(
        self,
        letter: str,
        claim: str,
        theirs: str,
        test_sets: Sequence[str],
        holds: Callable[[Cell], Sequence[bool]],
        told: Callable[[Cell], str],
        *,
        refills: bool = True,
    ) -> dict[str, Any]:
        """`holds`, by seed, in every cell of which enough was measured."""
        reasons = {
            (decoder, key): undecided((decoder, key), self.sentences, refills=refills)
            for key in test_sets
            for decoder in self.decoders
        }
        cells = {cell: holds(cell) for cell, reason in reasons.items() if not reason}
        verdict = together(cells.values())
        failing = [cell for cell, seeds in cells.items() if not any(seeds)]
        unclear = [cell for cell, seeds in cells.items() if any(seeds) and not all(seeds)]
        why = [
            *([f"not with {_listed(failing)}"] if failing else []),
            *([f"not in every seed with {_listed(unclear)}"] if unclear else []),
            *(["in every case looked at"] if verdict == HOLDS else []),
            *(["nothing that could decide it was measured"] if verdict == UNKNOWN else []),
            *passed_over((reason, f"{_name(cell)} {told(cell)}") for cell, reason in reasons.items() if reason),
        ]
        ours = "; ".join(f"{_name(cell)} {told(cell)}" for cell in cells)
        return self.finished(letter, claim, theirs, ours, verdict, "; ".join(why))

    def finished(self, letter: str, claim: str, theirs: str, ours: str, verdict: str, why: str) -> dict[str, Any]:
        """A record of this device."""
        decoder = self.decoders[0]
        return record_of(letter, claim, theirs, ours, verdict, why, device=self.name, basis=decoder.kind)


def _of_device(device: _Device) -> Records:
    both, europarl, subtitles = tuple(SETS), ("europarl",), ("opensubtitles",)

    def against(ours: str, theirs: str) -> Callable[[Cell], str]:
        return lambda cell: device.gain(cell, ours, theirs).percent()

    def above(ours: str, theirs: str, least: float = 0.0) -> Callable[[Cell], list[bool]]:
        return lambda cell: [each > least for each in device.gain(cell, ours, theirs).by_seed]

    def shrinks(cell: Cell) -> list[bool]:
        alone, beside = device.gain(cell, "half-empty", "mini"), device.gain(cell, "maxi half-empty", "maxi")
        return [b < a for a, b in zip(alone.by_seed, beside.by_seed, strict=True)]

    def shrunk(cell: Cell) -> str:
        alone, beside = device.gain(cell, "half-empty", "mini"), device.gain(cell, "maxi half-empty", "maxi")
        return f"{100 * alone.mean:+.1f} % alone, {100 * beside.mean:+.1f} % with maxi"

    def allowed(cell: Cell) -> str:
        return f"{_limit(device.limit(cell, 'half-empty'))} alone, {_limit(device.limit(cell, 'maxi half-empty'))} with maxi"

    def decides(cell: Cell) -> list[bool]:
        alone, beside = (device.limit(cell, each).by_seed_s for each in ("half-empty", "maxi half-empty"))
        return [max(b, 0.0) < a for a, b in zip(alone, beside, strict=True)] if alone and beside else [False]

    return [
        device.record(
            "FNI-16 (a)",
            "Topped up when half empty, decoding is faster than with mini-batching",
            published.ALONE,
            both,
            above("half-empty", "mini"),
            against("half-empty", "mini"),
            refills=False,
        ),
        device.record(
            "FNI-16 (b)",
            "Its advantage shrinks where sentences are sorted first (maxi-batching)",
            "limited gains together",
            both,
            shrinks,
            shrunk,
            refills=False,
        ),
        device.record(
            "FNI-16 (c)",
            "On Europarl, topping up with maxi-batching is slower than maxi-batching",
            published.WITH_MAXI["europarl"],
            europarl,
            above("maxi", "maxi half-empty"),
            against("maxi half-empty", "maxi"),
        ),
        device.record(
            "FNI-16 (d)",
            "From some cost of a refill on it is slower with maxi-batching, while alone it still pays",
            "slower by the overhead of the algorithm",
            both,
            decides,
            allowed,
        ),
        device.record(
            "FNI-16 (e)",
            "On OpenSubtitles, topping up with maxi-batching does no harm (1 % allowed)",
            published.WITH_MAXI["opensubtitles"],
            subtitles,
            above("maxi half-empty", "maxi", HARMLESS),
            against("maxi half-empty", "maxi"),
        ),
        device.record(
            "FNI-16 (f)",
            "On Europarl, topping up alone is at least as fast as maxi-batching (3 % allowed)",
            published.AS_MAXI,
            europarl,
            above("half-empty", "maxi", AS_FAST),
            against("half-empty", "maxi"),
        ),
        _small_beams(device),
        device.record(
            "FNI-10",
            "Topping up when half empty is faster than at once",
            published.HALF_EMPTY,
            both,
            above("half-empty", "immediate"),
            against("half-empty", "immediate"),
        ),
    ]


def _small_beams(device: _Device) -> dict[str, Any]:
    claim = "On Europarl, topping up alone is faster than maxi-batching with a small beam, and by more than with a large one"
    theirs = "equal to maxi-batching, slightly faster with small beams"
    cells = [(each, "europarl") for each in sorted(device.decoders, key=lambda each: each.beam)]
    reasons = {cell: undecided(cell, device.sentences) for cell in cells}
    sound = [cell for cell in cells if not reasons[cell]]
    if len(sound) < 2:
        why = ["needs two beams of which enough was measured"]
        why += passed_over(
            (reason, f"{_name(cell)} {device.gain(cell, 'half-empty', 'maxi').percent()}")
            for cell, reason in reasons.items()
            if reason
        )
        return device.finished("FNI-16 (g)", claim, theirs, "", UNKNOWN, "; ".join(why))
    pair = sound[0], sound[-1]
    small, large = (device.gain(cell, "half-empty", "maxi") for cell in pair)
    faster, more = [a > 0.0 for a in small.by_seed], [a > b for a, b in zip(small.by_seed, large.by_seed, strict=True)]
    verdict = together([faster, more])
    wrong = [words for words, seeds in (("no faster", faster), ("not by more", more)) if not all(seeds)]
    why = [f"{' and '.join(wrong)} with the small beam in every seed" if wrong else "in every seed"]
    if pair[0][0].batch != pair[1][0].batch:
        why.append(f"batches of {pair[0][0].batch} and of {pair[1][0].batch}")
    ours = "; ".join(f"{_name(cell)} {each.percent()}" for cell, each in zip(pair, (small, large), strict=True))
    return device.finished("FNI-16 (g)", claim, theirs, ours, verdict, "; ".join(why))


def _name(cell: Cell) -> str:
    return f"{SETS[cell[1]].name} beam {cell[0].beam}"


def _listed(cells: Iterable[Cell]) -> str:
    return ", ".join(_name(cell) for cell in cells)


def _limit(found: RefillLimit) -> str:
    if found.limit_s is None or found.limit_steps is None:
        return "at no cost of a refill"
    return f"{1e3 * found.limit_s:,.2f} ms ({found.limit_steps:.2f} steps) more a refill"
