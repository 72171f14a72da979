"""The paper's claims on batching: occupancies, speeds on each device, and arriving sentences (FNI-09, 12, 14, 16)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from simnmt.papers.fni import topup_published
from simnmt.papers.fni.devices import Cell, Decoder, format_reasons, undecided_reason
from simnmt.papers.fni.offline import Gain, RefillLimit, Speed, StepOccupancy, gain
from simnmt.papers.fni.online import LoadLimit
from simnmt.papers.fni.topup_published import BATCH, NEAR_PUBLISHED, NEAR_STATED, SETS
from simnmt.papers.kit.claim import FAILS, HOLDS, UNCLEAR, UNKNOWN, Records, claim_record, verdict_over_cases, worst_verdict
from simnmt.results.statistics import over_replications

Occupancies = Mapping[tuple[str, str], StepOccupancy]
"""By set and strategy."""

NEAR_STEPS = 0.03
"""By how much of them numbers of steps, stated as `about`, may differ."""
NEAR_MOMENT = 0.02
"""FNI-14's accept."""
SEEN = {"full_share": f"steps with a full batch of {BATCH}", "below_8_share": "steps with fewer than 8 active"}


def occupancy_claims(occupancies: Occupancies) -> Records:
    """Return the records of FNI-12, which need no device, only synthetic lengths."""
    printed = [statistic for statistic in topup_published.OCCUPANCIES if statistic.published is not None]
    records = [_printed(letter, statistic, occupancies) for letter, statistic in zip("abc", printed, strict=True)]
    return [*records, _figure_two(occupancies), _hardly_few(occupancies), _as_many_steps(occupancies)]


