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

import pandas as pd

from simnmt.papers.kit import claims as kit
from simnmt.papers.kit.claims import Claim, ClaimRecord, Effect, Effects, Facts, Printed, Result, Undecided, quartiles
from simnmt.papers.kit.paper import read_paper

if TYPE_CHECKING:
    from simnmt.calibrate.sharp_agreement import RungAgreement
    from simnmt.calibrate.sharp_speeds import SharpSpeeds

PAPER = read_paper("sharp")
LADDER, SYSTEMS = PAPER.table("table-1"), PAPER.table("table-2")
RUNGS: list[str] = LADDER.column("key")
BASELINE, INT16, *_ = RUNGS
LEAST_SAME = 0.999
"""Least share of the words that all rungs together leave the same (SHARP-10)."""
BLEU_KEPT = kit.Bound(-0.02, 0.02, strict=True)
DISTINCT = kit.between(PAPER["unique_share"] - 0.10, PAPER["unique_share"] + 0.10)
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


def amdahl(speeds: SharpSpeeds) -> dict[str, Any]:
    """Predict the second rung by Amdahl's law (XP-07): the products' `share` of the baseline's time and their `product_gain`.

    Both are by the rates of products alone. With a share above 1 products ran slower alone than in the decoder, and nothing is
    `predicted`.
    """
    products_s = predictions(speeds)["products_s"]
    share, gain = float(products_s[BASELINE] / speeds.word_s(BASELINE)), float(products_s[BASELINE] / products_s[INT16])
    predicted, measured = kit.end_to_end(share, gain) if share <= 1.0 else None, speeds.ratio(INT16, BASELINE)
    names = {"rung": LADDER[INT16, "name"], "share": share, "product_gain": gain}
    return names | {"predicted": predicted, "measured": measured}


def predicted_over(speeds: SharpSpeeds, system: str, other: str) -> float:
    """Predict the speed-up of `system` over `other` by multiply-adds alone."""
    multiply_adds = speeds.counts["multiply_adds"]
    return float(multiply_adds[other] / multiply_adds[system])


def product_rows(speeds: SharpSpeeds) -> list[dict[str, Any]]:
    """Return the rows of figure 1, with the `ratios` over the faster library by round and the medians of ratios."""
    rows = []
    for batch, cold in product(speeds.setting.product_batches, (False, True)):
        times_s = {name: speeds.products[name, batch, cold].dropna() for name in speeds.products.columns.unique(0)}
        median_us = {f"{name}_us": 1e6 * float(times_s[name].median()) for name in times_s}
        library = min(("torch", "numpy"), key=lambda name: median_us[f"{name}_us"])
        over = {name: times_s[name] / times_s["int16"] for name in (library, "float32")}
        medians = {"over_library": float(over[library].median()), "over_packed": float(over["float32"].median())}
        names = {"batch": batch, "weights": "from memory" if cold else "in the cache", "cold": cold, "library": library}
        rows.append(names | median_us | medians | {"ratios": over[library].tolist()})
    return rows


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
        return quartiles(self.speeds.ratios(one, other))

    def steps(self) -> Effects:
        return {LADDER[rung, "name"]: self.ratio(rung, before) for before, rung in pairwise(RUNGS)}

    def whole_ladder(self) -> Result:
        """Return the gain of all rungs, which counts only if they keep a trained model's words (SHARP-10)."""
        last, table = (self.speeds.ladder(activations)[-1] for activations in ("polynomial", "table"))
        figures = {"whole": self.speeds.ratio(last, BASELINE), "table": self.speeds.ratio(table, BASELINE)}
        words: Effect = Undecided("", needed=True)
        kept = "what the rungs keep of a trained model's words needs --model and --text"
        if self.agreements:
            least = min(rung.share for rung in self.agreements)
            words, kept = least >= LEAST_SAME, f"every rung keeps at least {100 * least:.2f} % of a trained model's words"
        search = self.speeds.ratio(last, BASELINE, search=True)
        effects = {"speed": self.ratio(last, BASELINE), "words": words}
        return Result(effects, words=None, facts=figures | {"search": search, "kept": kept})

    def lookup_tables(self) -> Result:
        place = RUNGS.index("activations")
        before, table, polynomial = RUNGS[place - 1], self.speeds.ladder("table")[place], RUNGS[place]
        return Result(self.ratio(table, before), facts={"polynomial": self.speeds.ratio(polynomial, before)})

    def products(self) -> Effects:
        low, high = PAPER["product_batches"]
        rows = [row for row in product_rows(self.speeds) if low <= row["batch"] <= high and not row["cold"]]
        return {f"{row['batch']} rows": quartiles(row["ratios"]) for row in rows}

    def order(self) -> Result:
        systems = self.speeds.setting.systems
        pairs = [pair for above_, below in pairwise(ORDER) for pair in product(above_, below) if {*systems} >= {*pair}]
        ours = ", ".join(f"{system} {1.0 / self.speeds.word_s(system):.0f}" for system in systems)
        return Result({f"{one} before {other}": self.ratio(one, other) for one, other in pairs}, ours)

    def layer(self) -> Effect:
        """Return the time of a 1024-GRU layer over that of a 1024-FC layer: S2 - S1 over (S4 - S3) / 4, scaled to the width.

        Without the source side, which is the same in all four. A round in which noise leaves a layer no time does not count.
        """
        search_s = (self.speeds.sentences - self.speeds.sources)[["S1", "S2", "S3", "S4"]].dropna()
        gru_s, fc_s = search_s["S2"] - search_s["S1"], (search_s["S4"] - search_s["S3"]) / 4 * (1024 / 768) ** 2
        ratios = (gru_s / fc_s)[(gru_s > 0) & (fc_s > 0)].tolist()
        if 2 * len(ratios) <= len(search_s):
            return Undecided(f"noise leaves a layer no time in {len(search_s) - len(ratios)} of {len(search_s)} rounds")
        return quartiles(ratios)

    def per_member(self) -> Effects:
        members = self.speeds.counts["members"]
        return {key: quartiles([cost / members[key] for cost in self.speeds.ratios("S4", key)]) for key in ("E1", "E2")}


