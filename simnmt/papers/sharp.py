"""Sharp models on dull hardware (EMNLP 2017): facts of this box, claims, tables and figure 1 of the sharp decoder.

`data/sharp.toml` has what the paper prints. `reproduce` times the ladder, the systems and the products on one thread. The
predictions count operations at measured rates (SHARP-11, 13, 15, XP-07): the time of a word is the sum of its products by
weights, its products over the source states at the rate of one row, attention's sums at the rate of float32, activations, and
a remainder: the baseline's time beyond these parts.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simnmt.base.errors import InputError
from simnmt.papers.kit.claims import (
    UNKNOWN,
    Bound,
    Claim,
    ClaimRecord,
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
    judge,
    quartiles,
    unmeasured,
)
from simnmt.papers.kit.figures import Figure, Row, Rows, curve, figure_of, line_chart
from simnmt.papers.kit.paper import read_paper
from simnmt.papers.kit.rendering import Derived, Report, derived_table, record
from simnmt.report.table import Column, Table, TableCell, share
from simnmt.report.typography import DASH, significant, typeset_interval

if TYPE_CHECKING:
    from simnmt.calibrate.sharp_agreement import RungAgreement
    from simnmt.calibrate.sharp_speeds import DecoderTime, ProductTime, SharpSpeeds
    from simnmt.profile.decoder_settings import DecoderSettings

Progress = Callable[[int, int, str], None]
PAPER = read_paper("sharp")
LADDER, SYSTEMS = PAPER.table("table-1"), PAPER.table("table-2")
RUNGS: list[str] = LADDER.column("key")

LEAST_SAME = 0.999
"""Least share of the words that all rungs together leave the same (SHARP-10)."""
MOST_BLEU_CHANGE = 0.02
"""Bound of a change of BLEU, in points (SHARP-10)."""
NEAR_UNIQUE = 0.10
"""Largest difference between our share of distinct states and the paper's."""
LEAST_STEP = 0.98
"""Least speed of a rung over the rung before it (SHARP-11's accept)."""
LEAST_TOTAL = 4.0
"""Least speed-up of the whole ladder that supports the paper's 4.4, whose baseline packs no weights."""
LEAST_LAYER_RATIO = 3.0
"""Least time of a GRU layer over a fully connected one of the same width (SHARP-13's accept)."""
MOST_PER_MEMBER = 1.3
"""Greatest cost of an ensemble over its number of members (SHARP-14's accept)."""
ABOUT = 0.15
"""Largest relative difference between two systems of similar cost (SHARP-15's accept)."""
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
    return end_to_end(part, product_gain(speeds)) if part <= 1.0 else None


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


