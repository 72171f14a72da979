"""The fused output layer: what follows from the printed seconds, stages on a device, and the claims (FNI-02, 11, 15 to 17)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from simnmt.papers.fni.simulation import (
    BEAM,
    BEAMS,
    FUSED,
    SEEDS,
    SETS,
    STRATEGIES,
    VOCAB,
    Decoder,
    Device,
    Row,
    by_case,
    case_name,
    gains,
    lengths_of,
    span,
)
from simnmt.papers.kit import claims as kit
from simnmt.papers.kit.claims import Claim, Effect, Facts, Printed, Result, Undecided, end_to_end, share_needed
from simnmt.papers.kit.rendering import Derived
from simnmt.profile.profile_variant import DecoderChoice
from simnmt.results.device_accounts import BatchAccount
from simnmt.world.engine import decode_all

GAINS = FUSED.table("gains")
OUTPUT_SHARE: float = FUSED["output_share"]
LEAST_RATIO = 1.5
"""Least speed-up of the three steps at beam 5, and more at beam 1 (FNI-15's accept)."""
SAME_PRODUCT = 5.0
"""Largest change of the product's time, percent (FNI-15's accept)."""
NEAR_PREDICTED = kit.about(1.0, 0.10)
"""Amdahl's prediction over the measured speed-up (FNI-17's accept)."""
NEAR_SHARE = kit.between(OUTPUT_SHARE - 0.10, OUTPUT_SHARE + 0.10)
"""Shares of the time that are `nearly 70 %`."""
NEAR_PRODUCT = 0.02
"""Largest difference of the gain of both from the product of both gains."""
LEAST_EFFECT = 0.01
"""Smallest difference of gains that step costs can distinguish from none: the costs of the shipped profile are measured to
within some percent, so a difference of a few hundredths of a percent, such as between two sets, means nothing."""


# Seconds of the output layer.


def with_ratios(layer: Row) -> dict[str, Any]:
    """Return seconds of the output layer of a set and a beam with changes, and speed-ups of three steps and layer (FNI-15).

    `product_fused_s`: the product beside the fused kernel; `three_s`: bias, softmax and search, one after the other; `fused_s`:
    the same in one kernel.
    """
    return {
        **layer,
        "product_percent": 100.0 * (layer["product_fused_s"] / layer["product_s"] - 1.0),
        "fused_percent": 100.0 * (layer["fused_s"] / layer["three_s"] - 1.0),
        "ratio": layer["three_s"] / layer["fused_s"],
        "layer_ratio": (layer["product_s"] + layer["three_s"]) / (layer["product_fused_s"] + layer["fused_s"]),
    }


OUTPUT_LAYER = [
    with_ratios(
        {"source": "published", "kind": "published", "exact": True, **row}
        | {"three_s": row["bias_s"] + row["softmax_s"] + row["search_s"]}
    )
    for row in FUSED.table("table-2-3").rows
]
"""Tables 2 and 3."""
PARTS = ("encode_s", "body_s", "product_s", "three_s")
"""The parts of the time without the fused kernel (figures 1 and 5): encoder, decoder below, product, and the three steps."""


def with_prediction(seconds: Row, output_share: float) -> dict[str, Any]:
    """Return stages with the ratios of `with_ratios`, the output layer's share, and Amdahl's speed-ups of the whole (FNI-17).

    One has the product as measured beside the fused kernel (XP-07), one unchanged, as in the paper: the gain of fusing alone.
    """
    row = with_ratios(seconds)
    share_of_three = output_share * row["three_s"] / (row["product_s"] + row["three_s"])
    return row | {
        "output_share": output_share,
        "predicted": end_to_end(output_share, row["layer_ratio"]),
        "predicted_product_left_alone": end_to_end(share_of_three, row["ratio"]),
    }


def with_shares(seconds: Row) -> dict[str, Any]:
    total_s = sum(seconds[part] for part in PARTS)
    return with_prediction({**seconds, "total_s": total_s}, (seconds["product_s"] + seconds["three_s"]) / total_s)


def stages(plain: Decoder, fused: Decoder, test_set: str, sentences: int | None = None, seed: int = SEEDS[0]) -> dict[str, Any]:
    """Return the seconds of each stage over one set, as drawn with a seed, with what `with_shares` adds.

    Shares of a step are those of the decoder's variants, which were measured side by side; the level is that of the
    calibrated steps, so a step without its output layer never takes less than 0 s.
    """
    batching = STRATEGIES["maxi"](plain.batch)  # the paper's setting
    account = decode_all(batching, plain.cost, *lengths_of(test_set, seed, sentences)).account
    assert plain.choice is not None and fused.choice is not None
    seconds = {
        name: over_steps(choice, stage, plain.choice, account)
        for choice, names in ((plain.choice, ("product_s", "three_s")), (fused.choice, ("product_fused_s", "fused_s")))
        for name, stage in zip(names, ("product_s", "search_s"), strict=True)
    }
    seconds["encode_s"] = account.encode_s + account.refill_s
    seconds["body_s"] = float(account.step_s.sum()) - seconds["product_s"] - seconds["three_s"]
    names = {"source": plain.device, "kind": fused.shown_kind, "set": test_set, "beam": plain.beam, "exact": fused.choice.exact}
    return with_shares(names | seconds)


def over_steps(choice: DecoderChoice, stage: str, base: DecoderChoice, account: BatchAccount) -> float:
    """Return seconds of a stage over all steps: the share of `of`'s step at each size, times the seconds of those steps.

    Shares are interpolated linearly between the measured batch sizes.
    """

    def seconds(choice: DecoderChoice, part: str) -> Any:
        sizes, at_sizes = [step.batch for step in choice.steps], [getattr(step, part) for step in choice.steps]
        return np.interp(np.arange(account.size + 1), sizes, at_sizes)

    return float(np.dot(account.step_s, seconds(choice, stage) / seconds(base, "step_s")))


def memory_traffic(vocab: int, *, fused: bool) -> int:
    """Return the elements that bias, softmax and 1-best move for one hypothesis (FNI-02).

    Unfused, the products are read five times and written twice, and the bias is read once; fused, both are read once.
    """
    return 2 * vocab if fused else 8 * vocab


def derived() -> dict[str, Derived]:
    """Return figures that follow from memory traffic, Tables 2 and 3 and the shares (FNI-02, FNI-15 to 17)."""
    limit = memory_traffic(VOCAB, fused=False) / memory_traffic(VOCAB, fused=True)
    beyond = " and ".join(f"{row['ratio']:.2f}" for row in OUTPUT_LAYER if row["ratio"] > limit)
    traffic = (
        f"8V over 2V elements, the most that bandwidth allows; {beyond} of beam 1 exceed it, as they skip the probabilities"
    )
    both = (1.0 + GAINS["fused", "opensubtitles"]) * (1.0 + GAINS["topped up", "opensubtitles"])
    alone = (1.0 + GAINS["both", "europarl"]) / (1.0 + GAINS["fused", "europarl"])
    figures = [Derived("memory traffic of the three steps over the fused one's", limit, "times", traffic)]
    for key, what in (("ratio", "three steps over fused"), ("layer_ratio", "whole output layer")):
        figures += [Derived(f"{_place(row)}: {what}", row[key], "times", "FNI-15") for row in OUTPUT_LAYER]
    ordered = sorted(OUTPUT_LAYER, key=lambda row: (row["set"], -row["beam"]))
    for row in ordered[: len(BEAMS)]:  # of Europarl
        gain = 100 * (end_to_end(OUTPUT_SHARE, row["layer_ratio"]) - 1)
        figures.append(Derived(f"{_place(row)}: gain if the output layer has 70 %", gain, "%", "at most 23 %"))
    for row in ordered:
        claimed = GAINS["fused", row["set"]]
        share, what = share_needed(1.0 + claimed, row["layer_ratio"]), f"share that a gain of {100 * claimed:.0f} % needs"
        figures.append(Derived(f"{_place(row)}: {what}", 100 * share, "%", "nearly 70 % of Europarl, by the text"))
    figures.append(Derived("opensubtitles: fused times topped up", 100 * (both - 1), "%", "claimed together: up to 57 %"))
    figures.append(Derived("europarl: both over fused, so topped up alone", 100 * (alone - 1), "%", "not printed"))
    return {figure.what: figure for figure in figures}


def _place(row: Row) -> str:
    return f"{row['set']}, beam {row['beam']}"


# The claims on the printed figures.


def _changes(_: Printed) -> Result:
    wrong = [row for row in OUTPUT_LAYER if abs(row["printed_product_percent"] - row["product_percent"]) > 0.06]
    return Result(
        not wrong, "; ".join(f"{row['product_percent']:+.2f} %, {case_name(row['beam'], row['set'])}" for row in wrong)
    )


def _product_of_gains(_: Printed) -> Result:
    both = derived()["opensubtitles: fused times topped up"].value
    near = abs(both / 100.0 - GAINS["both", "opensubtitles"]) <= NEAR_PRODUCT
    return Result(near, facts={"both": both})


def _share_and_gain(_: Printed) -> Result:
    implied = {beam: derived()[f"europarl, beam {beam}: gain if the output layer has 70 %"].value for beam in (5, 1)}
    ours = "; ".join(f"{value:.1f} % at beam {beam}" for beam, value in implied.items())
    return Result(max(implied.values()) <= 100 * GAINS["fused", "europarl"] + 1.0, ours)


PRINTED_CLAIMS: list[Claim[Printed]] = kit.of_paper(
    FUSED,
    [
        Claim("FNI-15 (d)", value=_changes),
        Claim("FNI-16 (m)", value=_product_of_gains),
        Claim("FNI-17 (d)", value=_share_and_gain),
    ],
)


# The claims on a real decoder.


@dataclass(frozen=True)
class RealDecoder(Facts):
    """A real decoder on this box."""

    speeds: Sequence[Row]
    """See `real_decoder.fused_speeds`."""
    device = "this box, real decoder"


def _same_translations(real: RealDecoder) -> Result:
    ours = "; ".join(
        f"{case_name(row['beam'], row['set'])}: {row['equal']} of {row['sentences']} the same, {row['near_ties']} near ties, "
        f"{row['disagreements']} differ without one"
        for row in real.speeds
    )
    return Result(not any(row["disagreements"] for row in real.speeds), ours)


def _as_predicted(real: RealDecoder) -> Result:
    effects: dict[str, Effect] = {}
    texts, no_gain = [], []
    for place, row in enumerate(real.speeds):
        name = case_name(row["beam"], row["set"])
        texts.append(f"{name}: {_percent(row['ratio'])}, predicted {_percent(row['predicted'])}")
        effects[f"{name} ({place})"] = [row["predicted"] / ratio for ratio in row["ratios"]]
        no_gain += [name] if all(NEAR_PREDICTED.allows(1.0 / ratio) for ratio in row["ratios"]) else []
    return Result(effects, "; ".join(texts), words=None, facts={"no_gain": "; ".join(no_gain) or "none"})


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1.0):+.1f} %"


