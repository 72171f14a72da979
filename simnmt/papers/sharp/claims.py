"""The facts of this box and of a trained model, and the claims on the sharp decoder that they decide (SHARP-05, 08 to 18).

The predictions count operations at measured rates (SHARP-11, 13, 15, XP-07): the time of a word is the sum of its products by
weights, its products over the source states at the rate of one row, attention's sums at the rate of float32, activations, and
a remainder: the baseline's time beyond these parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from simnmt.papers.kit import claims as kit
from simnmt.papers.kit.claims import Claim, ClaimRecord, Effect, Facts, Printed, Result, Undecided, quartiles
from simnmt.papers.kit.paper import read_paper
from simnmt.papers.kit.rendering import Derived

if TYPE_CHECKING:
    from simnmt.calibrate.sharp_agreement import RungAgreement
    from simnmt.calibrate.sharp_speeds import SharpSpeeds

PAPER = read_paper("sharp")
LADDER, SYSTEMS = PAPER.table("table-1"), PAPER.table("table-2")
RUNGS: list[str] = LADDER.column("key")
BASELINE, INT16, *_ = RUNGS
UNIQUE_SHARE: float = PAPER["unique_share"]
LEAST_SAME = 0.999
"""Least share of the words that all rungs together leave the same (SHARP-10)."""
BLEU_KEPT = kit.Bound(-0.02, 0.02, strict=True)
ORDER = (("S1",), ("S3",), ("S2", "S4"), ("S5", "S6"), ("S7",))
"""Systems by speed, in groups of about the same speed (SHARP-15's accept)."""


# What follows from the printed figures.


def printed_over(one: str, other: str, table: Any = SYSTEMS) -> float:
    """Return the printed speed of one system, or rung, over another's."""
    return float(table[one, "words_per_s"] / table[other, "words_per_s"])


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
    fc_ms = {"S4 and S3": (word_ms["S4"] - word_ms["S3"]) / 4, "S6 and S4": (word_ms["S6"] - word_ms["S4"]) / 8}
    gru_ms, wider, gru = word_ms["S2"] - word_ms["S1"], (1024 / 768) ** 2, "a 1024-GRU layer over a 1024-FC layer, FC from"
    return [
        *(Derived(f"one 768-FC layer, from {pair}", ms, "ms", "SHARP-13") for pair, ms in fc_ms.items()),
        *(Derived(f"{gru} {pair}", gru_ms / (ms * wider), "times", "6 by matrices") for pair, ms in fc_ms.items()),
        Derived("E1's speed over half of S4's", 2 * printed_over("E1", "S4"), "times", "two members in sequence: 1"),
        Derived("E2's speed over a third of S4's", 3 * printed_over("E2", "S4"), "times", "three members in sequence: 1"),
        Derived("E1's speed over S7's", printed_over("E1", "S7"), "times", "over 3 times, by the text"),
        Derived("S4's speed over S2's", printed_over("S4", "S2"), "times", "similar cost, by the text"),
        Derived("BLEU of S4 over S1", bleu["S4"] - bleu["S1"], "points", "1.2, by the text"),
        Derived("BLEU of S2 over S1", bleu["S2"] - bleu["S1"], "points", "half of it, by the text"),
        Derived("BLEU of E1 over S4", bleu["E1"] - bleu["S4"], "points", "0.9, by the text"),
    ]


# What counting predicts.


def predictions(speeds: SharpSpeeds) -> pd.DataFrame:
    """Return by decoder the seconds per word of its products, `products_s`, and its `factor` over the baseline."""
    beam, activation_s = speeds.setting.beam, speeds.activations.median()

    def multiply_add_s(name: str, rows: int, *, cold: bool = False) -> float:
        batch = min(speeds.setting.product_batches, key=lambda batch: abs(batch - rows))
        return float(speeds.products[name, batch, cold].median()) / (batch * speeds.setting.product_size**2)

    frame = pd.DataFrame(index=speeds.counts.index, columns=["products_s", "counted_s"], dtype=float)
    for decoder, counts in speeds.counts.to_dict("index").items():
        settings = counts["settings"]
        name, size = ("int16", 2) if settings.gemm == "int16" else ("float32", 4)
        # The weights come from the cache if it holds all of them; those of a source layer's states stay there in any case.
        cold = size * counts["products"] / beam > speeds.cache_bytes
        products_s = counts["products"] * multiply_add_s(name, beam, cold=cold)
        products_s += counts["source_recurrent"] * multiply_add_s(name, 1)
        others_s = counts["attention"] * multiply_add_s("float32", beam)
        others_s += counts["activations"] * activation_s[settings.activations]
        frame.loc[decoder] = products_s, products_s + others_s
    # Some operations are not counted; if the counted ones take longer than was measured, the remainder is 0.
    word_s = frame["counted_s"] + max(speeds.word_s(BASELINE) - frame["counted_s"][BASELINE], 0.0)
    return frame.assign(factor=word_s[BASELINE] / word_s)


def amdahl(speeds: SharpSpeeds) -> dict[str, float | None]:
    """Predict the second rung by Amdahl's law (XP-07): the products' `share` of the baseline's time and their `product_gain`.

    Both are by the rates of products alone. With a share above 1 products ran slower alone than in the decoder, and nothing is
    `predicted`.
    """
    products_s = predictions(speeds)["products_s"]
    share, gain = float(products_s[BASELINE] / speeds.word_s(BASELINE)), float(products_s[BASELINE] / products_s[INT16])
    predicted = kit.end_to_end(share, gain) if share <= 1.0 else None
    return {"share": share, "product_gain": gain, "predicted": predicted, "measured": speeds.ratio(INT16, BASELINE)}


def predicted_over(speeds: SharpSpeeds, system: str, other: str) -> float:
    """Predict the speed-up of `system` over `other` by multiply-adds alone."""
    multiply_adds = speeds.counts["multiply_adds"]
    return float(multiply_adds[other] / multiply_adds[system])


# Facts and claims.


@dataclass(frozen=True)
class Box(Facts):
    """The timings of this box; effects are quartiles over rounds."""

    speeds: SharpSpeeds
    agreements: Sequence[RungAgreement] = ()
    device = "this box"

    def lacks(self, need: str) -> Undecided | None:
        """Return which of the systems named in `need` were not timed."""
        absent = [key for key in need.split() if key not in self.speeds.counts.index]
        return Undecided(f"{', '.join(absent)} not timed") if absent else None

    def ratio(self, one: str, other: str) -> tuple[float, ...]:
        """Return the speed of one system, or rung, over another's."""
        return quartiles(self.speeds.ratios(one, other))

    def steps(self) -> dict[str, Effect]:
        """Return the speed of each rung over the rung before it."""
        return {LADDER[rung, "name"]: self.ratio(rung, before) for before, rung in pairwise(RUNGS)}

    def whole_ladder(self) -> Result:
        """Return the gain of all rungs, which counts only if they keep a trained model's words (SHARP-10)."""
        last, table = (self.speeds.ladder(activations)[-1] for activations in ("polynomial", "table"))
        whole, by_table = (self.speeds.ratio(rung, BASELINE) for rung in (last, table))
        alone, table_alone = (self.speeds.ratio(rung, BASELINE, search=True) for rung in (last, table))
        ours = f"{whole:.2f}; with the paper's table {by_table:.2f}. Without the source side {alone:.2f} and {table_alone:.2f}"
        why = "over float32 products packed the same way, which a library's are not; "
        words: Effect = Undecided("", needed=True)
        kept = "speed alone: that the rungs keep a trained model's words needs --model and --text"
        if self.agreements:
            least = min(rung.share for rung in self.agreements)
            words = least >= LEAST_SAME
            kept = f"every rung keeps at least {100 * least:.2f} % of a trained model's words, {100 * LEAST_SAME:.1f} % asked"
        return Result({"speed": self.ratio(last, BASELINE), "words": words}, ours, f"{why}{kept} (SHARP-10)", words=None)

    def lookup_tables(self) -> Result:
        """Return the gain of the paper's lookup tables, beside that of a polynomial."""
        place = RUNGS.index("activations")
        before, table, polynomial = RUNGS[place - 1], self.speeds.ladder("table")[place], RUNGS[place]
        ratio, alone = self.speeds.ratio, (1e9 * self.speeds.activations.median()).items()
        ours = (
            f"table {ratio(table, before):.3f}; beside the paper a polynomial {ratio(polynomial, before):.3f}, which is "
            f"{ratio(polynomial, table):.3f} over the table; alone, ns an element: "
            f"{', '.join(f'{method} {ns:.2f}' for method, ns in alone)}"
        )
        why = "over the library's functions, one element at a time; the table alone is judged"
        return Result(self.ratio(table, before), ours, why)

    def products(self) -> Result:
        """Return the speed of 16-bit products over the library's, by batch."""
        low, high = PAPER["product_batches"]
        rows = [row for row in product_rows(self.speeds) if low <= row["batch"] <= high]
        hot, cold = ([row for row in rows if row["cold"] == cold] for cold in (False, True))

        def format_ratios(key: str) -> str:
            in_cache, from_memory = (", ".join(f"{row[key]:.2f} at {row['batch']}" for row in part) for part in (hot, cold))
            return f"{in_cache}; weights from memory {from_memory}"

        libraries = " or ".join(sorted({row["library"] for row in hot}))
        why = (
            f"the library: {libraries}, whichever is faster; {PAPER['product_ratio'][0]:.0f} is asked. Over float32 packed the "
            f"same way, where half the bytes can give 2, nothing is asked: {format_ratios('over_packed')}"
        )
        effects = {str(row["batch"]): quartiles(row["ratios"]) for row in hot}
        return Result(effects, f"over the library {format_ratios('over_library')}", why, words=None)

    def order(self) -> Result:
        """Return the speed ratios of the systems that the paper orders."""
        systems = self.speeds.setting.systems
        pairs = [pair for above_, below in pairwise(ORDER) for pair in product(above_, below) if {*systems} >= {*pair}]
        ours = ", ".join(f"{system} {1.0 / self.speeds.word_s(system):.0f}" for system in systems)
        return Result({f"{one} before {other}": self.ratio(one, other) for one, other in pairs}, ours)

    def similar_cost(self) -> Result:
        """Return the speed of S4 over that of S2."""
        ratio = self.ratio("S4", "S2")
        return Result(ratio, f"{ratio[1]:.2f}; by multiply-adds {predicted_over(self.speeds, 'S4', 'S2'):.2f}")

    def layer(self) -> Result:
        """Return the time of a 1024-GRU layer over that of a 1024-FC layer: S2 - S1 over (S4 - S3) / 4, scaled to the width.

        Without the source side, which is the same in all four. A round in which noise leaves a layer no time does not count.
        """
        search_s = (self.speeds.sentences - self.speeds.sources)[["S1", "S2", "S3", "S4"]].dropna()
        gru_s, fc_s = search_s["S2"] - search_s["S1"], (search_s["S4"] - search_s["S3"]) / 4 * (1024 / 768) ** 2
        ratios = (gru_s / fc_s)[(gru_s > 0) & (fc_s > 0)].tolist()
        lost = len(search_s) - len(ratios)
        why = "from S2 beyond S1 and S4 beyond S3, round by round"
        why += f", of which {lost} of {len(search_s)} are too noisy" if lost else ""
        if len(ratios) <= lost:
            return Result(Undecided("too few rounds"), "lost in noise", why)
        return Result(quartiles(ratios), f"1/{np.median(ratios):.2f}", why)

    def per_member(self) -> Result:
        """Return the cost of each ensemble a member, over that of one model."""
        members, ensembles = self.speeds.counts["members"], ("E1", "E2")
        costs = {key: quartiles([cost / members[key] for cost in self.speeds.ratios("S4", key)]) for key in ensembles}
        return Result(costs, "; ".join(f"{key} {self.speeds.ratio('S4', key):.2f} times S4" for key in ensembles), words=None)


def product_rows(speeds: SharpSpeeds) -> list[dict[str, Any]]:
    """Return the rows of figure 1, with the `ratios` over the faster library by round and the medians of ratios."""
    rows = []
    for batch, cold in product(speeds.setting.product_batches, (False, True)):
        times_s = {name: speeds.products[name, batch, cold].dropna() for name in speeds.products.columns.unique(0)}
        median_us = {f"{name}_us": 1e6 * float(times_s[name].median()) for name in times_s}
        library = min(("torch", "numpy"), key=lambda name: median_us[f"{name}_us"])
        over = {name: times_s[name] / times_s["int16"] for name in (library, "float32")}
        medians = {"over_library": float(over[library].median()), "over_packed": float(over["float32"].median())}
        names = {"batch": batch, "cold": cold, "library": library}
        rows.append(names | median_us | medians | {"ratios": over[library].tolist()})
    return rows


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
            reason = "needs a trained model and references: give --model, --text and --references"
            return Undecided(reason, "needs --references")
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
    ours = ", ".join(f"{printed_over(rung, BASELINE, LADDER):.3f}" for rung in RUNGS)
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
        Claim("SHARP-10 (b)", value=Trained.bleu_changes, holds=BLEU_KEPT, form="+.4f", needs="--references"),
        Claim("SHARP-09", value=Trained.distinct_states, holds=kit.between(UNIQUE_SHARE - 0.10, UNIQUE_SHARE + 0.10)),
    ],
)


def all_claims(speeds: SharpSpeeds, agreements: Sequence[RungAgreement] = (), *, quick: bool = False) -> list[ClaimRecord]:
    """Return the record of every claim.

    A `quick` look, or one without compiled kernels, decides no claim on speed. `agreements`: of each rung on a trained model.
    """
    measured = kit.judge(BOX_CLAIMS, [Box(speeds, agreements)])
    if why := "a quick look" if quick else "" if speeds.level else "without compiled kernels":
        measured = [replace(item, verdict=kit.UNKNOWN, why=f"{why}, which decides nothing") for item in measured]
    model = Trained(agreements, float(speeds.counts["distinct_share"][RUNGS[-1]]))
    trained, printed = kit.judge(MODEL_CLAIMS, [model]), kit.judge(PRINTED_CLAIMS, [Printed()])
    return [*measured, *printed, *trained, *kit.unmeasured(PAPER.unmeasured)]
