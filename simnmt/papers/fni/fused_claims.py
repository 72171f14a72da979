"""The paper's claims on fusing: by its printed figures, by each device, and by a real decoder (FNI-11, 15, 16, 17)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from simnmt.papers.fni.devices import LEAST_BATCHES, FusedDecoder
from simnmt.papers.fni.fused_published import (
    BOTH_GAIN,
    BOTH_GAIN_WITH_MAXI,
    FUSED_GAIN,
    LEAST_RATIO,
    NEAR_PREDICTED,
    NEAR_PRODUCT,
    NEAR_SHARE,
    OUTPUT_SHARE,
    SAME_PRODUCT,
    TABLES,
    TOPUP_GAIN,
    derived,
)
from simnmt.papers.fni.fused_stages import Gains, SetStages, Speeds, gains
from simnmt.papers.fni.offline import Gain
from simnmt.papers.fni.topup_published import BEAM, SETS
from simnmt.papers.kit.amdahl import end_to_end
from simnmt.papers.kit.claim import (
    FAILS,
    HOLDS,
    UNCLEAR,
    UNKNOWN,
    Records,
    claim_record,
    sign_verdict,
    verdict_over_cases,
    worst_verdict,
)
from simnmt.results.statistics import Estimate

if TYPE_CHECKING:
    from simnmt.calibrate.decoder_speeds import RealSpeed


def paper_claims() -> Records:
    """Return the records that follow from the printed figures alone, without a device."""
    figures = {figure.what: figure.value for figure in derived()}
    both = figures["opensubtitles: fused times topped up"]
    implied = {beam: figures[f"europarl, beam {beam}: gain if the output layer has 70 %"] for beam in (5, 1)}
    off = [printed for printed in TABLES if abs(printed.printed_product_percent - printed.product_percent) > 0.06]
    return [
        claim_record(
            "FNI-15 (d)",
            "The percentages of Tables 2 and 3 follow from their seconds",
            "; ".join(f"{printed.printed_product_percent:+.1f} %" for printed in off),
            "; ".join(
                f"{printed.product_percent:+.2f} %, {SETS[printed.test_set].name}, beam {printed.beam}" for printed in off
            ),
            not off,
            "seven of the eight do; a decimal point slipped",
            basis="published",
        ),
        claim_record(
            "FNI-16 (m)",
            "Fusing and topping up together gain as much as both in turn (OpenSubtitles)",
            f"{100 * BOTH_GAIN['opensubtitles']:.0f} %",
            f"{both:.1f} % from 1.41 times 1.12",
            abs(both / 100.0 - BOTH_GAIN["opensubtitles"]) <= NEAR_PRODUCT,
            f"of {100 * FUSED_GAIN['opensubtitles']:.0f} % and {100 * TOPUP_GAIN:.0f} %, each 'up to'",
            basis="published",
        ),
        claim_record(
            "FNI-17 (d)",
            "The share of the output layer, Table 2 and the gain of translating Europarl agree",
            f"at most {100 * FUSED_GAIN['europarl']:.0f} % faster, with nearly {100 * OUTPUT_SHARE:.0f} % of the time",
            "; ".join(f"{value:.1f} % at beam {beam}" for beam, value in implied.items()),
            max(implied.values()) <= 100 * FUSED_GAIN["europarl"] + 1.0,
            "Amdahl's prediction of the printed share and seconds is beyond what is claimed",
            basis="published",
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


def real_claims(real_speeds: Sequence[RealSpeed]) -> Records:
    """Return the records of a real decoder on this box; UNKNOWN without one."""
    device = "this box, real decoder" if real_speeds else ""
    basis = "measured" if real_speeds else "needs --measure"
    asked = "" if real_speeds else "give --measure to ask a real decoder"
    same = UNKNOWN if not real_speeds else FAILS if any(real_speed.disagreements for real_speed in real_speeds) else HOLDS
    near = [[_is_near(predicted_speed_up(real_speed), ratio) for ratio in real_speed.ratios] for real_speed in real_speeds]
    return [
        claim_record(
            "FNI-11",
            "Fusing changes no translation",
            "without affecting model quality",
            "; ".join(f"{_cell(real_speed)} {_sameness(real_speed)}" for real_speed in real_speeds),
            same,
            asked or "of sentences that end by themselves; a near tie, closer than 1e-4, may fall either way and is allowed",
            device=device,
            basis=basis,
        ),
        claim_record(
            "FNI-17 (c)",
            f"Amdahl's prediction of the output layer is within {100 * NEAR_PREDICTED:.0f} % of the speed-up end to end",
            "",
            "; ".join(
                f"{_cell(real_speed)} {_percent(real_speed.ratio)}, foretold {_percent(predicted_speed_up(real_speed))}"
                for real_speed in real_speeds
            ),
            verdict_over_cases(near),
            asked or "; ".join(["each round's ratio against the prediction", *_no_test(real_speeds)]),
            device=device,
            basis=basis,
        ),
    ]


def _sameness(real_speed: RealSpeed) -> str:
    counts = [f"{real_speed.equal} of {real_speed.sentences} the same"]
    counts += [f"{real_speed.near_ties} near ties"] if real_speed.near_ties else []
    counts += [f"{real_speed.disagreements} differ without one"] if real_speed.disagreements else []
    return ", ".join(counts)


def _no_test(real_speeds: Sequence[RealSpeed]) -> list[str]:
    """Return a note on the cells whose gain is so small that a prediction of no gain would pass too."""
    cells = [
        _cell(real_speed).rstrip(":") for real_speed in real_speeds if all(_is_near(1.0, ratio) for ratio in real_speed.ratios)
    ]
    return [f"no test of it where a prediction of no gain passes too: {'; '.join(cells)}"] if cells else []


def _is_near(foretold: float, ratio: float) -> bool:
    return abs(foretold / ratio - 1.0) <= NEAR_PREDICTED


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1.0):+.1f} %"


def _cell(real_speed: RealSpeed) -> str:
    return f"{SETS[real_speed.test_set].name}, beam {real_speed.beam}:"


LEAST_EFFECT = 0.01
"""Difference of gains that step costs can tell from none: those of the shipped profile are measured to within some percent, and
a difference of a few hundredths of a percent, such as between two sets, says nothing."""

_SMALL = f"within {100 * LEAST_EFFECT:.0f} point, which step costs cannot tell"
_DISAGREEING = f"not by more than {100 * LEAST_EFFECT:.0f} point in every seed"

Judgement = tuple[str, str]
"""A verdict, and why it is not distinguishable: `_SMALL`, `_DISAGREEING`, or empty where it is."""

Stages = Mapping[tuple[str, int, str], SetStages]
"""By device, beam and set."""


def device_claims(decoders: Sequence[FusedDecoder], stages: Stages, speeds: Speeds, sentences: int | None = None) -> Records:
    """Return one record per claim and device. `sentences`: most sentences timed per set; None: all."""
    devices = dict.fromkeys(decoder.device for decoder in decoders)
    return [
        record
        for device in devices
        for record in _Device(
            [decoder for decoder in decoders if decoder.device == device], stages, speeds, sentences
        ).records()
    ]


class _Device:
    """One device's numbers, and how records of them are made."""

    def __init__(self, decoders: Sequence[FusedDecoder], stages: Stages, speeds: Speeds, sentences: int | None) -> None:
        self.decoders, self._stages, self._speeds, self._sentences = decoders, stages, speeds, sentences
        self.name = decoders[0].device
        self.beams = [decoder.beam for decoder in decoders]

    def records(self) -> Records:
        """Of all claims."""
        both = tuple(SETS)
        return [*self._output_layer(), *self._shares(), *self._gains(both)]

    def _of(self, beam: int, test_set: str) -> SetStages:
        return self._stages[self.name, beam, test_set]

    def _gain(self, beam: int, test_set: str) -> Gains:
        return gains(self._speeds, self.name, beam, test_set)

    def _record(self, letter: str, claim: str, theirs: str, ours: str, verdict: bool | str, why: str) -> dict[str, Any]:
        composed = [f"beam {decoder.beam}" for decoder in self.decoders if not decoder.measured]
        reasons = [why, *([f"composed, not measured: {', '.join(composed)}"] if composed else [])]
        kinds = {decoder.decoder(fused).kind for decoder in self.decoders for fused in (False, True)}
        basis = next((kind for kind in ("synthetic", "inferred") if kind in kinds), "measured")
        because = "; ".join(filter(None, reasons))
        return claim_record(letter, claim, theirs, ours, verdict, because, device=self.name, basis=basis)

    def _output_layer(self) -> Records:
        cells = [(beam, key) for beam in self.beams for key in SETS]
        of_beam = {
            beam: "; ".join(f"{_stage_cell(beam, key)} {self._of(beam, key).ratio:.2f}" for key in SETS) for beam in self.beams
        }
        at_beam = [self._of(BEAM, key).ratio >= LEAST_RATIO for key in SETS] if BEAM in self.beams else []
        pairs = [self._of(1, key).ratio > self._of(BEAM, key).ratio for key in SETS] if {1, BEAM} <= set(self.beams) else []
        changes = {(beam, key): self._of(beam, key).product_change for beam, key in cells}
        ratios = {printed: f"{_stage_cell(printed.beam, printed.test_set)} {printed.ratio:.2f}" for printed in TABLES}
        return [
            self._record(
                "FNI-15 (a)",
                f"Fused, bias, softmax and search take at most 1/{LEAST_RATIO} of their time at beam {BEAM}",
                "; ".join(ratio for printed, ratio in ratios.items() if printed.beam == BEAM),
                of_beam.get(BEAM, ""),
                _all(at_beam),
                "" if at_beam else f"beam {BEAM} was not measured",
            ),
            self._record(
                "FNI-15 (b)",
                f"and the gain is larger at beam 1 than at beam {BEAM}",
                "; ".join(ratios.values()),
                "; ".join(of_beam.values()),
                _all(pairs),
                _WHY_GREEDY if pairs else f"beams 1 and {BEAM} were not both measured",
            ),
            self._record(
                "FNI-15 (c)",
                f"The product beside the fused kernel takes the same time, within {100 * SAME_PRODUCT:.0f} %",
                "; ".join(
                    f"{_stage_cell(printed.beam, printed.test_set)} {printed.product_percent:+.1f} %" for printed in TABLES
                ),
                "; ".join(f"{_stage_cell(beam, key)} {100 * change:+.1f} %" for (beam, key), change in changes.items()),
                _all([abs(change) <= SAME_PRODUCT for change in changes.values()]) if any(changes.values()) else UNKNOWN,
                f"{_WHY_BLOCKS}; {self._foretold(cells)}" if any(changes.values()) else "the product was timed once, for both",
            ),
        ]

    def _foretold(self, cells: Sequence[tuple[int, str]]) -> str:
        """Return the predicted gains with the product's blocks, and with the product left alone as in the paper."""
        foretold = [
            f"{_stage_cell(*cell)} {100 * (set_stages.predicted - 1.0):+.1f}, "
            f"{100 * (set_stages.predicted_product_left_alone - 1.0):+.1f} %"
            for cell in cells
            for set_stages in [self._of(*cell)]
        ]
        return f"gain foretold with the product's blocks, and with the product left alone: {'; '.join(foretold)}"

    def _shares(self) -> Records:
        def format_shares(key: str) -> str:
            return ", ".join(f"beam {beam} {100 * self._of(beam, key).output_share:.1f} %" for beam in self.beams)

        more = [self._of(beam, "opensubtitles").output_share > self._of(beam, "europarl").output_share for beam in self.beams]
        near = [abs(self._of(beam, "europarl").output_share - OUTPUT_SHARE) <= NEAR_SHARE for beam in self.beams]
        vocab = self.decoders[0].vocab
        return [
            self._record(
                "FNI-17 (a)",
                f"The output layer takes nearly {100 * OUTPUT_SHARE:.0f} % of the time of Europarl (10 points allowed)",
                f"nearly {100 * OUTPUT_SHARE:.0f} %",
                format_shares("europarl"),
                _all(near),
                f"of this model, whose vocabulary has {vocab:,} words",
            ),
            self._record(
                "FNI-17 (b)",
                "and more of OpenSubtitles'",
                "more (figure 5)",
                f"{format_shares('opensubtitles')}; Europarl {format_shares('europarl')}",
                _all(more),
                "",
            ),
        ]

    def _gains(self, both: Sequence[str]) -> Records:
        cells = list(product(self.beams, both))
        faster = self._claim(
            "FNI-16 (h)",
            "Translating is faster with the fused kernel",
            "; ".join(f"{SETS[key].name} up to {100 * value:.0f} %" for key, value in FUSED_GAIN.items()),
            both,
            lambda beam, key: _judge_seeds(self._gain(beam, key).fused.by_seed),
            lambda beam, key: self._gain(beam, key).fused.percent(),
            self._foretold(cells) if any(self._of(*cell).product_change for cell in cells) else "",
            cause=self._fusing_gains,
        )
        subtitles = self._claim(
            "FNI-16 (i)",
            "It gains more on OpenSubtitles than on Europarl",
            f"{100 * FUSED_GAIN['opensubtitles']:.0f} % against {100 * FUSED_GAIN['europarl']:.0f} %",
            ("opensubtitles",),
            lambda beam, key: _judge_seeds(_differences(self._gain(beam, key).fused, self._gain(beam, "europarl").fused)),
            lambda beam, key: (
                f"{self._gain(beam, key).fused.percent()}, Europarl {self._gain(beam, 'europarl').fused.percent()}"
            ),
        )
        together_more = self._claim(
            "FNI-16 (j)",
            "Fused and topped up it is faster than with either alone, without maxi-batching",
            "; ".join(f"{SETS[key].name} up to {100 * value:.0f} %" for key, value in BOTH_GAIN.items()),
            both,
            lambda beam, key: _judge_seeds(
                _differences(self._gain(beam, key).both, self._gain(beam, key).fused),
                _differences(self._gain(beam, key).both, self._gain(beam, key).topped_up),
            ),
            lambda beam, key: _three(self._gain(beam, key)),
        )
        less_with_maxi = self._claim(
            "FNI-16 (k)",
            "With maxi-batching both together gain less",
            "; ".join(f"{SETS[key].name} up to {100 * value:.0f} %" for key, value in BOTH_GAIN_WITH_MAXI.items()),
            both,
            lambda beam, key: _judge_seeds(_differences(self._gain(beam, key).both, self._gain(beam, key).both_maxi)),
            lambda beam, key: f"{self._gain(beam, key).both_maxi.percent()}, without {self._gain(beam, key).both.percent()}",
        )
        in_turn = self._claim(
            "FNI-16 (l)",
            "Together they gain as much as both in turn (2 points allowed)",
            "1.41 times 1.12 is 1.58, printed 1.57 (OpenSubtitles)",
            both,
            lambda beam, key: _judge_product(self._gain(beam, key)),
            lambda beam, key: (
                f"{100 * self._gain(beam, key).both.mean:+.1f} %, in turn {100 * self._gain(beam, key).product:+.1f} %"
            ),
        )
        return [faster, subtitles, together_more, less_with_maxi, in_turn]

    def _fusing_gains(self, beam: int, test_set: str) -> bool:
        """Return whether fusing alone, with the product unchanged, gains more than `LEAST_EFFECT`."""
        return self._of(beam, test_set).predicted_product_left_alone - 1.0 > LEAST_EFFECT

    def _claim(
        self,
        letter: str,
        claim: str,
        theirs: str,
        test_sets: Sequence[str],
        judge: Callable[[int, str], Judgement],
        describe: Callable[[int, str], str],
        beside: str = "",
        cause: Callable[[int, str], bool] | None = None,
    ) -> dict[str, Any]:
        """Return a record. `judge`, `describe`: by beam and set; `cause`: whether fusing alone would show the effect."""
        cells = list(product(self.beams, test_sets))
        judgements = {cell: judge(*cell) for cell in cells}
        verdicts = {cell: verdict for cell, (verdict, _) in judgements.items()}
        otherwise = [cell for cell in cells if cause is not None and verdicts[cell] == HOLDS and not cause(*cell)]
        verdicts |= dict.fromkeys(otherwise, FAILS)
        ours = "; ".join(f"{_stage_cell(*cell)} {describe(*cell)}" for cell in cells)
        few = self._sentences is not None and self._sentences < LEAST_BATCHES * max(decoder.batch for decoder in self.decoders)
        elsewhere = [_stage_cell(*cell).rstrip(":") for cell in otherwise]
        against = [
            _stage_cell(*cell).rstrip(":") for cell, verdict in verdicts.items() if verdict == FAILS and cell not in otherwise
        ]
        unclear: dict[str, list[str]] = {}
        for cell, (verdict, reason) in judgements.items():
            if verdict == UNCLEAR:
                unclear.setdefault(reason, []).append(_stage_cell(*cell).rstrip(":"))
        why = [
            *([f"of fewer than {LEAST_BATCHES} batches, which decides nothing"] if few else []),
            *([f"not with {', '.join(against)}"] if against else []),
            *([f"by another cause than fusing: {', '.join(elsewhere)}"] if elsewhere else []),
            *(f"{reason}: {', '.join(names)}" for reason, names in unclear.items()),
            *(["in every case looked at"] if set(verdicts.values()) == {HOLDS} else []),
            *([beside] if beside else []),
        ]
        return self._record(letter, claim, theirs, ours, UNKNOWN if few else worst_verdict(verdicts.values()), "; ".join(why))


