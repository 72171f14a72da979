"""What each device says of the paper's speeds: figures 6 and 7 by their text (FNI-16), and the p95 online."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from simnmt.reproduce.topup import published
from simnmt.reproduce.topup.claims import Records, record_of
from simnmt.reproduce.topup.devices import Decoder
from simnmt.reproduce.topup.online import Holding
from simnmt.reproduce.topup.published import SETS
from simnmt.reproduce.topup.speeds import Gain, RefillLimit, Speed, gain
from simnmt.results.statistics import over_replications

Speeds = Mapping[tuple[str, int, str, str], Speed]
"""By device, beam, set and strategy."""
Cell = tuple[Decoder, str]
"""A device with a beam, and a set."""

HARMLESS = -0.01
"""A loss within which top-up with maxi-batching does no harm."""
AS_FAST = -0.03
"""A loss within which top-up alone is as fast as maxi-batching."""


def speed_claims(decoders: Sequence[Decoder], speeds: Speeds, limits: Iterable[RefillLimit]) -> Records:
    """One record per claim and device. A beam that was not measured is told of and decides nothing."""
    by_key = {(each.device, each.beam, each.test_set, each.strategy): each for each in limits}
    records = []
    for device in dict.fromkeys(each.device for each in decoders):
        own = [each for each in decoders if each.device == device]
        records += _of_device(_Device(own, speeds, by_key))
    return records


class _Device:
    """One device's numbers, and how records of them are made."""

    def __init__(
        self, decoders: Sequence[Decoder], speeds: Speeds, limits: Mapping[tuple[str, int, str, str], RefillLimit]
    ) -> None:
        self.decoders, self._speeds, self._limits = decoders, speeds, limits
        self.name = decoders[0].device

    def gain(self, cell: Cell, ours: str, theirs: str) -> Gain:
        """Of one strategy over another."""
        decoder, test_set = cell
        speeds = (self._speeds[decoder.device, decoder.beam, test_set, strategy] for strategy in (ours, theirs))
        return gain(*speeds)

    def limit(self, cell: Cell, strategy: str) -> RefillLimit:
        """What a refill may cost under a strategy."""
        return self._limits[cell[0].device, cell[0].beam, cell[1], strategy]

    def cells(self, test_sets: Iterable[str], extrapolated: bool = False) -> list[Cell]:
        """Each beam with each set, of which enough was measured, or else of which it was not."""
        return [(each, key) for key in test_sets for each in self.decoders if each.extrapolates(key) == extrapolated]

    def record(
        self,
        letter: str,
        claim: str,
        theirs: str,
        test_sets: Sequence[str],
        holds: Callable[[Cell], bool],
        told: Callable[[Cell], str],
    ) -> dict[str, Any]:
        """`holds` in every cell of which enough was measured."""
        cells, others = self.cells(test_sets), self.cells(test_sets, extrapolated=True)
        wrong = [cell for cell in cells if not holds(cell)]
        reasons = [
            f"not with {_listed(wrong)}" if wrong else "in every case looked at" if cells else "nothing of it was measured"
        ]
        if others:
            reasons.append("extrapolated, and no part of the verdict: " + "; ".join(f"{_name(c)} {told(c)}" for c in others))
        ours = "; ".join(f"{_name(cell)} {told(cell)}" for cell in cells)
        return self.finished(letter, claim, theirs, ours, (not wrong) if cells else None, "; ".join(reasons))

    def finished(self, letter: str, claim: str, theirs: str, ours: str, holds: bool | None, why: str) -> dict[str, Any]:
        """A record of this device."""
        decoder = self.decoders[0]
        return record_of(letter, claim, theirs, ours, holds, why, device=self.name, basis=decoder.kind)


def _of_device(device: _Device) -> Records:
    both, europarl, subtitles = tuple(SETS), ("europarl",), ("opensubtitles",)

    def against(ours: str, theirs: str) -> Callable[[Cell], str]:
        return lambda cell: device.gain(cell, ours, theirs).percent()

    def mean(cell: Cell, ours: str, theirs: str) -> float:
        return device.gain(cell, ours, theirs).mean

    def shrunk(cell: Cell) -> str:
        alone, beside = device.gain(cell, "half-empty", "mini"), device.gain(cell, "maxi half-empty", "maxi")
        return f"{100 * alone.mean:+.1f} % alone, {100 * beside.mean:+.1f} % with maxi"

    def allowed(cell: Cell) -> str:
        return f"{_limit(device.limit(cell, 'half-empty'))} alone, {_limit(device.limit(cell, 'maxi half-empty'))} with maxi"

    def decides(cell: Cell) -> bool:
        alone, beside = (device.limit(cell, each).limit_s for each in ("half-empty", "maxi half-empty"))
        return alone is not None and beside is not None and max(beside, 0.0) < alone

    return [
        device.record(
            "FNI-16 (a)",
            "Topped up when half empty, decoding is faster than with mini-batching",
            published.ALONE,
            both,
            lambda cell: mean(cell, "half-empty", "mini") > 0.0,
            against("half-empty", "mini"),
        ),
        device.record(
            "FNI-16 (b)",
            "Its advantage shrinks where sentences are sorted first (maxi-batching)",
            "limited gains together",
            both,
            lambda cell: mean(cell, "maxi half-empty", "maxi") < mean(cell, "half-empty", "mini"),
            shrunk,
        ),
        device.record(
            "FNI-16 (c)",
            "On Europarl, topping up with maxi-batching is slower than maxi-batching",
            published.WITH_MAXI["europarl"],
            europarl,
            lambda cell: mean(cell, "maxi half-empty", "maxi") < 0.0,
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
            lambda cell: mean(cell, "maxi half-empty", "maxi") >= HARMLESS,
            against("maxi half-empty", "maxi"),
        ),
        device.record(
            "FNI-16 (f)",
            "On Europarl, topping up alone is as fast as maxi-batching (3 % allowed)",
            published.AS_MAXI,
            europarl,
            lambda cell: mean(cell, "half-empty", "maxi") >= AS_FAST,
            against("half-empty", "maxi"),
        ),
        _small_beams(device),
        device.record(
            "FNI-10",
            "Topping up when half empty is faster than at once",
            published.HALF_EMPTY,
            both,
            lambda cell: mean(cell, "half-empty", "immediate") > 0.0,
            against("half-empty", "immediate"),
        ),
    ]