REAL_CLAIMS: list[Claim[RealDecoder]] = kit.of_paper(
    FUSED, [Claim("FNI-11", value=_same_translations), Claim("FNI-17 (c)", value=_as_predicted, holds=NEAR_PREDICTED)]
)
NO_DECODER = Undecided("give --measure to time a real decoder", "needs --measure")


# The claims on devices.


class Layers(Device):
    """The output layer of one device, with the fused kernel and without."""

    def __init__(self, *speeds: Any, stages: Mapping[tuple[int, str], Sequence[Row]]) -> None:
        """Take the arguments of `Device`, and the rows of `stages` of each seed by beam and set."""
        super().__init__(*speeds)
        self.stages = {place: rows[0] for place, rows in stages.items()}
        self.shares = {place: np.array([row["output_share"] for row in rows]) for place, rows in stages.items()}
        """The output layer's share of the time by seed."""
        # With the product's blocks, and with the product left alone as in the paper.
        predictions = (
            f"{case_name(beam, key)}: {_percent(row['predicted'])[:-2]}, {_percent(row['predicted_product_left_alone'])}"
            for (beam, key), row in self.stages.items()
        )
        self.facts = {"vocab": self.decoders[0].profile.model.vocab, "predictions": "; ".join(predictions)}


def _stage(column: str, form: str, sets: Sequence[str] = tuple(SETS), beams: Sequence[int] = ()) -> Callable[[Layers], Result]:
    @by_case(sets, beams, timed=False)
    def judge(layers: Layers, beam: int, test_set: str) -> tuple[str, Effect]:
        figure = float(layers.stages[beam, test_set][column])
        return format(figure, form).replace("%", " %"), figure

    return judge