BOX_CLAIMS: list[Claim[Box]] = [
    Claim(
        "SHARP-11 (a)",
        f"Every rung is at least {LEAST_STEP} times as fast as the one before it, source side included",
        "; ".join(f"{LADDER[rung, 'name']} {printed_step(rung):.3f}" for rung in RUNGS[1:]),
        value=Box.steps,
        holds=at_least(LEAST_STEP),
        form=".3f",
    ),
    Claim(
        "SHARP-11 (b)",
        f"The whole ladder gains {PAPER['speed_up']} times, source side included (at least {LEAST_TOTAL} asked)",
        f"{printed_factor(RUNGS[-1]):.2f} from the speeds, {PAPER['speed_up']} in the text",
        value=Box.whole_ladder,
        holds=at_least(LEAST_TOTAL),
    ),
    Claim(
        "SHARP-08",
        "Lookup tables for sigmoid and tanh make it faster",
        f"{printed_step('activations'):.3f}, with vector instructions for the rest",
        value=Box.lookup_tables,
        holds=above(1.0),
    ),
    Claim(
        "SHARP-18",
        "16-bit products are {:.0f} to {:.0f} times as fast as 32-bit ones at batches of {} to {}".format(
            *PAPER["product_ratio"], *PAPER["product_batches"]
        ),
        "{:.0f} to {:.0f}, curve not in the text".format(*PAPER["product_ratio"]),
        value=Box.products,
        holds=at_least(PAPER["product_ratio"][0]),
    ),
    Claim(
        "SHARP-15 (a)",
        "Speed: S1 before S3, S2 and S4, S5 and S6, and S7 last",
        ", ".join(f"{row['key']} {row['words_per_s']}" for row in SYSTEMS.rows),
        value=Box.order,
        holds=above(1.0),
    ),
    Claim(
        "SHARP-17",
        f"S4 costs about as much as S2 ({100 * ABOUT:.0f} % allowed)",
        f"{printed_over('S4', 'S2'):.2f} of its speed",
        value=lambda box: Result(
            box.ratio("S4", "S2"),
            f"{box.ratio('S4', 'S2')[1]:.2f}; by multiply-adds {predicted_over(box.known['S4'], box.known['S2']):.2f}",
        ),
        holds=about(1.0, ABOUT),
        needs="S2 S4",
    ),
    Claim(
        "SHARP-13",
        f"A fully connected layer costs 1/{PAPER['fc_over_gru']} of a GRU layer (below 1/{LEAST_LAYER_RATIO:.0f} asked)",
        "1/6 by matrices; 1/4.4 to 1/5.8 by Table 2",
        value=Box.layer,
        holds=above(LEAST_LAYER_RATIO),
        needs="S1 S2 S3 S4",
    ),
    Claim(
        "SHARP-15 (b)",
        f"An ensemble of two S4 is at least {PAPER['clearly_faster']:.0f} times as fast as S7",
        f"{printed_over('E1', 'S7'):.2f}",
        value=lambda box: box.ratio("E1", "S7"),
        holds=at_least(PAPER["clearly_faster"]),
        needs="E1 S7",
    ),
    Claim(
        "SHARP-14",
        f"An ensemble of n models costs n to {MOST_PER_MEMBER} n times one",
        "; ".join(f"{key} {printed_over('S4', key):.2f} times S4" for key in ("E1", "E2")),
        value=Box.per_member,
        holds=between(1.0, MOST_PER_MEMBER),
        needs="E1 E2 S4",
    ),
]
PRINTED_CLAIMS: list[Claim[Printed]] = [
    Claim(
        "SHARP-11 (c)",
        "The printed factors of Table 1 follow from its speeds",
        ", ".join(f"{factor:.2f}" for factor in LADDER.column("factor")),
        value=_printed_factors,
    ),
]
MODEL_CLAIMS: list[Claim[Trained]] = [
    Claim(
        "SHARP-10 (a)",
        f"With all rungs {100 * LEAST_SAME:.1f} % of the words stay the same, and with exact rungs all of them",
        "99.9 % and more",
        value=Trained.words_kept,
        holds=at_least(LEAST_SAME),
        needs="--model",
    ),
    Claim(
        "SHARP-10 (b)",
        f"No rung changes BLEU by {MOST_BLEU_CHANGE} or more",
        f"below {MOST_BLEU_CHANGE}",
        value=Trained.bleu_changes,
        holds=Bound(-MOST_BLEU_CHANGE, MOST_BLEU_CHANGE, strict=True),
        form="+.4f",
        needs="--references",
    ),
    Claim(
        "SHARP-09",
        f"Of a beam of {PAPER['beam']} hypotheses' previous states {100 * PAPER['unique_share']:.0f} % differ",
        f"{100 * PAPER['unique_share']:.0f} %",
        value=Trained.distinct_states,
        holds=between(PAPER["unique_share"] - NEAR_UNIQUE, PAPER["unique_share"] + NEAR_UNIQUE),
    ),
]


def all_claims(speeds: SharpSpeeds, agreements: Sequence[RungAgreement] = (), *, quick: bool = False) -> list[ClaimRecord]:
    """Return the record of every claim.

    A `quick` look, or one without compiled kernels, decides no claim on speed. `agreements`: of each rung on a trained model.
    """
    measured = judge(BOX_CLAIMS, [Box(speeds, agreements)])
    why = "a quick look" if quick else "" if speeds.level else "without compiled kernels"
    if why:
        measured = [replace(item, verdict=UNKNOWN, why=f"{why}, which decides nothing") for item in measured]
    model = Trained(agreements, speeds.ladder["polynomial"][-1].distinct_share)
    return [
        *measured,
        *judge(PRINTED_CLAIMS, [Printed()]),
        *judge(MODEL_CLAIMS, [model]),
        *unmeasured(PAPER.unmeasured),
    ]


# Tables and figure 1.


