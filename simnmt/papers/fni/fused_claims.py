"""The claims on the fused output layer, by the printed figures, by a real decoder, and on each device (FNI-11, 15 to 17)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simnmt.papers.fni.cases import Case, DeviceFacts
from simnmt.papers.fni.devices import BEAMS, Decoder
from simnmt.papers.fni.published import BEAM, FUSED, GAINS, OUTPUT_LAYER, OUTPUT_SHARE, SETS, Row, case_name, derived
from simnmt.papers.fni.simulation import STRATEGIES, Gain
from simnmt.papers.kit.claims import (
    Claim,
    Effect,
    Facts,
    Printed,
    Result,
    Undecided,
    about,
    above,
    at_least,
    between,
    end_to_end,
    of_paper,
)
from simnmt.results.statistics import Estimate

if TYPE_CHECKING:
    from simnmt.calibrate.decoder_speeds import RealSpeed

LEAST_RATIO = 1.5
"""Least speed-up of the three steps at beam 5, and more at beam 1 (FNI-15's accept)."""
SAME_PRODUCT = 5.0
"""Largest change of the product's time, percent (FNI-15's accept)."""
NEAR_PREDICTED = 0.10
"""Largest relative difference of Amdahl's prediction from the measured speed-up (FNI-17's accept)."""
NEAR_PRODUCT = 0.02
"""Largest difference of the gain of both from the product of both gains."""
NEAR_SHARE = between(OUTPUT_SHARE - 0.10, OUTPUT_SHARE + 0.10)
"""Shares of the time that are `nearly 70 %`."""
LEAST_EFFECT = 0.01
"""Smallest difference of gains that step costs can distinguish from none: the costs of the shipped profile are measured to
within some percent, so a difference of a few hundredths of a percent, such as between two sets, means nothing."""
SMALL = f"a difference within {100 * LEAST_EFFECT:.0f} point is less than step costs can tell"


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1.0):+.1f} %"


def _changes(_: Printed) -> Result:
    wrong = [row for row in OUTPUT_LAYER if abs(row.printed_product_percent - row.product_percent) > 0.06]
    ours = "; ".join(f"{row.product_percent:+.2f} %, {case_name(row.beam, row.set)}" for row in wrong)
    return Result(not wrong, ours, "seven of the eight do; a decimal point slipped")


def _product_of_gains(_: Printed) -> Result:
    both = derived()["opensubtitles: fused times topped up"].value
    near = abs(both / 100.0 - GAINS["both", "opensubtitles"]) <= NEAR_PRODUCT
    return Result(near, f"{both:.1f} % from 1.41 times 1.12", "of 41 % and 12 %, each 'up to'")


def _share_and_gain(_: Printed) -> Result:
    implied = {beam: derived()[f"europarl, beam {beam}: gain if the output layer has 70 %"].value for beam in (5, 1)}
    ours = "; ".join(f"{value:.1f} % at beam {beam}" for beam, value in implied.items())
    why = "Amdahl's prediction from the printed share and seconds exceeds the claimed gain"
    return Result(max(implied.values()) <= 100 * GAINS["fused", "europarl"] + 1.0, ours, why)


PRINTED_CLAIMS: list[Claim[Printed]] = of_paper(
    FUSED,
    [
        Claim("FNI-15 (d)", value=_changes),
        Claim("FNI-16 (m)", value=_product_of_gains),
        Claim("FNI-17 (d)", value=_share_and_gain),
    ],
)


@dataclass(frozen=True)
class RealDecoder(Facts):
    """A real decoder on this box."""

    speeds: Sequence[RealSpeed]
    device = "this box, real decoder"


def predicted_speed_up(real_speed: RealSpeed) -> float:
    """Return Amdahl's prediction of the speed-up of a real decoder by fusing (XP-07).

    Uses the output layer's share, measured while decoding, and the layer's speed-up, timed separately.
    """
    return end_to_end(real_speed.layer_share, real_speed.layer_s / real_speed.fused_layer_s)


def _same_translations(real: RealDecoder) -> Result:
    def sameness(speed: RealSpeed) -> str:
        counts = [f"{speed.equal} of {speed.sentences} the same"]
        counts += [f"{speed.near_ties} near ties"] if speed.near_ties else []
        counts += [f"{speed.disagreements} differ without one"] if speed.disagreements else []
        return ", ".join(counts)

    ours = "; ".join(f"{case_name(speed.beam, speed.test_set)}: {sameness(speed)}" for speed in real.speeds)
    why = "of sentences that end by themselves; a near tie, closer than 1e-4, may fall either way and is allowed"
    return Result(not any(speed.disagreements for speed in real.speeds), ours, why)