def _larger_at_beam_1(layers: Layers) -> Result:
    if {*BEAMS} - {decoder.beam for decoder in layers.decoders}:
        raise Undecided(f"beams 1 and {BEAM} were not both measured")
    ratios = {printed.name: [layers.stages[beam, key]["ratio"] for beam in BEAMS] for key, printed in SETS.items()}
    ours = "; ".join(f"{name}: beam 1 {small:.2f}, beam {BEAM} {large:.2f}" for name, (small, large) in ratios.items())
    return Result({name: small - large for name, (small, large) in ratios.items()}, ours)


@by_case(timed=False)
def _product_change(layers: Layers, beam: int, test_set: str) -> tuple[str, Effect]:
    if not any(row["product_percent"] for row in layers.stages.values()):
        raise Undecided("the product was timed once, for both")
    percent = layers.stages[beam, test_set]["product_percent"]
    return f"{percent:+.1f} %", percent


@by_case(("opensubtitles",), costs=False, refills=False)
def _larger_share(layers: Layers, beam: int, test_set: str) -> tuple[str, Effect]:
    share, europarl = (layers.shares[beam, key] for key in (test_set, "europarl"))
    return f"{100 * share[0]:.1f} %, Europarl {100 * europarl[0]:.1f} %", span(share - europarl)