def ladder_table(speeds: SharpSpeeds, agreements: Sequence[RungAgreement]) -> Table:
    """Return Table 1: from the fifth rung on a rung has two rows, with table and with polynomial activations."""
    shares = {agreement.settings: agreement.share for agreement in agreements}
    rows = [
        _rung(speeds, times, place, shares)
        for place in range(len(RUNGS))
        for activations, times in speeds.ladder.items()
        if times[place].settings.activations != "library" or activations == "table"
    ]
    return Table(
        LADDER.title,
        [
            Column("rung", "name"),
            Column("activations", "activations"),
            *LADDER.columns_beside,
            Column("published factor", "published_factor", 3),
            Column("measured, words/s", "words_per_s", digits=1),
            Column("measured factor", "factor", digits=3),
            Column("measured over the rung before", "step", digits=3, cell=_step_cell),
            Column(
                "decoder alone, factor", "decoder_factor", 3, small=lambda row: f"source {significant(row['source_ms'], 3)} ms"
            ),
            Column("predicted factor", "predicted_factor", digits=2),
            share("same words so far, %", "agreement", 2),
            Column("translations", "translations"),
        ],
        rows,
        "Words a second, source side included, one thread; each rung on top of those before it. From the fifth on with "
        "the paper’s lookup table and with a polynomial. A rung is exact over the one before, or it adds noise, which later "
        "rungs keep. Small print: quartiles over rounds, and milliseconds of the source side a sentence. The published factor "
        "is that of the printed speeds.",
        id=LADDER.id,
    )


def _rung(speeds: SharpSpeeds, times: Sequence[DecoderTime], place: int, shares: Mapping[DecoderSettings, float]) -> Row:
    rung, time, exact = RUNGS[place], times[place], bool(LADDER[RUNGS[place], "exact"])
    low, step, high = quartiles(time.ratios(times[place - 1])) if place else (None, None, None)
    exact_settings = time.settings.model_copy(update={"candidates": None})
    return {
        **record(LADDER.row(rung), "rung=key name"),
        **LADDER.beside(rung),
        "published_factor": printed_factor(rung),
        "published_step": printed_step(rung),
        **record(time, "activations=settings.activations words_per_s ms_per_word=word_s*1e3 multiply_adds distinct_share"),
        "settings": time.settings.describe(),
        "factor": time.over(times[0]),
        "decoder_factor": time.decoder_over(times[0]),
        "source_ms": 1e3 * statistics.median(time.source_s),
        "step": step,
        "step_low": low,
        "step_high": high,
        "predicted_factor": predicted_ladder(speeds, times)[place],
        "exact": exact_settings.exact,
        "adds_noise": not exact,
        # The noise of earlier rungs stays, whether or not a rung is exact.
        "translations": "adds noise" if not exact else "exact over the rung before" if place else "exact",
        "agreement": shares.get(exact_settings),
    }


def _step_cell(row: Row) -> TableCell:
    if row["step"] is None:
        return TableCell(DASH)
    return TableCell(*typeset_interval(row["step"], row["step_low"], row["step_high"], signs="minus", most=3))


def amdahl_table(speeds: SharpSpeeds) -> Table:
    """Return the second rung's gain as Amdahl's law predicts it, and as it was measured (XP-07)."""
    baseline, int16, *_ = speeds.ladder["polynomial"]
    row = {
        "share": product_share(speeds),
        "product_gain": product_gain(speeds),
        "predicted": predicted_int16(speeds),
        "measured": int16.over(baseline),
    }
    return Table(
        "The 16-bit product by Amdahl's law",
        [
            Column("rung", lambda _: "+ 16-bit product"),
            share("share of products, %", "share"),
            Column("products’ gain", "product_gain", digits=2),
            Column("predicted end to end", lambda row: "none" if row["predicted"] is None else row["predicted"], digits=3),
            Column("measured end to end", "measured", digits=3),
        ],
        [row],
        "Products’ share of the baseline’s time and their gain, both by the rates of products alone, and what the whole "
        "should gain of it. With a share above 100 % products ran slower alone than in the decoder, and nothing is predicted.",
        id="amdahl",
    )