def _as_predicted(real: RealDecoder) -> Result:
    near, no_gain = about(1.0, NEAR_PREDICTED), []
    effects: dict[str, Effect] = {}
    texts = []
    for place, speed in enumerate(real.speeds):
        name, predicted = case_name(speed.beam, speed.test_set), predicted_speed_up(speed)
        texts.append(f"{name}: {_percent(speed.ratio)}, predicted {_percent(predicted)}")
        effects[f"{name} ({place})"] = [predicted / ratio for ratio in speed.ratios]
        no_gain += [name] if all(near.allows(1.0 / ratio) for ratio in speed.ratios) else []
    why = "each round's ratio against the prediction"
    why += f"; no test where a prediction of no gain passes too: {'; '.join(no_gain)}" if no_gain else ""
    return Result(effects, "; ".join(texts), why, words=None)


REAL_CLAIMS: list[Claim[RealDecoder]] = of_paper(
    FUSED,
    [
        Claim("FNI-11", value=_same_translations),
        Claim("FNI-17 (c)", value=_as_predicted, holds=about(1.0, NEAR_PREDICTED)),
    ],
)
NO_DECODER = Undecided("give --measure to time a real decoder", "needs --measure")


@dataclass(frozen=True)
class Layers(DeviceFacts):
    """The output layer of one device, with the fused kernel and without."""

    stages: Mapping[tuple[int, str], Row] = field(kw_only=True)
    """See `simulation.stages`, by beam and set."""

    def over(self, beam: int, test_set: str, strategy: str, *, fused: bool = True) -> Gain:
        """Return the gain over mini- or maxi-batching without the fused kernel."""
        return self.gain(beam, test_set, strategy, STRATEGIES[strategy].baseline, fused, False)

    @property
    def product_changed(self) -> bool:
        """True if the product was timed beside the fused kernel too."""
        return any(row.product_percent for row in self.stages.values())

    def predictions(self) -> str:
        """Return the predicted gains with the product's blocks, and with the product left alone as in the paper."""
        texts = [
            f"{case_name(beam, key)}: {100 * (row.predicted - 1.0):+.1f}, {_percent(row.predicted_product_left_alone)}"
            for (beam, key), row in self.stages.items()
        ]
        return f"gain predicted with the product's blocks, and with the product left alone: {'; '.join(texts)}"

    def beyond(self, decoder: Decoder, test_set: str) -> Undecided | None:
        """Return the reason why speeds decide nothing."""
        return self.undecided(decoder, test_set, costs=False, refills=False)


Judge = Callable[[Layers], Result]


def _stage(column: str, form: str, sets: Sequence[str] = tuple(SETS), beams: Sequence[int] = ()) -> Judge:
    """Return what measures one column of the stages."""

    def value(layers: Layers) -> Result:
        def case(beam: int, test_set: str) -> Case:
            figure = float(getattr(layers.stages[beam, test_set], column))
            return format(figure, form).replace("%", " %"), figure

        return layers.by_case(case, sets, beams, why=f"V {layers.decoders[0].profile.model.vocab:,}")

    return value


def _larger_at_beam_1(layers: Layers) -> Result:
    if {*BEAMS} - {decoder.beam for decoder in layers.decoders}:
        raise Undecided(f"beams 1 and {BEAM} were not both measured")
    ratios = {printed.name: [layers.stages[beam, key].ratio for beam in BEAMS] for key, printed in SETS.items()}
    ours = "; ".join(f"{name}: beam 1 {small:.2f}, beam {BEAM} {large:.2f}" for name, (small, large) in ratios.items())
    why = (
        "at beam 1 our plain decoder takes no softmax either (FNI-06) and adds the bias within the product, so only the search "
    )
    why += "for the largest value of each row is left to fuse"
    return Result({name: small - large for name, (small, large) in ratios.items()}, ours, why)


def _product_change(layers: Layers) -> Result:
    if not layers.product_changed:
        raise Undecided("the product was timed once, for both")

    def case(beam: int, test_set: str) -> Case:
        percent = layers.stages[beam, test_set].product_percent
        return f"{percent:+.1f} %", percent

    why = "our fused layer multiplies block by block, which plain torch does not"
    return layers.by_case(case, why=f"{why}; {layers.predictions()}")


def _larger_share(layers: Layers) -> Result:
    def case(beam: int, test_set: str) -> Case:
        share, europarl = (layers.stages[beam, key].output_share for key in (test_set, "europarl"))
        return f"{100 * share:.1f} %, Europarl {100 * europarl:.1f} %", share - europarl

    return layers.by_case(case, ("opensubtitles",))


