"""The paper's claims on fusing, judged by its printed figures, by each device, and by a real decoder (FNI-11, 15, 16, 17)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from simnmt.papers.fni import published
from simnmt.papers.fni.cases import Case, case_name, device_claim, too_few_reason, undecided
from simnmt.papers.fni.devices import FusedDecoder
from simnmt.papers.fni.offline import Gain
from simnmt.papers.fni.published import BEAM, SETS, TABLES
from simnmt.papers.fni.stages import SetStages, Speeds, over_plain
from simnmt.papers.kit.claim import (
    FAILS,
    HOLDS,
    UNCLEAR,
    Claim,
    ClaimRecord,
    Judgement,
    end_to_end,
    holds_if,
    printed_claim,
    sign_verdict,
    verdict_over_cases,
    worst_verdict,
)
from simnmt.papers.kit.page import grouped
from simnmt.results.statistics import Estimate

if TYPE_CHECKING:
    from simnmt.calibrate.decoder_speeds import RealSpeed


def paper_claims() -> list[ClaimRecord]:
    """Return the records that follow from the printed figures alone, without a device."""
    figures = {figure.what: figure.value for figure in published.derived()}
    both = figures["opensubtitles: fused times topped up"]
    implied = {beam: figures[f"europarl, beam {beam}: gain if the output layer has 70 %"] for beam in (5, 1)}
    printed = [(row, row.printed_product_percent) for row in TABLES if row.printed_product_percent is not None]
    off = [(row, percent) for row, percent in printed if abs(percent - row.product_percent) > 0.06]
    return [
        printed_claim(
            "FNI-15 (d)",
            "The percentages of Tables 2 and 3 follow from their seconds",
            "; ".join(f"{percent:+.1f} %" for _, percent in off),
            "; ".join(f"{row.product_percent:+.2f} %, {case_name(row.beam, row.test_set)}" for row, _ in off),
            not off,
            "seven of the eight do; a decimal point slipped",
        ),
        printed_claim(
            "FNI-16 (m)",
            "Fusing and topping up together gain as much as the product of both gains (OpenSubtitles)",
            f"{100 * published.BOTH_GAIN['opensubtitles']:.0f} %",
            f"{both:.1f} % from 1.41 times 1.12",
            abs(both / 100.0 - published.BOTH_GAIN["opensubtitles"]) <= published.NEAR_PRODUCT,
            f"of {100 * published.FUSED_GAIN['opensubtitles']:.0f} % and {100 * published.TOPUP_GAIN:.0f} %, each 'up to'",
        ),
        printed_claim(
            "FNI-17 (d)",
            "The share of the output layer, Table 2 and the gain of translating Europarl agree",
            f"at most {100 * published.FUSED_GAIN['europarl']:.0f} % faster, "
            f"with nearly {100 * published.OUTPUT_SHARE:.0f} % of the time",
            "; ".join(f"{value:.1f} % at beam {beam}" for beam, value in implied.items()),
            max(implied.values()) <= 100 * published.FUSED_GAIN["europarl"] + 1.0,
            "Amdahl's prediction from the printed share and seconds exceeds the claimed gain",
        ),
    ]


def predicted_speed_up(real_speed: RealSpeed) -> float:
    """Return Amdahl's prediction of the speed-up of a real decoder by fusing (XP-07).

    Uses the output layer's share, measured while decoding, and the layer's speed-up, timed separately.
    """
    return end_to_end(real_speed.layer_share, real_speed.layer_s / real_speed.fused_layer_s)


def predicted_speed_up_of_fusing(real_speed: RealSpeed) -> float:
    """Return the same prediction with the product unchanged, as in the paper: the gain of fusing alone."""
    return end_to_end(real_speed.three_share, real_speed.three_s / real_speed.stages_s["fused"])


def real_claims(real_speeds: Sequence[RealSpeed]) -> list[ClaimRecord]:
    """Return the records of a real decoder on this box; undecided without one."""
    if not real_speeds:
        return [claim.unknown("give --measure to time a real decoder", basis="needs --measure") for claim in _REAL_CLAIMS]
    return [claim.record(real_speeds, device="this box, real decoder") for claim in _REAL_CLAIMS]


def _same_translations(real_speeds: Sequence[RealSpeed]) -> Judgement:
    return Judgement(
        "; ".join(f"{case_name(speed.beam, speed.test_set)}: {_sameness(speed)}" for speed in real_speeds),
        holds_if(not any(speed.disagreements for speed in real_speeds)),
        "of sentences that end by themselves; a near tie, closer than 1e-4, may fall either way and is allowed",
    )


def _sameness(real_speed: RealSpeed) -> str:
    counts = [f"{real_speed.equal} of {real_speed.sentences} the same"]
    counts += [f"{real_speed.near_ties} near ties"] if real_speed.near_ties else []
    counts += [f"{real_speed.disagreements} differ without one"] if real_speed.disagreements else []
    return ", ".join(counts)


def _as_predicted(real_speeds: Sequence[RealSpeed]) -> Judgement:
    cells = [(case_name(speed.beam, speed.test_set), speed, predicted_speed_up(speed)) for speed in real_speeds]
    no_test = [name for name, speed, _ in cells if all(_is_near(1.0, ratio) for ratio in speed.ratios)]
    return Judgement(
        "; ".join(f"{name}: {_percent(speed.ratio)}, predicted {_percent(predicted)}" for name, speed, predicted in cells),
        verdict_over_cases([_is_near(predicted, ratio) for ratio in speed.ratios] for _, speed, predicted in cells),
        "each round's ratio against the prediction"
        + (f"; no test where a prediction of no gain passes too: {'; '.join(no_test)}" if no_test else ""),
    )


def _is_near(predicted: float, ratio: float) -> bool:
    return abs(predicted / ratio - 1.0) <= published.NEAR_PREDICTED


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1.0):+.1f} %"


_AMDAHL = f"Amdahl's prediction of the output layer is within {100 * published.NEAR_PREDICTED:.0f} % of the speed-up end to end"
_REAL_CLAIMS = (
    Claim("FNI-11", "Fusing changes no translation", "without affecting model quality", _same_translations),
    Claim("FNI-17 (c)", _AMDAHL, "", _as_predicted),
)

LEAST_EFFECT = 0.01
"""Smallest difference of gains that step costs can distinguish from none: the costs of the shipped profile are measured to
within some percent, so a difference of a few hundredths of a percent, such as between two sets, means nothing."""

_SMALL = f"within {100 * LEAST_EFFECT:.0f} point, which step costs cannot tell"
_DISAGREEING = f"not by more than {100 * LEAST_EFFECT:.0f} point in every seed"
_WHY_GREEDY = (
    "at beam 1 our plain decoder takes no softmax either (FNI-06) and adds the bias within the product, so only the search for "
    "the largest value of each row is left to fuse"
)
_WHY_BLOCKS = "our fused layer multiplies block by block, which plain torch does not"

Stages = Mapping[tuple[str, int, str], SetStages]
"""By device, beam and set."""
Judge = Callable[[int, str], Case]
"""Judges a claim on one beam and one set."""


def device_claims(
    decoders: Sequence[FusedDecoder], stages: Stages, speeds: Speeds, sentences: int | None = None
) -> list[ClaimRecord]:
    """Return one record per claim and device. `sentences`: most sentences timed per set; None: all."""
    return [
        record
        for device_decoders in grouped(decoders, "device").values()
        for record in _DeviceClaims(device_decoders, stages, speeds, sentences).records()
    ]


class _DeviceClaims:
    """The claims on one device."""

    def __init__(self, decoders: Sequence[FusedDecoder], stages: Stages, speeds: Speeds, sentences: int | None) -> None:
        self._decoders, self._speeds, self._sentences = decoders, speeds, sentences
        self._stages = {key[1:]: cell for key, cell in stages.items() if key[0] == decoders[0].device}
        self._beams = [decoder.beam for decoder in decoders]

    def records(self) -> list[ClaimRecord]:
        return [*self._output_layer(), *self._shares(), *self._gains()]

    def _gain(self, beam: int, test_set: str, strategy: str, *, fused: bool = True) -> Gain:
        return over_plain(self._speeds, (self._decoders[0].device, beam, test_set, strategy, fused))

    def _claim(self, identifier: str, claim: str, theirs: str, cases: Iterable[Case], *notes: str) -> ClaimRecord:
        both_variants = [decoder.decoder(fused) for decoder in self._decoders for fused in (False, True)]
        return device_claim(both_variants, identifier, claim, theirs, cases, notes)

    def _cases(self, judge: Judge, test_sets: Iterable[str] = tuple(SETS), beams: Collection[int] = ()) -> list[Case]:
        return [judge(beam, key) for beam in self._beams if not beams or beam in beams for key in test_sets]

    def _speed_claim(
        self, identifier: str, claim: str, theirs: str, judge: Judge, test_sets: Iterable[str] = tuple(SETS), note: str = ""
    ) -> ClaimRecord:
        """Return the record of a claim on speeds, which too few sentences leave undecided."""
        reasons = {decoder.beam: too_few_reason(decoder.plain, self._sentences) for decoder in self._decoders}
        cases = self._cases(lambda beam, key: undecided(judge(beam, key), reasons[beam]), test_sets)
        return self._claim(identifier, claim, theirs, cases, note)

    def _product_changed(self) -> bool:
        return any(cell.layer.product_percent for (beam, _), cell in self._stages.items() if beam in self._beams)

    def _output_layer(self) -> list[ClaimRecord]:
        ratios = {(row.beam, row.test_set): f"{case_name(row.beam, row.test_set)}: {row.ratio:.2f}" for row in TABLES}
        both_beams = {1, BEAM} <= set(self._beams)
        changed = self._product_changed()
        return [
            self._claim(
                "FNI-15 (a)",
                f"Fused, bias, softmax and search take at most 1/{published.LEAST_RATIO} of their time at beam {BEAM}",
                "; ".join(ratio for (beam, _), ratio in ratios.items() if beam == BEAM),
                self._cases(self._three_steps, beams=(BEAM,)),
                "" if BEAM in self._beams else f"beam {BEAM} was not measured",
            ),
            self._claim(
                "FNI-15 (b)",
                f"and the gain is larger at beam 1 than at beam {BEAM}",
                "; ".join(ratios.values()),
                [self._larger_at_beam_1(key) for key in SETS] if both_beams else [],
                _WHY_GREEDY if both_beams else f"beams 1 and {BEAM} were not both measured",
            ),
            self._claim(
                "FNI-15 (c)",
                f"The product beside the fused kernel takes the same time, within {100 * published.SAME_PRODUCT:.0f} %",
                "; ".join(f"{case_name(row.beam, row.test_set)}: {row.product_percent:+.1f} %" for row in TABLES),
                self._cases(self._product_change) if changed else [],
                *((_WHY_BLOCKS, self._predictions()) if changed else ["the product was timed once, for both"]),
            ),
        ]

    def _three_steps(self, beam: int, test_set: str) -> Case:
        ratio = self._stages[beam, test_set].layer.ratio
        return _case(beam, test_set, f"{ratio:.2f}", ratio >= published.LEAST_RATIO)

    def _larger_at_beam_1(self, test_set: str) -> Case:
        small, large = (self._stages[beam, test_set].layer.ratio for beam in (1, BEAM))
        return Case(SETS[test_set].name, f"beam 1 {small:.2f}, beam {BEAM} {large:.2f}", holds_if(small > large))

    def _product_change(self, beam: int, test_set: str) -> Case:
        percent = self._stages[beam, test_set].layer.product_percent
        return _case(beam, test_set, f"{percent:+.1f} %", abs(percent) <= 100 * published.SAME_PRODUCT)

    def _predictions(self) -> str:
        """Return the predicted gains with the product's blocks, and with the product left alone as in the paper."""
        cells = [(case_name(beam, key), self._stages[beam, key]) for beam in self._beams for key in SETS]
        predictions = [
            f"{name}: {100 * (cell.predicted - 1.0):+.1f}, {_percent(cell.predicted_product_left_alone)}"
            for name, cell in cells
        ]
        return f"gain predicted with the product's blocks, and with the product left alone: {'; '.join(predictions)}"

    def _shares(self) -> list[ClaimRecord]:
        nearly = f"nearly {100 * published.OUTPUT_SHARE:.0f} %"
        return [
            self._claim(
                "FNI-17 (a)",
                f"The output layer takes {nearly} of the time of Europarl (10 points allowed)",
                nearly,
                self._cases(self._near_share, ("europarl",)),
                f"of this model, whose vocabulary has {self._decoders[0].vocab:,} words",
            ),
            self._claim(
                "FNI-17 (b)",
                "and more of OpenSubtitles'",
                "more (figure 5)",
                self._cases(self._larger_share, ("opensubtitles",)),
            ),
        ]

    def _near_share(self, beam: int, test_set: str) -> Case:
        share = self._stages[beam, test_set].output_share
        return _case(beam, test_set, f"{100 * share:.1f} %", abs(share - published.OUTPUT_SHARE) <= published.NEAR_SHARE)

    def _larger_share(self, beam: int, test_set: str) -> Case:
        share, europarl = (self._stages[beam, key].output_share for key in (test_set, "europarl"))
        return _case(beam, test_set, f"{100 * share:.1f} %, Europarl {100 * europarl:.1f} %", share > europarl)

    def _gains(self) -> list[ClaimRecord]:
        return [
            self._speed_claim(
                "FNI-16 (h)",
                "Translating is faster with the fused kernel",
                _up_to(published.FUSED_GAIN),
                self._faster,
                note=self._predictions() if self._product_changed() else "",
            ),
            self._speed_claim(
                "FNI-16 (i)",
                "It gains more on OpenSubtitles than on Europarl",
                f"{100 * published.FUSED_GAIN['opensubtitles']:.0f} % against {100 * published.FUSED_GAIN['europarl']:.0f} %",
                self._more_than_europarl,
                ("opensubtitles",),
            ),
            self._speed_claim(
                "FNI-16 (j)",
                "Fused and topped up it is faster than with either alone, without maxi-batching",
                _up_to(published.BOTH_GAIN),
                self._both_beyond_either,
            ),
            self._speed_claim(
                "FNI-16 (k)",
                "With maxi-batching both together gain less",
                _up_to(published.BOTH_GAIN_WITH_MAXI),
                self._less_with_maxi,
            ),
            self._speed_claim(
                "FNI-16 (l)",
                "Together they gain as much as the product of both gains (2 points allowed)",
                "1.41 times 1.12 is 1.58, printed 1.57 (OpenSubtitles)",
                self._as_product,
            ),
        ]

    def _faster(self, beam: int, test_set: str) -> Case:
        """Judge a gain that fusing alone, with the product unchanged, must show as well."""
        gained = self._gain(beam, test_set, "mini")
        case = _case_above(beam, test_set, gained.percent(), gained.by_seed)
        by_fusing = self._stages[beam, test_set].predicted_product_left_alone - 1.0 > LEAST_EFFECT
        if case.verdict == HOLDS and not by_fusing:
            return Case(case.name, case.ours, FAILS, "by another cause than fusing")
        return case

    def _more_than_europarl(self, beam: int, test_set: str) -> Case:
        gained, europarl = (self._gain(beam, key, "mini") for key in (test_set, "europarl"))
        text = f"{gained.percent()}, Europarl {europarl.percent()}"
        return _case_above(beam, test_set, text, _differences(gained, europarl))

    def _both_beyond_either(self, beam: int, test_set: str) -> Case:
        both, fused, topped_up = self._both_and_each(beam, test_set)
        text = f"{both.percent()}, fused {100 * fused.mean:+.1f} %, topped up {100 * topped_up.mean:+.1f} %"
        return _case_above(beam, test_set, text, _differences(both, fused), _differences(both, topped_up))

    def _less_with_maxi(self, beam: int, test_set: str) -> Case:
        both, with_maxi = (self._gain(beam, test_set, strategy) for strategy in ("half-empty", "maxi half-empty"))
        text = f"{with_maxi.percent()}, without {both.percent()}"
        return _case_above(beam, test_set, text, _differences(both, with_maxi))

    def _as_product(self, beam: int, test_set: str) -> Case:
        both, fused, topped_up = self._both_and_each(beam, test_set)
        product = (1.0 + fused.mean) * (1.0 + topped_up.mean) - 1.0
        text = f"{100 * both.mean:+.1f} %, product {100 * product:+.1f} %"
        return _case(beam, test_set, text, abs(both.mean - product) <= published.NEAR_PRODUCT)

    def _both_and_each(self, beam: int, test_set: str) -> tuple[Gain, Gain, Gain]:
        return (
            self._gain(beam, test_set, "half-empty"),
            self._gain(beam, test_set, "mini"),
            self._gain(beam, test_set, "half-empty", fused=False),
        )