def moment_claim(moments: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    """Return the record of FNI-14. `moments`: by set, mean and standard deviation of source lengths, over seeds."""
    off = {
        paper_set.name: max(abs(mean / paper_set.mean - 1.0), abs(sd / paper_set.sd - 1.0))
        for paper_set in topup_published.TABLE_ONE
        for mean, sd in [moments[paper_set.key]]
    }
    worst = max(off, key=lambda name: off[name])
    return claim_record(
        "FNI-14",
        "The sentences have the mean length and the spread of Table 1, to 2 %",
        "; ".join(f"{paper_set.name} {paper_set.mean} and {paper_set.sd}" for paper_set in topup_published.TABLE_ONE),
        "; ".join(f"{SETS[key].name} {mean:.2f} and {sd:.2f}" for key, (mean, sd) in moments.items()),
        off[worst] <= NEAR_MOMENT,
        f"at most {100 * off[worst]:.1f} % off, on {worst}; drawn log-normal, the paper's sentences are not at hand",
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _printed(letter: str, statistic: topup_published.Occupancy, occupancies: Occupancies) -> dict[str, Any]:
    mean, least, greatest = occupancies[statistic.test_set, statistic.strategy].of(statistic.measure)
    assert statistic.published is not None
    from_stated, from_published = abs(mean - statistic.stated), abs(mean - statistic.published)
    return claim_record(
        f"FNI-12 ({letter})",
        f"{SETS[statistic.test_set].name}, {statistic.strategy}-batching: {SEEN[statistic.measure]}, within 4 points "
        f"({statistic.where})",
        f"{100 * statistic.published:.0f} %",
        f"{_percent(mean)} ({_percent(least)} to {_percent(greatest)} over seeds)",
        from_published <= NEAR_PUBLISHED and from_stated <= NEAR_STATED,
        f"{100 * from_published:.1f} points from the paper, {100 * from_stated:.1f} from the {_percent(statistic.stated)} that "
        "simulation of such lengths is known to give, of which 2 are allowed",
    )


def _figure_two(occupancies: Occupancies) -> dict[str, Any]:
    theirs = topup_published.OCCUPANCIES[0].published
    assert theirs is not None
    full = {strategy: occupancies["europarl", strategy].full_share[0] for strategy in ("mini", "maxi")}
    (stated,) = (
        statistic.stated
        for statistic in topup_published.OCCUPANCIES
        if (statistic.strategy, statistic.measure) == ("mini", "full_share")
    )
    off = abs(full["mini"] - stated)
    nearest = min(full, key=lambda strategy: abs(full[strategy] - theirs))
    return claim_record(
        "FNI-12 (d)",
        f"Figure 2, unlabelled, shows maxi-batching: mini-batching fills {_percent(stated)} of the steps (to 2 points)",
        "full in 42 % of the steps, batching not named",
        f"full with maxi-batching {_percent(full['maxi'])}, with mini-batching {_percent(full['mini'])}",
        nearest == "maxi" and abs(full["mini"] - theirs) > NEAR_PUBLISHED and off <= NEAR_STATED,
        f"{nearest}-batching comes nearest; mini-batching is {100 * off:.1f} points from what is stated",
    )


def _hardly_few(occupancies: Occupancies) -> dict[str, Any]:
    topped_up = {key: occupancies[key, "half-empty"] for key in SETS}
    means = {
        statistic.test_set: statistic.stated for statistic in topup_published.OCCUPANCIES if statistic.measure == "mean_active"
    }
    few = max(occupancy.below_8_share[0] for occupancy in topped_up.values())
    off = max(abs(occupancy.mean_active[0] - means[key]) for key, occupancy in topped_up.items())
    return claim_record(
        "FNI-12 (e)",
        "Topped up when half empty, fewer than 8 are active in less than 1 % of the steps, and 98 and 100 on average",
        "",
        "; ".join(
            f"{SETS[key].name} {_percent(occupancy.below_8_share[0])}, mean {occupancy.mean_active[0]:.1f}"
            for key, occupancy in topped_up.items()
        ),
        few < 0.01 and off <= 100 * NEAR_STATED,
        "the steps that remain with few are the last ones, when nothing is left to refill with",
    )


def _as_many_steps(occupancies: Occupancies) -> dict[str, Any]:
    step_statistics = [statistic for statistic in topup_published.OCCUPANCIES if statistic.measure == "steps"]
    steps_by_statistic = {
        statistic: occupancies[statistic.test_set, statistic.strategy].steps[0] for statistic in step_statistics
    }
    off = {statistic: steps / statistic.stated - 1.0 for statistic, steps in steps_by_statistic.items()}
    worst = max(off, key=lambda statistic: abs(off[statistic]))
    return claim_record(
        "FNI-12 (f)",
        "Decode steps for a whole set, within 3 % of what simulation is known to give",
        "",
        "; ".join(
            f"{SETS[statistic.test_set].name} {statistic.strategy} {steps:,.0f}"
            for statistic, steps in steps_by_statistic.items()
        ),
        abs(off[worst]) <= NEAR_STEPS,
        f"furthest off: {SETS[worst.test_set].name}, {worst.strategy}, {100 * off[worst]:+.1f} %",
    )


Speeds = Mapping[tuple[str, int, str, str], Speed]
"""By device, beam, set and strategy."""

HARMLESS = -0.01
"""A loss within which top-up with maxi-batching does no harm."""
AS_FAST = -0.03
"""A loss within which top-up alone is as fast as maxi-batching."""


def speed_claims(
    decoders: Sequence[Decoder], speeds: Speeds, limits: Iterable[RefillLimit], sentences: int | None = None
) -> Records:
    """Return one record per claim and device. Cases not measured, or too short, are listed and decide nothing.

    `sentences`: most sentences timed per set; None: all.
    """
    by_key = {
        (refill_limit.device, refill_limit.beam, refill_limit.test_set, refill_limit.strategy): refill_limit
        for refill_limit in limits
    }
    records = []
    for device in dict.fromkeys(decoder.device for decoder in decoders):
        device_decoders = [decoder for decoder in decoders if decoder.device == device]
        records += _of_device(_Device(device_decoders, speeds, by_key, sentences))
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
        """Return the gain of one strategy over another."""
        decoder, test_set = cell
        speeds = (self._speeds[decoder.device, decoder.beam, test_set, strategy] for strategy in (ours, theirs))
        return gain(*speeds)

    def limit(self, cell: Cell, strategy: str) -> RefillLimit:
        """Return the limit of what a refill may cost under a strategy."""
        return self._limits[cell[0].device, cell[0].beam, cell[1], strategy]

    def record(
        self,
        letter: str,
        claim: str,
        theirs: str,
        test_sets: Sequence[str],
        holds: Callable[[Cell], Sequence[bool]],
        describe: Callable[[Cell], str],
        *,
        refills: bool = True,
    ) -> dict[str, Any]:
        """Return a record. `holds`: the outcome by seed in each cell with enough measurements; `describe`: text of a cell."""
        reasons = {
            (decoder, key): undecided_reason((decoder, key), self.sentences, refills=refills)
            for key in test_sets
            for decoder in self.decoders
        }
        cells = {cell: holds(cell) for cell, reason in reasons.items() if not reason}
        verdict = verdict_over_cases(cells.values())
        failing = [cell for cell, seeds in cells.items() if not any(seeds)]
        unclear = [cell for cell, seeds in cells.items() if any(seeds) and not all(seeds)]
        why = [
            *([f"not with {_listed(failing)}"] if failing else []),
            *([f"not in every seed with {_listed(unclear)}"] if unclear else []),
            *(["in every case looked at"] if verdict == HOLDS else []),
            *(["nothing that could decide it was measured"] if verdict == UNKNOWN else []),
            *format_reasons((reason, f"{_name(cell)} {describe(cell)}") for cell, reason in reasons.items() if reason),
        ]
        ours = "; ".join(f"{_name(cell)} {describe(cell)}" for cell in cells)
        return self.finished(letter, claim, theirs, ours, verdict, "; ".join(why))

    def finished(self, letter: str, claim: str, theirs: str, ours: str, verdict: str, why: str) -> dict[str, Any]:
        """A record of this device."""
        decoder = self.decoders[0]
        return claim_record(letter, claim, theirs, ours, verdict, why, device=self.name, basis=decoder.kind)


def _of_device(device: _Device) -> Records:
    both, europarl, subtitles = tuple(SETS), ("europarl",), ("opensubtitles",)

    def against(ours: str, theirs: str) -> Callable[[Cell], str]:
        return lambda cell: device.gain(cell, ours, theirs).percent()

    def above(ours: str, theirs: str, least: float = 0.0) -> Callable[[Cell], list[bool]]:
        return lambda cell: [seed_gain > least for seed_gain in device.gain(cell, ours, theirs).by_seed]

    def shrinks(cell: Cell) -> list[bool]:
        alone, beside = device.gain(cell, "half-empty", "mini"), device.gain(cell, "maxi half-empty", "maxi")
        return [b < a for a, b in zip(alone.by_seed, beside.by_seed, strict=True)]

    def shrunk(cell: Cell) -> str:
        alone, beside = device.gain(cell, "half-empty", "mini"), device.gain(cell, "maxi half-empty", "maxi")
        return f"{100 * alone.mean:+.1f} % alone, {100 * beside.mean:+.1f} % with maxi"

    def allowed(cell: Cell) -> str:
        return f"{_limit(device.limit(cell, 'half-empty'))} alone, {_limit(device.limit(cell, 'maxi half-empty'))} with maxi"

    def decides(cell: Cell) -> list[bool]:
        alone, beside = (device.limit(cell, strategy).by_seed_s for strategy in ("half-empty", "maxi half-empty"))
        return [max(b, 0.0) < a for a, b in zip(alone, beside, strict=True)] if alone and beside else [False]

    return [
        device.record(
            "FNI-16 (a)",
            "Topped up when half empty, decoding is faster than with mini-batching",
            topup_published.ALONE,
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
            topup_published.WITH_MAXI["europarl"],
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
            topup_published.WITH_MAXI["opensubtitles"],
            subtitles,
            above("maxi half-empty", "maxi", HARMLESS),
            against("maxi half-empty", "maxi"),
        ),
        device.record(
            "FNI-16 (f)",
            "On Europarl, topping up alone is at least as fast as maxi-batching (3 % allowed)",
            topup_published.AS_MAXI,
            europarl,
            above("half-empty", "maxi", AS_FAST),
            against("half-empty", "maxi"),
        ),
        _small_beams(device),
        device.record(
            "FNI-10",
            "Topping up when half empty is faster than at once",
            topup_published.HALF_EMPTY,
            both,
            above("half-empty", "immediate"),
            against("half-empty", "immediate"),
        ),
    ]


def _small_beams(device: _Device) -> dict[str, Any]:
    claim = "On Europarl, topping up alone is faster than maxi-batching with a small beam, and by more than with a large one"
    theirs = "equal to maxi-batching, slightly faster with small beams"
    cells = [(decoder, "europarl") for decoder in sorted(device.decoders, key=lambda decoder: decoder.beam)]
    reasons = {cell: undecided_reason(cell, device.sentences) for cell in cells}
    sound = [cell for cell in cells if not reasons[cell]]
    if len(sound) < 2:
        why = ["needs two beams of which enough was measured"]
        why += format_reasons(
            (reason, f"{_name(cell)} {device.gain(cell, 'half-empty', 'maxi').percent()}")
            for cell, reason in reasons.items()
            if reason
        )
        return device.finished("FNI-16 (g)", claim, theirs, "", UNKNOWN, "; ".join(why))
    pair = sound[0], sound[-1]
    small, large = (device.gain(cell, "half-empty", "maxi") for cell in pair)
    faster, more = [a > 0.0 for a in small.by_seed], [a > b for a, b in zip(small.by_seed, large.by_seed, strict=True)]
    verdict = verdict_over_cases([faster, more])
    wrong = [words for words, seeds in (("no faster", faster), ("not by more", more)) if not all(seeds)]
    why = [f"{' and '.join(wrong)} with the small beam in every seed" if wrong else "in every seed"]
    if pair[0][0].batch != pair[1][0].batch:
        why.append(f"batches of {pair[0][0].batch} and of {pair[1][0].batch}")
    ours = "; ".join(f"{_name(cell)} {beam_gain.percent()}" for cell, beam_gain in zip(pair, (small, large), strict=True))
    return device.finished("FNI-16 (g)", claim, theirs, ours, verdict, "; ".join(why))


def _name(cell: Cell) -> str:
    return f"{SETS[cell[1]].name} beam {cell[0].beam}"


def _listed(cells: Iterable[Cell]) -> str:
    return ", ".join(_name(cell) for cell in cells)


def _limit(refill_limit: RefillLimit) -> str:
    if refill_limit.limit_s is None or refill_limit.limit_steps is None:
        return "at no cost of a refill"
    return f"{1e3 * refill_limit.limit_s:,.2f} ms ({refill_limit.limit_steps:.2f} steps) more a refill"


def online_claims(decoders: Sequence[Decoder], held: Iterable[LoadLimit], sentences: int | None = None) -> Records:
    """Return one record per device: half-empty top-up against maxi-batching, paired by seed.

    `sentences`: as in `speed_claims`.
    """
    by_key = {
        (load_limit.device, load_limit.test_set, load_limit.over_solo, load_limit.strategy): load_limit for load_limit in held
    }
    records = []
    for device in dict.fromkeys(device for device, *_ in by_key):
        decoder = min((candidate for candidate in decoders if candidate.device == device), key=lambda candidate: candidate.beam)
        comparisons, verdicts, passed = [], [], []
        for _, test_set, over_solo in dict.fromkeys(key[:3] for key in by_key if key[0] == device):
            ours, theirs = (by_key[device, test_set, over_solo, strategy] for strategy in ("half-empty", "maxi"))
            more = over_replications([a - b for a, b in zip(ours.up_to, theirs.up_to, strict=True)])
            verdict = UNCLEAR
            if more.low is not None and more.high is not None:
                verdict = HOLDS if more.low > 0.0 else FAILS if more.high < 0.0 else UNCLEAR
            rates = f"{ours.estimate.mean:.2f} against {theirs.estimate.mean:.2f} a second"
            ending = {HOLDS: "", FAILS: ", less", UNCLEAR: ", not distinguishable"}[verdict]
            words = f"{SETS[test_set].name}, {1e3 * ours.p95_s:,.0f} ms: {rates}{ending}"
            reason = undecided_reason((decoder, test_set), sentences)
            if reason:
                passed.append((reason, words))
            else:
                comparisons.append(words)
                verdicts.append(verdict)
        verdict = worst_verdict(verdicts)
        because = {
            HOLDS: "in every case by more than seeds differ",
            UNKNOWN: "nothing that could decide it was measured",
        }
        records.append(
            claim_record(
                "FNI-09 (online)",
                "Sentences that arrive one by one: within a p95, topping up carries more load than maxi-batching",
                "maxi-batching can delay an online answer unacceptably",
                "; ".join(comparisons),
                verdict,
                "; ".join([because.get(verdict, "not in every case by more than seeds differ"), *format_reasons(passed)]),
                device=device,
                basis=decoder.kind,
            )
        )
    return records