def _judge_seeds(*effects: Sequence[float]) -> Judgement:
    """Return the judgement on "all these effects are above 0" by ranges over seeds, `LEAST_EFFECT` wider on both sides."""
    verdicts = [
        sign_verdict(Estimate(sum(effect) / len(effect), min(effect) - LEAST_EFFECT, max(effect) + LEAST_EFFECT))
        for effect in effects
    ]
    if worst_verdict(verdicts) != UNCLEAR:
        return worst_verdict(verdicts), ""
    unclear = [effect for effect, verdict in zip(effects, verdicts, strict=True) if verdict == UNCLEAR]
    small = all(abs(value) <= LEAST_EFFECT for effect in unclear for value in effect)
    return UNCLEAR, _SMALL if small else _DISAGREEING


def _differences(more: Gain, less: Gain) -> list[float]:
    """Return by how much the first gains more than the second in each seed."""
    return [a - b for a, b in zip(more.by_seed, less.by_seed, strict=True)]


def _judge_product(gain: Gains) -> Judgement:
    """Return the judgement on "both together gain as much as both in turn"."""
    return HOLDS if abs(gain.both.mean - gain.product) <= NEAR_PRODUCT else FAILS, ""


_WHY_GREEDY = (
    "at beam 1 our plain decoder takes no softmax either (FNI-06) and adds the bias within the product: the largest of each "
    "row is all there is to fuse"
)
_WHY_BLOCKS = "our fused layer multiplies block by block, which plain torch does not"


def _three(cell_gains: Gains) -> str:
    fused, topped_up = 100 * cell_gains.fused.mean, 100 * cell_gains.topped_up.mean
    return f"{cell_gains.both.percent()}, fused {fused:+.1f} %, topped up {topped_up:+.1f} %"


def _stage_cell(beam: int, test_set: str) -> str:
    return f"{SETS[test_set].name}, beam {beam}:"


def _all(cases: Sequence[bool]) -> bool | str:
    return all(cases) if cases else UNKNOWN