def agreement_table(agreements: Sequence[RungAgreement]) -> Table:
    """Return what each rung changes on a trained model (SHARP-10)."""
    keys = "rung=key exact=settings.exact tokens tokens_same_share=share sentences sentences_same distinct_share bleu"
    return Table(
        "What each rung changes on a trained model",
        [
            Column("rungs", "rung"),
            Column("so far", lambda row: "exact" if row["exact"] else "not exact"),
            share("words the same, %", "tokens_same_share", 3),
            Column("of words", "tokens", digits=0),
            Column("sentences the same", lambda row: f"{row['sentences_same']:,} of {row['sentences']:,}"),
            share("distinct states, %", "distinct_share"),
            Column("BLEU", "bleu", digits=4),
        ],
        [{"settings": agreement.settings.describe()} | record(agreement, keys) for agreement in agreements],
        "Beside the baseline, whole vocabulary. Words: the likeliest along the baseline’s translations; sentences are "
        "translated by themselves.",
        id="agreement",
        small="settings",
    )


_STAGES = {
    "source_ms": "source side",
    "prepare_ms": "once a sentence",
    "body_ms": "body",
    "product_ms": "output product",
    "search_ms": "bias, softmax, search",
}


def stage_table(speeds: SharpSpeeds) -> Table:
    """Return where a word's time goes; a decoder that ran without compiled kernels has no stage times and no row."""
    rungs = speeds.ladder["polynomial"]
    rows = [
        {
            "of": time.key,
            "rung": time in rungs,
            "settings": time.settings.describe(),
            "source_ms": 1e3 * statistics.median(time.source_s) / time.words,
            **{
                f"{part}_ms": 1e3 * getattr(time.stage_s, f"{part}_s") / time.words
                for part in ("prepare", "body", "product", "search")
            },
        }
        for time in (*rungs, *speeds.systems)
        if time.stage_s is not None
    ]
    return Table(
        "Where a word's time goes",
        [Column("decoder", "of"), *(Column(head, key, digits=3) for key, head in _STAGES.items())],
        rows,
        "Milliseconds; the source side of the median round, the others of one run with a clock inside.",
        id="stages",
        small="settings",
    )


def system_table(speeds: SharpSpeeds) -> Table:
    """Return Table 2: the paper's own systems."""
    measured = {time.key: time for time in speeds.systems}
    first = measured.get("S1")
    rows: list[Row] = []
    for printed in SYSTEMS.rows:
        time = measured.get(printed["key"])
        factors = (None, None) if time is None or first is None else (time.over(first), predicted_over(time, first))
        rows.append(
            record(printed, "key name")
            | SYSTEMS.beside(printed["key"])
            | record({"time": time}, "words_per_s=time.words_per_s multiply_adds=time.multiply_adds")
            | {
                "published_factor": printed_over(printed["key"], "S1"),
                "source_ms": None if time is None else 1e3 * statistics.median(time.source_s),
                "factor": factors[0],
                "predicted_factor": factors[1],
                "exact": None if time is None else time.settings.model_copy(update={"candidates": None}).exact,
            }
        )
    return Table(
        SYSTEMS.title,
        [
            Column("system", "key"),
            *SYSTEMS.columns_beside,
            Column("published over S1", "published_factor", digits=2),
            Column("measured, words/s", "words_per_s", digits=1),
            Column("measured over S1", "factor", digits=2),
            Column("predicted over S1", "predicted_factor", digits=2),
            Column("million multiply-adds a word", "multiply_adds", digits=1, scale=1e-6),
        ],
        rows,
        "With all techniques, so not exact (see the ladder); BLEU as published. Predicted: by multiply-adds alone.",
        id=SYSTEMS.id,
        small="name",
    )


_PRODUCTS = {"int16_us": "16 bits", "float32_us": "float32, packed", "torch_us": "torch", "numpy_us": "numpy"}


def product_table(speeds: SharpSpeeds) -> Table:
    """Return the times of figure 1."""
    rows = [
        record(item, "batch cold library=best_library")
        | {f"{name}_us": 1e6 * item.median_s(name) for name in item.seconds}
        | {"over_library": item.ratio("library"), "over_packed": item.ratio("float32")}
        for item in speeds.products
    ]
    return Table(
        "Figure 1: 16-bit and 32-bit products",
        [
            Column("rows", lambda row: str(row["batch"])),
            Column("weights", lambda row: "from memory" if row["cold"] else "in the cache"),
            *(Column(head, key, significant=3) for key, head in _PRODUCTS.items()),
            Column("over the faster library", "over_library", digits=2),
            Column("over packed float32", "over_packed", digits=2),
        ],
        rows,
        "Microseconds of one product with weights of 1024 by 1024; ratios are medians over rounds.",
        id="figure-1",
    )


