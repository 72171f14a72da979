"""The paper's claims on fusing: by its printed figures, by each device, and by a real decoder (FNI-11, 15, 16, 17)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from simnmt.papers.fni import published
from simnmt.papers.fni.cases import Case, case_name, device_claim, too_few_reason, undecided
from simnmt.papers.fni.devices import FusedDecoder
from simnmt.papers.fni.offline import Gain
from simnmt.papers.fni.published import BEAM, SETS, TABLES
from simnmt.papers.fni.stages import Gains, SetStages, Speeds, gains
from simnmt.papers.kit.amdahl import end_to_end
from simnmt.papers.kit.claim import (
    FAILS,
    HOLDS,
    UNCLEAR,
    UNKNOWN,
    ClaimRecord,
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
            "Fusing and topping up together gain as much as both in turn (OpenSubtitles)",
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
            "Amdahl's prediction of the printed share and seconds is beyond what is claimed",
        ),
    ]


def predicted_speed_up(real_speed: RealSpeed) -> float:
    """Return Amdahl's prediction of how many times as fast a real decoder is when fused (XP-07).

    Uses the output layer's share, measured while decoding, and the layer's speed-up, timed separately.
    """
    return end_to_end(real_speed.layer_share, real_speed.layer_s / real_speed.fused_layer_s)


def predicted_speed_up_of_fusing(real_speed: RealSpeed) -> float:
    """Return the same prediction with the product unchanged, as in the paper: the gain of fusing alone."""
    return end_to_end(real_speed.three_share, real_speed.three_s / real_speed.stages_s["fused"])


def real_claims(real_speeds: Sequence[RealSpeed]) -> list[ClaimRecord]:
    """Return the records of a real decoder on this box; UNKNOWN without one."""
    device = "this box, real decoder" if real_speeds else ""
    basis = "measured" if real_speeds else "needs --measure"
    missing = "" if real_speeds else "give --measure to ask a real decoder"
    same = UNKNOWN if not real_speeds else holds_if(not any(real_speed.disagreements for real_speed in real_speeds))
    names = [case_name(real_speed.beam, real_speed.test_set) for real_speed in real_speeds]
    predictions = [predicted_speed_up(real_speed) for real_speed in real_speeds]
    cells = list(zip(names, real_speeds, predictions, strict=True))
    no_test = [name for name, real_speed, _ in cells if all(_is_near(1.0, ratio) for ratio in real_speed.ratios)]
    return [
        ClaimRecord(
            "FNI-11",
            "Fusing changes no translation",
            "without affecting model quality",
            "; ".join(f"{name}: {_sameness(real_speed)}" for name, real_speed, _ in cells),
            same,
            missing or "of sentences that end by themselves; a near tie, closer than 1e-4, may fall either way and is allowed",
            device=device,
            basis=basis,
        ),
        ClaimRecord(
            "FNI-17 (c)",
            f"Amdahl's prediction of the output layer is within {100 * published.NEAR_PREDICTED:.0f} % "
            "of the speed-up end to end",
            "",
            "; ".join(
                f"{name}: {_percent(real_speed.ratio)}, predicted {_percent(prediction)}"
                for name, real_speed, prediction in cells
            ),
            verdict_over_cases(
                [_is_near(predicted, ratio) for ratio in real_speed.ratios] for _, real_speed, predicted in cells
            ),
            missing
            or "each round's ratio against the prediction"
            + (f"; no test where a prediction of no gain passes too: {'; '.join(no_test)}" if no_test else ""),
            device=device,
            basis=basis,
        ),
    ]


def _sameness(real_speed: RealSpeed) -> str:
    counts = [f"{real_speed.equal} of {real_speed.sentences} the same"]
    counts += [f"{real_speed.near_ties} near ties"] if real_speed.near_ties else []
    counts += [f"{real_speed.disagreements} differ without one"] if real_speed.disagreements else []
    return ", ".join(counts)


def _is_near(predicted: float, ratio: float) -> bool:
    return abs(predicted / ratio - 1.0) <= published.NEAR_PREDICTED


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1.0):+.1f} %"


LEAST_EFFECT = 0.01
"""Difference of gains that step costs can tell from none: those of the shipped profile are measured to within some percent, and
a difference of a few hundredths of a percent, such as between two sets, says nothing."""

_SMALL = f"within {100 * LEAST_EFFECT:.0f} point, which step costs cannot tell"
_DISAGREEING = f"not by more than {100 * LEAST_EFFECT:.0f} point in every seed"

Stages = Mapping[tuple[str, int, str], SetStages]
"""By device, beam and set."""


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
        self._decoders, self._stages, self._speeds, self._sentences = decoders, stages, speeds, sentences
        self._beams = [decoder.beam for decoder in decoders]

    def records(self) -> list[ClaimRecord]:
        return [*self._output_layer(), *self._shares(), *self._gains()]

    def _of(self, beam: int, test_set: str) -> SetStages:
        return self._stages[self._decoders[0].device, beam, test_set]

    def _gain(self, beam: int, test_set: str) -> Gains:
        return gains(self._speeds, self._decoders[0].device, beam, test_set)

    def _claim(self, identifier: str, claim: str, theirs: str, cases: Iterable[Case], notes: Iterable[str] = ()) -> ClaimRecord:
        composed = [f"beam {decoder.beam}" for decoder in self._decoders if not decoder.measured]
        remarks = [*notes, *([f"composed, not measured: {', '.join(composed)}"] if composed else [])]
        both_variants = [decoder.decoder(fused) for decoder in self._decoders for fused in (False, True)]
        return device_claim(both_variants, identifier, claim, theirs, cases, remarks)

    def _cases(
        self,
        figures: Callable[[int, str], tuple[str, bool]],
        test_sets: Iterable[str] = tuple(SETS),
        beams: Collection[int] = (),
    ) -> list[Case]:
        """Return a case for each beam and set, decided by the truth value in `figures`."""
        cells = [(beam, key) for beam in self._beams if not beams or beam in beams for key in test_sets]
        judged = {cell: figures(*cell) for cell in cells}
        return [Case(case_name(*cell), ours, holds_if(holds)) for cell, (ours, holds) in judged.items()]

    def _output_layer(self) -> list[ClaimRecord]:
        ratios = {(row.beam, row.test_set): f"{case_name(row.beam, row.test_set)}: {row.ratio:.2f}" for row in TABLES}
        changes = {row: f"{case_name(row.beam, row.test_set)}: {row.product_percent:+.1f} %" for row in TABLES}
        both_beams = {1, BEAM} <= set(self._beams)
        timed_twice = any(self._of(beam, key).layer.product_percent for beam in self._beams for key in SETS)
        return [
            self._claim(
                "FNI-15 (a)",
                f"Fused, bias, softmax and search take at most 1/{published.LEAST_RATIO} of their time at beam {BEAM}",
                "; ".join(ratio for (beam, _), ratio in ratios.items() if beam == BEAM),
                self._cases(self._three_steps, beams=(BEAM,)),
                [] if BEAM in self._beams else [f"beam {BEAM} was not measured"],
            ),
            self._claim(
                "FNI-15 (b)",
                f"and the gain is larger at beam 1 than at beam {BEAM}",
                "; ".join(ratios.values()),
                [self._larger_at_beam_1(key) for key in SETS] if both_beams else [],
                [_WHY_GREEDY if both_beams else f"beams 1 and {BEAM} were not both measured"],
            ),
            self._claim(
                "FNI-15 (c)",
                f"The product beside the fused kernel takes the same time, within {100 * published.SAME_PRODUCT:.0f} %",
                "; ".join(changes.values()),
                self._cases(self._product_change) if timed_twice else [],
                [_WHY_BLOCKS, self._predictions()] if timed_twice else ["the product was timed once, for both"],
            ),
        ]

    def _three_steps(self, beam: int, test_set: str) -> tuple[str, bool]:
        ratio = self._of(beam, test_set).layer.ratio
        return f"{ratio:.2f}", ratio >= published.LEAST_RATIO

    def _larger_at_beam_1(self, test_set: str) -> Case:
        small, large = (self._of(beam, test_set).layer.ratio for beam in (1, BEAM))
        return Case(SETS[test_set].name, f"beam 1 {small:.2f}, beam {BEAM} {large:.2f}", holds_if(small > large))

    def _product_change(self, beam: int, test_set: str) -> tuple[str, bool]:
        percent = self._of(beam, test_set).layer.product_percent
        return f"{percent:+.1f} %", abs(percent) <= 100 * published.SAME_PRODUCT

    def _predictions(self) -> str:
        """Return the predicted gains with the product's blocks, and with the product left alone as in the paper."""
        cells = [(beam, key, self._of(beam, key)) for beam in self._beams for key in SETS]
        predictions = [
            f"{case_name(beam, key)}: {100 * (cell.predicted - 1.0):+.1f}, "
            f"{100 * (cell.predicted_product_left_alone - 1.0):+.1f} %"
            for beam, key, cell in cells
        ]
        return f"gain predicted with the product's blocks, and with the product left alone: {'; '.join(predictions)}"

    def _shares(self) -> list[ClaimRecord]:
        def near(beam: int, test_set: str) -> tuple[str, bool]:
            share = self._of(beam, test_set).output_share
            return f"{100 * share:.1f} %", abs(share - published.OUTPUT_SHARE) <= published.NEAR_SHARE

        def more(beam: int, test_set: str) -> tuple[str, bool]:
            share, europarl = self._of(beam, test_set).output_share, self._of(beam, "europarl").output_share
            return f"{100 * share:.1f} %, Europarl {100 * europarl:.1f} %", share > europarl

        return [
            self._claim(
                "FNI-17 (a)",
                f"The output layer takes nearly {100 * published.OUTPUT_SHARE:.0f} % of the time "
                "of Europarl (10 points allowed)",
                f"nearly {100 * published.OUTPUT_SHARE:.0f} %",
                self._cases(near, ("europarl",)),
                [f"of this model, whose vocabulary has {self._decoders[0].vocab:,} words"],
            ),
            self._claim("FNI-17 (b)", "and more of OpenSubtitles'", "more (figure 5)", self._cases(more, ("opensubtitles",))),
        ]

    def _gains(self) -> list[ClaimRecord]:
        product_changed = any(self._of(beam, key).layer.product_percent for beam in self._beams for key in SETS)
        return [
            self._claim(
                "FNI-16 (h)",
                "Translating is faster with the fused kernel",
                _up_to(published.FUSED_GAIN),
                self._judged(self._faster),
                [self._predictions()] if product_changed else [],
            ),
            self._claim(
                "FNI-16 (i)",
                "It gains more on OpenSubtitles than on Europarl",
                f"{100 * published.FUSED_GAIN['opensubtitles']:.0f} % against {100 * published.FUSED_GAIN['europarl']:.0f} %",
                self._judged(self._more_than_europarl, ("opensubtitles",)),
            ),
            self._claim(
                "FNI-16 (j)",
                "Fused and topped up it is faster than with either alone, without maxi-batching",
                _up_to(published.BOTH_GAIN),
                self._judged(self._both_beyond_either),
            ),
            self._claim(
                "FNI-16 (k)",
                "With maxi-batching both together gain less",
                _up_to(published.BOTH_GAIN_WITH_MAXI),
                self._judged(self._less_with_maxi),
            ),
            self._claim(
                "FNI-16 (l)",
                "Together they gain as much as both in turn (2 points allowed)",
                "1.41 times 1.12 is 1.58, printed 1.57 (OpenSubtitles)",
                self._judged(self._as_in_turn),
            ),
        ]

    def _judged(self, judge: Callable[[int, str], Case], test_sets: Iterable[str] = tuple(SETS)) -> list[Case]:
        """Return the cases of a claim on speeds, of which too few sentences decide nothing."""
        return [
            undecided(judge(decoder.beam, key), too_few_reason(decoder.plain, self._sentences))
            for decoder in self._decoders
            for key in test_sets
        ]

    def _faster(self, beam: int, test_set: str) -> Case:
        """Judge a gain that fusing alone, with the product unchanged, must show as well."""
        gained = self._gain(beam, test_set).fused
        case = _case_above(beam, test_set, gained.percent(), gained.by_seed)
        by_fusing = self._of(beam, test_set).predicted_product_left_alone - 1.0 > LEAST_EFFECT
        if case.verdict == HOLDS and not by_fusing:
            return Case(case.name, case.ours, FAILS, "by another cause than fusing")
        return case

    def _more_than_europarl(self, beam: int, test_set: str) -> Case:
        gained, europarl = (self._gain(beam, key).fused for key in (test_set, "europarl"))
        text = f"{gained.percent()}, Europarl {europarl.percent()}"
        return _case_above(beam, test_set, text, _differences(gained, europarl))

    def _both_beyond_either(self, beam: int, test_set: str) -> Case:
        cell = self._gain(beam, test_set)
        text = f"{cell.both.percent()}, fused {100 * cell.fused.mean:+.1f} %, topped up {100 * cell.topped_up.mean:+.1f} %"
        beyond_either = _differences(cell.both, cell.fused), _differences(cell.both, cell.topped_up)
        return _case_above(beam, test_set, text, *beyond_either)

    def _less_with_maxi(self, beam: int, test_set: str) -> Case:
        cell = self._gain(beam, test_set)
        text = f"{cell.both_maxi.percent()}, without {cell.both.percent()}"
        return _case_above(beam, test_set, text, _differences(cell.both, cell.both_maxi))

    def _as_in_turn(self, beam: int, test_set: str) -> Case:
        cell = self._gain(beam, test_set)
        text = f"{100 * cell.both.mean:+.1f} %, in turn {100 * cell.product:+.1f} %"
        return Case(case_name(beam, test_set), text, holds_if(abs(cell.both.mean - cell.product) <= published.NEAR_PRODUCT))


def _up_to(gain_by_set: Mapping[str, float]) -> str:
    return "; ".join(f"{SETS[key].name} up to {100 * value:.0f} %" for key, value in gain_by_set.items())


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


_WHY_GREEDY = (
    "at beam 1 our plain decoder takes no softmax either (FNI-06) and adds the bias within the product: the largest of each "
    "row is all there is to fuse"
)
_WHY_BLOCKS = "our fused layer multiplies block by block, which plain torch does not"