class Trained(Facts):
    """What each rung changes on a trained model; without one, nothing is known."""

    def __init__(self, agreements: Sequence[RungAgreement]) -> None:
        self.agreements, self.device = agreements, "a trained model" if agreements else ""

    def lacks(self, need: str) -> Undecided | None:
        """Return that a model, or its references, were not given."""
        scored = [rung.bleu is not None for rung in self.agreements]
        if need == "--references" and not (any(scored[1:]) and scored[0]):
            reason = "needs a trained model and references: give --model, --text and --references"
            return Undecided(reason, "needs --references")
        return None if self.agreements else Undecided("needs a trained model: give --model and --text", "needs --model")

    def words_kept(self) -> Effects:
        """Return the share of the words that each rung keeps, and whether exact rungs keep all."""
        exact = all(rung.tokens_same == rung.tokens for rung in self.agreements if rung.settings.exact)
        return {"exact rungs": exact} | {rung.settings.describe(): rung.share for rung in self.agreements[1:]}

    def bleu_changes(self) -> Result:
        baseline = self.agreements[0].bleu or 0.0
        changes = {rung.settings.describe(): rung.bleu - baseline for rung in self.agreements[1:] if rung.bleu is not None}
        return Result(changes, words=None, facts={"baseline": baseline, "sentences": self.agreements[0].sentences})

    def distinct_states(self) -> Effect:
        return self.agreements[-1].distinct_share


def _printed_factors(_: Printed) -> Result:
    (low, high), odd = implied_baselines()
    ours = ", ".join(f"{printed_over(rung, BASELINE, LADDER):.3f}" for rung in RUNGS)
    return Result(low <= odd[1] and odd[0] <= high, ours, facts={"low": low, "high": high, "odd": odd})


# The bounds are those that SHARP-08 to 18 ask for; the ladder's takes into account that the paper's baseline packs no weights.
BOX_CLAIMS: list[Claim[Box]] = kit.of_paper(
    PAPER,
    [
        Claim("SHARP-11 (a)", value=Box.steps, holds=kit.at_least(0.98), form=".3f"),
        Claim("SHARP-11 (b)", value=Box.whole_ladder, holds=kit.at_least(4.0)),
        Claim("SHARP-08", value=Box.lookup_tables, holds=kit.above(1.0), form=".3f"),
        Claim("SHARP-18", value=Box.products, holds=kit.at_least(PAPER["product_ratio"][0])),
        Claim("SHARP-15 (a)", value=Box.order, holds=kit.above(1.0)),
        Claim("SHARP-17", value=lambda box: box.ratio("S4", "S2"), holds=kit.about(1.0, 0.15), needs="S2 S4"),
        Claim("SHARP-13", value=Box.layer, holds=kit.above(3.0), needs="S1 S2 S3 S4"),
        Claim(
            "SHARP-15 (b)", value=lambda box: box.ratio("E1", "S7"), holds=kit.at_least(PAPER["clearly_faster"]), needs="E1 S7"
        ),
        Claim("SHARP-14", value=Box.per_member, holds=kit.between(1.0, 1.3), needs="E1 E2 S4"),
    ],
)
PRINTED_CLAIMS: list[Claim[Printed]] = kit.of_paper(PAPER, [Claim("SHARP-11 (c)", value=_printed_factors)])
MODEL_CLAIMS: list[Claim[Trained]] = kit.of_paper(
    PAPER,
    [
        Claim("SHARP-10 (a)", value=Trained.words_kept, holds=kit.at_least(LEAST_SAME), form=".4f", needs="--model"),
        Claim("SHARP-10 (b)", value=Trained.bleu_changes, holds=BLEU_KEPT, form="+.4f", needs="--references"),
        Claim("SHARP-09", value=Trained.distinct_states, holds=DISTINCT, form=".3f", needs="--model"),
    ],
)


def all_claims(speeds: SharpSpeeds, agreements: Sequence[RungAgreement] = (), *, quick: bool = False) -> list[ClaimRecord]:
    """Return the record of every claim.

    A `quick` look decides no claim on speed. `agreements`: of each rung on a trained model.
    """
    measured = kit.judge(BOX_CLAIMS, [Box(speeds, agreements)])
    if quick:
        quickly = [f"a quick look, which decides nothing, saw {item.ours or 'nothing'}" for item in measured]
        measured = [replace(item, verdict=kit.UNKNOWN, ours="", why=why) for item, why in zip(measured, quickly, strict=True)]
    trained, printed = kit.judge(MODEL_CLAIMS, [Trained(agreements)]), kit.judge(PRINTED_CLAIMS, [Printed()])
    return [*measured, *printed, *trained, *kit.unmeasured(PAPER.unmeasured)]
