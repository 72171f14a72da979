"""The facts of this box and of a trained model, and the claims on the sharp decoder that they decide (SHARP-05, 08 to 18).

The predictions count operations at measured rates (SHARP-11, 13, 15, XP-07): the time of a word is the sum of its products by
weights, its products over the source states at the rate of one row, attention's sums at the rate of float32, activations, and
a remainder: the baseline's time beyond these parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np

from simnmt.papers.kit import claims as kit
from simnmt.papers.kit.claims import Claim, ClaimRecord, Effect, Facts, Printed, Result, Undecided, quartiles
from simnmt.papers.kit.paper import read_paper
from simnmt.papers.kit.rendering import Derived

if TYPE_CHECKING:
    from simnmt.calibrate.sharp_agreement import RungAgreement
    from simnmt.calibrate.sharp_speeds import DecoderTime, ProductTime, SharpSpeeds

PAPER = read_paper("sharp")
LADDER, SYSTEMS = PAPER.table("table-1"), PAPER.table("table-2")
RUNGS: list[str] = LADDER.column("key")
UNIQUE_SHARE: float = PAPER["unique_share"]
LEAST_SAME = 0.999
"""Least share of the words that all rungs together leave the same (SHARP-10)."""
ORDER = (("S1",), ("S3",), ("S2", "S4"), ("S5", "S6"), ("S7",))
"""Systems by speed, in groups of about the same speed (SHARP-15's accept)."""


# What follows from the printed figures.


def printed_over(one: str, other: str, table: Any = SYSTEMS) -> float:
    """Return the printed speed of one system, or rung, over another's."""
    return float(table[one, "words_per_s"] / table[other, "words_per_s"])


def printed_factor(rung: str) -> float:
    """Return a rung's speed over the baseline's, from the printed speeds."""
    return printed_over(rung, RUNGS[0], LADDER)


def printed_step(rung: str) -> float | None:
    """Return a rung's speed over the rung before it, from the printed speeds; None for the first rung."""
    place = RUNGS.index(rung)
    return printed_over(rung, RUNGS[place - 1], LADDER) if place else None


def implied_baselines() -> tuple[tuple[float, float], tuple[float, float]]:
    """Return two ranges (least, greatest) of the baseline's unrounded speed, in words a second.

    The first gives all printed factors but the odd one, and would print as 96; the second gives the odd one. They do not
    meet (SHARP-11).
    """
    ranges = {
        row["key"]: ((row["words_per_s"] - 0.5) / (row["factor"] + 0.005), (row["words_per_s"] + 0.5) / (row["factor"] - 0.005))
        for row in LADDER.rows[1:]
    }
    odd = ranges.pop(PAPER["odd_factor"])
    return (max(low for low, _ in ranges.values()), min(high for _, high in ranges.values())), odd


def derived() -> list[Derived]:
    """Return the figures that follow from Table 2 (SHARP-13, 14, 15, 17)."""
    word_ms = {row["key"]: 1e3 / row["words_per_s"] for row in SYSTEMS.rows}
    bleu = {row["key"]: row["bleu"] for row in SYSTEMS.rows}
    pairs = (("S4", "S3", 4), ("S6", "S4", 8))
    fc_ms = {f"{deep} and {shallow}": (word_ms[deep] - word_ms[shallow]) / layers for deep, shallow, layers in pairs}
    gru_ms, wider = word_ms["S2"] - word_ms["S1"], (1024 / 768) ** 2
    return [
        *(Derived(f"one 768-FC layer, from {pair}", ms, "ms", "SHARP-13") for pair, ms in fc_ms.items()),
        *(
            Derived(f"a 1024-GRU layer over a 1024-FC layer, FC from {pair}", gru_ms / (ms * wider), "times", "6 by matrices")
            for pair, ms in fc_ms.items()
        ),
        Derived("E1's speed over half of S4's", 2 * printed_over("E1", "S4"), "times", "two members in sequence: 1"),
        Derived("E2's speed over a third of S4's", 3 * printed_over("E2", "S4"), "times", "three members in sequence: 1"),
        Derived("E1's speed over S7's", printed_over("E1", "S7"), "times", "over 3 times, by the text"),
        Derived("S4's speed over S2's", printed_over("S4", "S2"), "times", "similar cost, by the text"),
        Derived("BLEU of S4 over S1", bleu["S4"] - bleu["S1"], "points", "1.2, by the text"),
        Derived("BLEU of S2 over S1", bleu["S2"] - bleu["S1"], "points", "half of it, by the text"),
        Derived("BLEU of E1 over S4", bleu["E1"] - bleu["S4"], "points", "0.9, by the text"),
    ]


# What counting predicts.


def product_share(speeds: SharpSpeeds) -> float:
    """Return the share of the baseline's time in products by weights, at the packed float32 product's rate.

    A share above 1 means that products alone ran slower than in the decoder, and predicts nothing.
    """
    baseline = speeds.ladder["polynomial"][0]
    return _products_s(speeds, baseline) / baseline.word_s


def product_gain(speeds: SharpSpeeds) -> float:
    """Return the speed-up of the second rung's products over the baseline's, by measured rates."""
    baseline, int16, *_ = speeds.ladder["polynomial"]
    return _products_s(speeds, baseline) / _products_s(speeds, int16)


def predicted_int16(speeds: SharpSpeeds) -> float | None:
    """Predict the second rung's speed-up by Amdahl's law from the products' share and speed-up (XP-07); None above share 1."""
    part = product_share(speeds)
    return kit.end_to_end(part, product_gain(speeds)) if part <= 1.0 else None


def predicted_ladder(speeds: SharpSpeeds, ladder: Sequence[DecoderTime]) -> list[float]:
    """Return the predicted speed-up of each rung over the baseline."""

    def counted_s(rung: DecoderTime) -> float:
        return (
            _products_s(speeds, rung)
            + rung.attention * _multiply_add_s(_nearest_product(speeds, speeds.setting.beam, cold=False), "float32")
            + rung.activations * speeds.activation_s[rung.settings.activations]
        )

    # Some operations are not counted; if the counted ones take longer than was measured, the remainder is 0.
    rest_s = max(ladder[0].word_s - counted_s(ladder[0]), 0.0)
    return [(counted_s(ladder[0]) + rest_s) / (counted_s(rung) + rest_s) for rung in ladder]


def predicted_over(system: DecoderTime, other: DecoderTime) -> float:
    """Predict the speed-up of `system` over `other` by multiply-adds alone."""
    return other.multiply_adds / system.multiply_adds


def _products_s(speeds: SharpSpeeds, decoder: DecoderTime) -> float:
    """Return the seconds of a word's products, at the rate of the cache if it holds all weights, else of the memory."""
    name, size = ("int16", 2) if decoder.settings.gemm == "int16" else ("float32", 4)
    beam = decoder.settings.beam
    cold = size * decoder.products / beam > speeds.cache_bytes
    weights_s = decoder.products * _multiply_add_s(_nearest_product(speeds, beam, cold=cold), name)
    # The state weights of a source layer stay in the cache from one position to the next.
    return weights_s + decoder.source_recurrent * _multiply_add_s(_nearest_product(speeds, 1, cold=False), name)


def _nearest_product(speeds: SharpSpeeds, rows: int, *, cold: bool) -> ProductTime:
    return min((item for item in speeds.products if item.cold == cold), key=lambda item: abs(item.batch - rows))


def _multiply_add_s(item: ProductTime, name: str) -> float:
    return item.median_s(name) / (item.batch * item.size**2)


# Facts and claims.


@dataclass(frozen=True)
class Box(Facts):
    """The timings of this box; effects are quartiles over rounds."""

    speeds: SharpSpeeds
    agreements: Sequence[RungAgreement] = ()
    device = "this box"

    @property
    def known(self) -> dict[str, DecoderTime]:
        """The timed systems by key."""
        return {time.key: time for time in self.speeds.systems}

    def lacks(self, need: str) -> Undecided | None:
        """Return which of the systems named in `need` were not timed."""
        absent = [key for key in need.split() if key not in self.known]
        return Undecided(f"{', '.join(absent)} not timed") if absent else None

    def ratio(self, one: str, other: str) -> tuple[float, ...]:
        """Return the speed of one system over another's."""
        return quartiles(self.known[one].ratios(self.known[other]))

    def steps(self) -> dict[str, Effect]:
        """Return the speed of each rung over the rung before it."""
        pairs = pairwise(self.speeds.ladder["polynomial"])
        return {LADDER[time.key, "name"]: quartiles(time.ratios(before)) for before, time in pairs}

    def whole_ladder(self) -> Result:
        """Return the gain of all rungs, which counts only if they keep a trained model's words (SHARP-10)."""
        rungs, table = self.speeds.ladder["polynomial"], self.speeds.ladder["table"]
        gain = quartiles(rungs[-1].ratios(rungs[0]))
        ours = (
            f"{rungs[-1].over(rungs[0]):.2f}; with the paper's table {table[-1].over(table[0]):.2f}. Without the source side "
            f"{rungs[-1].decoder_over(rungs[0]):.2f} and {table[-1].decoder_over(table[0]):.2f}"
        )
        why = "over float32 products packed the same way, which a library's are not; "
        if not self.agreements:
            reason = "speed alone: that the rungs keep a trained model's words needs --model and --text (SHARP-10)"
            return Result({"speed": gain, "words": Undecided("", needed=True)}, ours, why + reason, words=None)
        least = min(rung.share for rung in self.agreements)
        why += f"every rung keeps at least {100 * least:.2f} % of a trained model's words, {100 * LEAST_SAME:.1f} % asked"
        return Result({"speed": gain, "words": least >= LEAST_SAME}, ours, f"{why} (SHARP-10)", words=None)

    def lookup_tables(self) -> Result:
        """Return the gain of the paper's lookup tables, beside that of a polynomial."""
        rungs, table = self.speeds.ladder["polynomial"], self.speeds.ladder["table"]
        place = RUNGS.index("activations")
        before, by_table, by_polynomial = table[place - 1], table[place], rungs[place]
        alone = ", ".join(f"{activation} {1e9 * seconds:.2f}" for activation, seconds in self.speeds.activation_s.items())
        ours = (
            f"table {by_table.over(before):.3f}; beside the paper a polynomial {by_polynomial.over(rungs[place - 1]):.3f}, "
            f"which is {by_polynomial.over(by_table):.3f} over the table; alone, ns an element: {alone}"
        )
        why = "over the library's functions, one element at a time; the table alone is judged"
        return Result(quartiles(by_table.ratios(before)), ours, why)

    def products(self) -> Result:
        """Return the speed of 16-bit products over the library's, by batch."""
        low, high = PAPER["product_batches"]
        judged = [item for item in self.speeds.products if low <= item.batch <= high]
        hot, cold = ([item for item in judged if item.cold == cold] for cold in (False, True))

        def format_ratios(name: str) -> str:
            in_cache, from_memory = (
                ", ".join(f"{item.ratio(name):.2f} at {item.batch}" for item in items) for items in (hot, cold)
            )
            return f"{in_cache}; weights from memory {from_memory}"

        libraries = " or ".join(sorted({item.best_library for item in hot}))
        why = (
            f"the library: {libraries}, whichever is faster; {PAPER['product_ratio'][0]:.0f} is asked. Over float32 packed the "
            f"same way, where half the bytes can give 2, nothing is asked: {format_ratios('float32')}"
        )
        by_batch = {str(item.batch): quartiles(item.ratios("library")) for item in hot}
        return Result(by_batch, f"over the library {format_ratios('library')}", why, words=None)

    def order(self) -> Result:
        """Return the speed ratios of the systems that the paper orders."""
        pairs = [pair for above_, below in pairwise(ORDER) for pair in product(above_, below) if self.known.keys() >= {*pair}]
        ours = ", ".join(f"{time.key} {time.words_per_s:.0f}" for time in self.speeds.systems)
        return Result({f"{one} before {other}": self.ratio(one, other) for one, other in pairs}, ours)

    def similar_cost(self) -> Result:
        """Return the speed of S4 over that of S2."""
        ratio, predicted = self.ratio("S4", "S2"), predicted_over(self.known["S4"], self.known["S2"])
        return Result(ratio, f"{ratio[1]:.2f}; by multiply-adds {predicted:.2f}")

    def layer(self) -> Result:
        """Return the time of a GRU layer over that of a fully connected layer, of the rounds that are not lost in noise."""
        rounds = layer_ratios(self.known)
        ratios = [ratio for ratio in rounds if not np.isnan(ratio)]
        lost = len(rounds) - len(ratios)
        why = "from S2 beyond S1 and S4 beyond S3, round by round"
        why += f", of which {lost} of {len(rounds)} are too noisy" if lost else ""
        if 2 * len(ratios) <= len(rounds):
            return Result(Undecided("too few rounds"), "lost in noise", why)
        return Result(quartiles(ratios), f"1/{np.median(ratios):.2f}", why)

    def per_member(self) -> Result:
        """Return the cost of each ensemble a member, over that of one model."""
        single = self.known["S4"]
        ensembles = [self.known[key] for key in ("E1", "E2")]
        costs = {item.key: quartiles([cost / item.members for cost in single.ratios(item)]) for item in ensembles}
        return Result(costs, "; ".join(f"{item.key} {single.over(item):.2f} times S4" for item in ensembles), words=None)


def layer_ratios(known: Mapping[str, DecoderTime]) -> list[float]:
    """Return the time of a 1024-GRU layer over a 1024-FC layer by round: S2 - S1 over (S4 - S3) / 4, scaled to the width.

    Uses decoder times alone, since the source side of all four systems is the same. A round is NaN if noise leaves one of
    the two layers no time.
    """
    s1, s2, s3, s4 = (np.array(known[key].decoder_s) for key in ("S1", "S2", "S3", "S4"))
    gru_s, fc_s = s2 - s1, (s4 - s3) / 4 * (1024 / 768) ** 2
    ratios: list[float] = np.divide(gru_s, fc_s, out=np.full(len(s1), np.nan), where=(gru_s > 0) & (fc_s > 0)).tolist()
    return ratios


@dataclass(frozen=True)
class Trained(Facts):
    """What each rung changes on a trained model; without one, nothing is known."""

    agreements: Sequence[RungAgreement]
    random_share: float
    """Share of distinct states with random weights."""

    @property
    def device(self) -> str:  # type: ignore[override]
        """Empty without a model."""
        return "a trained model" if self.agreements else ""

    def lacks(self, need: str) -> Undecided | None:
        """Return that a model, or its references, were not given."""
        scored = [rung.bleu is not None for rung in self.agreements]
        if need == "--references" and not (any(scored[1:]) and scored[0]):
            return Undecided(
                "needs a trained model and references: give --model, --text and --references", "needs --references"
            )
        return None if self.agreements else Undecided("needs a trained model: give --model and --text", "needs --model")

    def words_kept(self) -> Result:
        """Return the share of the words that each rung keeps, and whether exact rungs keep all."""
        ours = "; ".join(
            f"{rung.settings.describe()} {100 * rung.share:.2f} % of {rung.tokens:,} words, "
            f"{rung.sentences_same} of {rung.sentences} sentences"
            for rung in self.agreements[1:]
        )
        exact = all(rung.tokens_same == rung.tokens for rung in self.agreements if rung.settings.exact)
        shares = {str(number): rung.share for number, rung in enumerate(self.agreements)}
        why = "likeliest words along the baseline's translations; sentences are translated by themselves"
        return Result({"exact rungs": exact, **shares}, ours, why, words=None)

    def bleu_changes(self) -> Result:
        """Return the change of BLEU by each rung."""
        baseline = self.agreements[0].bleu or 0.0
        changes = {rung.settings.describe(): rung.bleu - baseline for rung in self.agreements[1:] if rung.bleu is not None}
        why = f"of {baseline:.2f} over {self.agreements[0].sentences} sentences, rungs as they add up"
        return Result(changes, why=why, words=None)

    def distinct_states(self) -> Result:
        """Return the share of the hypotheses' previous states that differ."""
        random = f"with random weights {100 * self.random_share:.0f} %"
        if reason := self.lacks("--model"):
            return Result(reason, why=f"{random}, which decides the gain of merging here")
        distinct = self.agreements[-1].distinct_share
        return Result(distinct, f"{100 * distinct:.1f} %", f"mean over sentences, 10 points allowed; {random}")


def _printed_factors(_: Printed) -> Result:
    (low, high), odd = implied_baselines()
    ours = ", ".join(f"{printed_factor(rung):.3f}" for rung in RUNGS)
    why = f"an unrounded baseline of {low:.2f} to {high:.2f}, which prints as 96, gives all but one, which needs "
    return Result(low <= odd[1] and odd[0] <= high, ours, f"{why}{odd[0]:.2f} to {odd[1]:.2f}")


# The bounds are those that SHARP-08 to 18 ask for; the ladder's takes into account that the paper's baseline packs no weights.
BOX_CLAIMS: list[Claim[Box]] = kit.of_paper(
    PAPER,
    [
        Claim("SHARP-11 (a)", value=Box.steps, holds=kit.at_least(0.98), form=".3f"),
        Claim("SHARP-11 (b)", value=Box.whole_ladder, holds=kit.at_least(4.0)),
        Claim("SHARP-08", value=Box.lookup_tables, holds=kit.above(1.0)),
        Claim("SHARP-18", value=Box.products, holds=kit.at_least(PAPER["product_ratio"][0])),
        Claim("SHARP-15 (a)", value=Box.order, holds=kit.above(1.0)),
        Claim("SHARP-17", value=Box.similar_cost, holds=kit.about(1.0, 0.15), needs="S2 S4"),
        Claim("SHARP-13", value=Box.layer, holds=kit.above(3.0), needs="S1 S2 S3 S4"),
        Claim("SHARP-15 (b)", value=lambda box: box.ratio("E1", "S7"), holds=kit.at_least(2.0), needs="E1 S7"),
        Claim("SHARP-14", value=Box.per_member, holds=kit.between(1.0, 1.3), needs="E1 E2 S4"),
    ],
)
PRINTED_CLAIMS: list[Claim[Printed]] = kit.of_paper(PAPER, [Claim("SHARP-11 (c)", value=_printed_factors)])
MODEL_CLAIMS: list[Claim[Trained]] = kit.of_paper(
    PAPER,
    [
        Claim("SHARP-10 (a)", value=Trained.words_kept, holds=kit.at_least(LEAST_SAME), needs="--model"),
        Claim(
            "SHARP-10 (b)",
            value=Trained.bleu_changes,
            holds=kit.Bound(-0.02, 0.02, strict=True),
            form="+.4f",
            needs="--references",
        ),
        Claim("SHARP-09", value=Trained.distinct_states, holds=kit.between(UNIQUE_SHARE - 0.10, UNIQUE_SHARE + 0.10)),
    ],
)


def all_claims(speeds: SharpSpeeds, agreements: Sequence[RungAgreement] = (), *, quick: bool = False) -> list[ClaimRecord]:
    """Return the record of every claim.

    A `quick` look, or one without compiled kernels, decides no claim on speed. `agreements`: of each rung on a trained model.
    """
    measured = kit.judge(BOX_CLAIMS, [Box(speeds, agreements)])
    why = "a quick look" if quick else "" if speeds.level else "without compiled kernels"
    if why:
        measured = [replace(item, verdict=kit.UNKNOWN, why=f"{why}, which decides nothing") for item in measured]
    model = Trained(agreements, speeds.ladder["polynomial"][-1].distinct_share)
    return [
        *measured,
        *kit.judge(PRINTED_CLAIMS, [Printed()]),
        *kit.judge(MODEL_CLAIMS, [model]),
        *kit.unmeasured(PAPER.unmeasured),
    ]