def product_figure(rows: Rows) -> Figure:
    """Return figure 1."""
    charts = {}
    for name, cold in (("weights in the cache", False), ("weights from memory", True)):
        shown = [row for row in rows if row["cold"] == cold]
        ratios = ", ".join(f"{row['over_library']:.2f} at {row['batch']}" for row in shown)
        reading = f"16 bits over the faster library: {ratios}. Published: 2 to 3 at 2 to 8."
        curves = [curve(head, shown, "batch", itemgetter(key)) for key, head in _PRODUCTS.items()]
        charts[name] = line_chart("batch", "microseconds", reading, curves)
    title = "Figure 1: 16-bit and 32-bit products by batch"
    note = "Weights of 1024 by 1024, one thread. The paper's curve is not in its text."
    return figure_of("figure-1-drawn", title, "Time of one product by batch", charts, note=note)


def activation_table(speeds: SharpSpeeds) -> Table:
    """Return the times of sigmoid and tanh."""
    rows = [{"way": method, "ns": 1e9 * seconds} for method, seconds in speeds.activation_s.items()]
    columns = [Column("method", "way"), Column("ns", "ns", significant=3)]
    return Table("Sigmoid and tanh", columns, rows, "Nanoseconds an element, in the cache, the mean of both.", id="activations")


def report(speeds: SharpSpeeds, agreements: Sequence[RungAgreement] = (), *, quick: bool = False) -> Report:
    """Return the reproduction for JSON, terminal and page."""
    products = product_table(speeds)
    notes = [
        f"Compiled kernels: {speeds.level}."
        if speeds.level
        else "No compiled kernels: the fallback in numpy ran, whose times are no test of the paper's techniques."
    ]
    messages = [rung.clipping.warning() for rung in agreements if rung.clipping is not None]
    warnings = list(dict.fromkeys(filter(None, messages)))
    notes += [f"The trained model: {warning}." for warning in warnings]
    if quick:
        notes.append(
            "A quick look: fewer rounds, some of the systems and of figure 1's batches, and a smaller vocabulary, whose "
            "embeddings are in the cache more often."
        )
    return Report(
        PAPER,
        all_claims(speeds, agreements, quick=quick),
        [
            ladder_table(speeds, agreements),
            amdahl_table(speeds),
            agreement_table(agreements),
            stage_table(speeds),
            system_table(speeds),
            PAPER.table("context").shown(),
            products,
            activation_table(speeds),
            derived_table(derived()),
        ],
        [product_figure(products.rows)],
        notes,
        values=record(speeds.setting, "beam src_len tgt_len candidates")
        | {"vocab": speeds.vocab, "rounds": len(speeds.systems[0].sentence_s)},
        more={"level": speeds.level},
        warnings=warnings,
    )


def reproduce(
    *,
    quick: bool = False,
    rounds: int | None = None,
    model: str | None = None,
    text: Path | None = None,
    references: Path | None = None,
    progress: Progress | None = None,
) -> Report:
    """Time the ladder, the stacks and the ensembles of the paper on one thread of this box.

    Args:
        quick: use a smaller vocabulary and fewer rounds, systems and batches.
        rounds: number of rounds; None: the setting's.
        model: folder of a trained attentional model, to measure what each rung changes.
        text: file of the sentences that the model translates.
        references: file with a translation of each sentence, for BLEU.
        progress: called before each step with the steps done, all steps and the name of the next one.

    Raises:
        InputError: `model` without `text`, `text` without `model`, or `references` without both.
    """
    if (model is None) != (text is None):
        raise InputError("a trained model and a text go together", remedy="give both --model and --text, or neither")
    if references is not None and text is None:
        raise InputError("--references without a text", remedy="give --model and --text as well")
    # Imported here, so that the published tables need no torch.
    from simnmt.calibrate.sharp_agreement import sharp_agreement
    from simnmt.calibrate.sharp_speeds import QUICK, Setting, sharp_speeds

    setting = QUICK if quick else Setting()
    if rounds is not None:
        setting = replace(setting, rounds=rounds)
    agreements = []
    if model is not None and text is not None:
        agreements = sharp_agreement(model, text, setting.beam, progress=progress, references=references)
    return report(sharp_speeds(setting, progress), agreements, quick=quick)