def _up_to(gain_by_set: Mapping[str, float]) -> str:
    return "; ".join(f"{SETS[key].name} up to {100 * value:.0f} %" for key, value in gain_by_set.items())


def _case(beam: int, test_set: str, ours: str, holds: bool) -> Case:
    return Case(case_name(beam, test_set), ours, holds_if(holds))


def _case_above(beam: int, test_set: str, ours: str, *effects: Sequence[float]) -> Case:
    """Judge "all these effects are above 0" by their ranges over seeds, `LEAST_EFFECT` wider on both sides."""
    verdicts = [
        sign_verdict(Estimate(sum(effect) / len(effect), min(effect) - LEAST_EFFECT, max(effect) + LEAST_EFFECT))
        for effect in effects
    ]
    verdict = worst_verdict(verdicts)
    unclear = [effect for effect, sign in zip(effects, verdicts, strict=True) if sign == UNCLEAR]
    small = all(abs(value) <= LEAST_EFFECT for effect in unclear for value in effect)
    reason = (_SMALL if small else _DISAGREEING) if verdict == UNCLEAR else ""
    return Case(case_name(beam, test_set), ours, verdict, reason)


def _differences(more: Gain, less: Gain) -> list[float]:
    """Return by how much the first gains more than the second in each seed."""
    return [a - b for a, b in zip(more.by_seed, less.by_seed, strict=True)]