def _small_beams(device: _Device) -> dict[str, Any]:
    claim = "Topping up alone gains more over mini-batching with a small beam"
    theirs = "slightly faster than maxi-batching with small beams"
    sound = sorted((each for each in device.decoders if not each.guessed), key=lambda each: each.beam)
    if len(sound) < 2:
        return device.finished("FNI-16 (g)", claim, theirs, "", None, "needs profiles of two beams")
    pair = (sound[0], sound[-1])
    gains = {
        key: [device.gain((decoder, key), "half-empty", "mini") for decoder in pair]
        for key in SETS
        if not any(each.extrapolates(key) for each in pair)
    }
    if not gains:
        return device.finished("FNI-16 (g)", claim, theirs, "", None, "needs steps that were measured up to longer outputs")
    ours = "; ".join(
        f"{SETS[key].name} {small.percent()} with beam {sound[0].beam}, {large.percent()} with beam {sound[-1].beam}"
        for key, (small, large) in gains.items()
    )
    wrong = [SETS[key].name for key, (small, large) in gains.items() if small.mean <= large.mean]
    why = f"not on {', '.join(wrong)}" if wrong else f"on {', '.join(SETS[key].name for key in gains)}"
    if sound[0].batch != sound[-1].batch:
        why += f"; batches of {sound[0].batch} and of {sound[-1].batch}"
    return device.finished("FNI-16 (g)", claim, theirs, ours, not wrong, why)


def online_claims(decoders: Sequence[Decoder], held: Iterable[Holding]) -> Records:
    """Whether top-up batching carries more load than maxi-batching within a p95, per device, by intervals over seeds."""
    by_key = {(each.device, each.test_set, each.over_solo, each.strategy): each for each in held}
    records = []
    for device in dict.fromkeys(device for device, *_ in by_key):
        decoder = min((each for each in decoders if each.device == device), key=lambda each: each.beam)
        told: dict[bool, list[str]] = {False: [], True: []}
        clear = []
        for _, test_set, over_solo in dict.fromkeys(key[:3] for key in by_key if key[0] == device):
            ours, theirs = (by_key[device, test_set, over_solo, each] for each in ("half-empty", "maxi"))
            more = over_replications([a - b for a, b in zip(ours.up_to, theirs.up_to, strict=True)])
            sure = more.mean > 0.0 if more.low is None else more.low > 0.0
            rates = f"{ours.estimate.mean:.2f} against {theirs.estimate.mean:.2f} a second"
            ending = "" if sure else ", not distinguishable or less"
            guess = decoder.extrapolates(test_set)
            told[guess].append(f"{SETS[test_set].name}, {1e3 * ours.p95_s:,.0f} ms: {rates}{ending}")
            if not guess:
                clear.append(sure)
        reasons = ["in every case by more than seeds differ" if all(clear) else "not in every case by more than seeds differ"]
        if not clear:
            reasons = ["nothing of it was measured"]
        if told[True]:
            reasons.append("extrapolated, and no part of the verdict: " + "; ".join(told[True]))
        records.append(
            record_of(
                "FNI-09 (online)",
                "Sentences that arrive one by one: within a p95, topping up carries more load than maxi-batching",
                "maxi-batching can delay an online answer unacceptably",
                "; ".join(told[False]),
                all(clear) if clear else None,
                "; ".join(reasons),
                device=device,
                basis=decoder.kind,
            )
        )
    return records


def _name(cell: Cell) -> str:
    return f"{SETS[cell[1]].name} beam {cell[0].beam}"


def _listed(cells: Iterable[Cell]) -> str:
    return ", ".join(_name(cell) for cell in cells)


def _limit(found: RefillLimit) -> str:
    if found.limit_s is None or found.limit_steps is None:
        return "at no cost of a refill"
    return f"{1e3 * found.limit_s:,.2f} ms ({found.limit_steps:.2f} steps) more a refill"