def _beyond_noise(*effects: NDArray[np.float64]) -> Estimate:
    """Return the least of several effects by seed, `LEAST_EFFECT` wider on both sides."""
    least = np.min(effects, axis=0)
    return Estimate(float(least.mean()), float(least.min()) - LEAST_EFFECT, float(least.max()) + LEAST_EFFECT)


def _faster(layers: Layers) -> Result:
    """Judge a gain that fusing alone, with the product unchanged, must show as well."""
    otherwise = []

    def case(beam: int, test_set: str) -> Case:
        gained, effect = layers.over(beam, test_set, "mini"), _beyond_noise(layers.over(beam, test_set, "mini").by_seed)
        by_fusing = layers.stages[beam, test_set].predicted_product_left_alone - 1.0 > LEAST_EFFECT
        if effect.low is not None and effect.low > 0.0 and not by_fusing:
            otherwise.append(case_name(beam, test_set))
            return gained.percent(), False
        return gained.percent(), effect

    result = layers.by_case(case, undecided=layers.beyond)
    causes = f"by another cause than fusing: {', '.join(otherwise)}" if otherwise else ""
    predictions = layers.predictions() if layers.product_changed else ""
    return Result(result.effects, result.ours, "; ".join(filter(None, [causes, SMALL, predictions])), result.words)


def _speed(case: Callable[[Layers, int, str], Case], sets: Sequence[str] = tuple(SETS), why: str = SMALL) -> Judge:
    """Return what judges speeds case by case."""
    return lambda layers: layers.by_case(lambda *at: case(layers, *at), sets, undecided=layers.beyond, why=why)


def _more_than_europarl(layers: Layers, beam: int, test_set: str) -> Case:
    gained, europarl = (layers.over(beam, key, "mini") for key in (test_set, "europarl"))
    return f"{gained.percent()}, Europarl {europarl.percent()}", _beyond_noise(gained.by_seed - europarl.by_seed)


def _both_and_each(layers: Layers, beam: int, test_set: str) -> tuple[Gain, Gain, Gain]:
    both, fused = (layers.over(beam, test_set, strategy) for strategy in ("half-empty", "mini"))
    return both, fused, layers.over(beam, test_set, "half-empty", fused=False)


def _both_beyond_either(layers: Layers, beam: int, test_set: str) -> Case:
    both, fused, topped_up = _both_and_each(layers, beam, test_set)
    text = f"{both.percent()}, fused {100 * fused.mean:+.1f} %, topped up {100 * topped_up.mean:+.1f} %"
    return text, _beyond_noise(both.by_seed - fused.by_seed, both.by_seed - topped_up.by_seed)


def _less_with_maxi(layers: Layers, beam: int, test_set: str) -> Case:
    both, with_maxi = (layers.over(beam, test_set, strategy) for strategy in ("half-empty", "maxi half-empty"))
    return f"{with_maxi.percent()}, without {both.percent()}", _beyond_noise(both.by_seed - with_maxi.by_seed)


def _as_product(layers: Layers, beam: int, test_set: str) -> Case:
    both, fused, topped_up = _both_and_each(layers, beam, test_set)
    product = (1.0 + fused.mean) * (1.0 + topped_up.mean) - 1.0
    return f"{100 * both.mean:+.1f} %, product {100 * product:+.1f} %", abs(both.mean - product) <= NEAR_PRODUCT


DEVICE_CLAIMS: list[Claim[Layers]] = of_paper(
    FUSED,
    [
        Claim("FNI-15 (a)", value=_stage("ratio", ".2f", beams=(BEAM,)), holds=at_least(LEAST_RATIO)),
        Claim("FNI-15 (b)", value=_larger_at_beam_1, holds=above(0.0)),
        Claim("FNI-15 (c)", value=_product_change, holds=between(-SAME_PRODUCT, SAME_PRODUCT)),
        Claim("FNI-17 (a)", value=_stage("output_share", ".1%", ("europarl",)), holds=NEAR_SHARE),
        Claim("FNI-17 (b)", value=_larger_share, holds=above(0.0)),
        Claim("FNI-16 (h)", value=_faster, holds=above(0.0)),
        Claim("FNI-16 (i)", value=_speed(_more_than_europarl, ("opensubtitles",)), holds=above(0.0)),
        Claim("FNI-16 (j)", value=_speed(_both_beyond_either), holds=above(0.0)),
        Claim("FNI-16 (k)", value=_speed(_less_with_maxi), holds=above(0.0)),
        Claim("FNI-16 (l)", value=_speed(_as_product, why="")),
    ],
)