@by_case(costs=False, refills=False)
def _faster(layers: Layers, beam: int, test_set: str) -> tuple[str, Effect]:
    """Judge a gain that fusing alone, with the product unchanged, must show as well."""
    gained = layers.gain(beam, test_set, *IF_FUSED)
    by_fusing = layers.stages[beam, test_set]["predicted_product_left_alone"] - 1.0 > LEAST_EFFECT
    if gained.by_seed.min() > LEAST_EFFECT and not by_fusing:
        return f"{gained} by another cause than fusing", False
    return str(gained), span(gained.by_seed, LEAST_EFFECT)


@by_case(("opensubtitles",), costs=False, refills=False)
def _more_than_europarl(layers: Layers, beam: int, test_set: str) -> tuple[str, Effect]:
    gained, europarl = (layers.gain(beam, key, *IF_FUSED) for key in (test_set, "europarl"))
    return f"{gained}, Europarl {europarl}", span(gained.by_seed - europarl.by_seed, LEAST_EFFECT)


@by_case(costs=False, refills=False)
def _as_product(layers: Layers, beam: int, test_set: str) -> tuple[str, Effect]:
    both, fused, topped_up = (layers.gain(beam, test_set, *runs).mean for runs in (BOTH, IF_FUSED, TOPPED_UP))
    product = (1.0 + fused) * (1.0 + topped_up) - 1.0
    return f"{100 * both:+.1f} %, product {100 * product:+.1f} %", abs(both - product) <= NEAR_PRODUCT


IF_FUSED, TOPPED_UP = ("mini, fused", "mini"), ("half-empty", "mini")
BOTH, WITH_MAXI = ("half-empty, fused", "mini"), ("maxi half-empty, fused", "maxi")
_more = partial(gains, noise=LEAST_EFFECT, costs=False, refills=False)
DEVICE_CLAIMS: list[Claim[Layers]] = kit.of_paper(
    FUSED,
    [
        Claim("FNI-15 (a)", value=_stage("ratio", ".2f", beams=(BEAM,)), holds=kit.at_least(LEAST_RATIO)),
        Claim("FNI-15 (b)", value=_larger_at_beam_1, holds=kit.above(0.0)),
        Claim("FNI-15 (c)", value=_product_change, holds=kit.between(-SAME_PRODUCT, SAME_PRODUCT)),
        Claim("FNI-17 (a)", value=_stage("output_share", ".1%", ("europarl",)), holds=NEAR_SHARE),
        Claim("FNI-17 (b)", value=_larger_share, holds=kit.above(0.0)),
        Claim("FNI-16 (h)", value=_faster, holds=kit.above(0.0)),
        Claim("FNI-16 (i)", value=_more_than_europarl, holds=kit.above(0.0)),
        Claim(
            "FNI-16 (j)",
            value=_more(BOTH, IF_FUSED, TOPPED_UP, ours="{0}, fused {1.text}, topped up {2.text}"),
            holds=kit.above(0.0),
        ),
        Claim("FNI-16 (k)", value=_more(BOTH, WITH_MAXI, ours="{1}, without {0}"), holds=kit.above(0.0)),
        Claim("FNI-16 (l)", value=_as_product),
    ],
)
