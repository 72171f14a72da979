"""Figures derived from the paper's printed ones, and the claims that the printed figures decide (FVP-09, 13, 15 to 21)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from simnmt.papers.fvp import published
from simnmt.papers.fvp.presets import PRESETS
from simnmt.papers.fvp.published import (
    DEFAULT_US,
    DIRECTIONS,
    MODELS,
    ROWS,
    TABLE_2,
    TABLE_6,
    TYPICAL_CLUSTERS,
    Mean,
    Model,
    Projection,
    means,
)
from simnmt.papers.kit.claim import UNKNOWN, ClaimRecord, format_span, printed_claim, share_needed
from simnmt.papers.kit.table import Derived


@dataclass(frozen=True, slots=True)
class TimeByShare:
    """Microseconds of a projection as a line over the percentage of columns active, through Table 2 (FVP-09)."""

    model: Model
    fixed_us: float
    us_per_percent: float
    r_squared: float

    def us(self, percent: float) -> float:
        """Return the microseconds with this percentage of columns active."""
        return self.fixed_us + self.us_per_percent * percent

    @property
    def break_even_percent(self) -> float:
        """The percentage of active columns above which the default is faster; above 100, the default is never faster."""
        return (DEFAULT_US[self.model] - self.fixed_us) / self.us_per_percent


def fit(model: Model) -> TimeByShare:
    """Fit a line through the six rows of a model by least squares."""
    rows = rows_of(model)
    percent, us = np.array([row.active_percent for row in rows]), np.array([row.us for row in rows])
    slope, fixed = np.polyfit(percent, us, 1)
    return TimeByShare(model, float(fixed), float(slope), float(np.corrcoef(percent, us)[0, 1] ** 2))


def rows_of(model: Model) -> list[Projection]:
    """Return the rows of Table 2 of a model."""
    return [row for row in TABLE_2 if row.model == model]


def mean_percent(model: Model) -> float:
    """Return the mean percentage of active columns in Table 2."""
    return fmean([row.active_percent for row in rows_of(model)])


def operation_limit(row: Projection, clusters: int = TYPICAL_CLUSTERS) -> float:
    """Return the ratio of multiply-adds without and with clusters: d V over d (r + V') (FVP-09)."""
    vocab = PRESETS[row.model].vocab
    return vocab / (clusters + vocab * row.active_percent / 100.0)


def implied_share(row: Projection) -> float:
    """Return the share of the whole time in the projection that Table 3's gain at beam 2 and its ratio imply (FVP-20)."""
    (cell,) = (cell for cell in ROWS if (cell.model, cell.row, cell.test_set, cell.beam) == (row.model, row.direction, 1, 2))
    return share_needed(1.0 + cell.gain_percent / 100.0, row.ratio)


def derived() -> list[Derived]:
    """Return means of Table 2, its fitted line, limits by counting and implied shares (FVP-09, 13, 15, 20)."""
    figures = []
    for model, name in MODELS.items():
        rows, line, preset = rows_of(model), fit(model), PRESETS[model]
        vocab_us = DEFAULT_US[model] / 100.0
        limits = [operation_limit(row) for row in rows]
        shares = [100.0 * implied_share(row) for row in rows]
        figures += [
            Derived(f"{name}: parameters", preset.parameters / 1e9, "billion", preset.printed_size),
            Derived(f"{name}: mean of the columns active", mean_percent(model), "%", "Table 2"),
            Derived(f"{name}: mean time of the projection", fmean([row.us for row in rows]), "us", "Table 2"),
            Derived(f"{name}: mean ratio to the default", fmean([row.ratio for row in rows]), "times", "Table 2"),
            Derived(f"{name}: time without any column", line.fixed_us, "us", f"line through Table 2, R2 {line.r_squared:.3f}"),
            Derived(f"{name}: time per percent of the columns", line.us_per_percent, "us", f"default: {vocab_us:.1f}"),
            Derived(f"{name}: break-even", line.break_even_percent, "%", _where(line.break_even_percent)),
            Derived(f"{name}: least limit by counting", min(limits), "times", f"multiply-adds, {TYPICAL_CLUSTERS:,} clusters"),
            Derived(f"{name}: most by counting", max(limits), "times", "so what is fixed may dominate the times printed"),
            Derived(f"{name}: least share of the projection", min(shares), "%", "that beam 2's gain and ratio imply"),
            Derived(f"{name}: mean share of the projection", fmean(shares), "%", "`about 25 % or more` in the text"),
            Derived(f"{name}: largest share of the projection", max(shares), "%", "the same"),
        ]
    dense, sparse = (DEFAULT_US[model] for model in MODELS)
    vocabularies = PRESETS["dense"].vocab / PRESETS["m3"].vocab
    figures.append(Derived("default times, Dense over M3", dense / sparse, "times", f"vocabularies: {vocabularies:.2f}"))
    return figures


def _where(percent: float) -> str:
    beyond = "beyond all columns: by the line clusters always win"
    return beyond if percent > 100.0 else "active columns above which the line says that the default wins"


def paper_claims() -> list[ClaimRecord]:
    """Return the claims that the tables decide, and those that nothing here can decide."""
    return [*_projection(), *_gains(), _bleu_kept(), _averages("FVP-16", 3), _averages("FVP-17", 4), _size(), *_people()]


def _projection() -> list[ClaimRecord]:
    spans = {model: format_span([row.ratio for row in rows_of(model)]) for model in MODELS}
    beyond = [row for row in TABLE_2 if row.active_percent > 100 * published.MOST_ACTIVE + 0.5]
    mean, largest = mean_percent("dense"), max(row.active_percent for row in rows_of("dense"))
    shares = {model: [100 * implied_share(row) for row in rows_of(model)] for model in MODELS}
    return [
        printed_claim(
            "FVP-21 (a)",
            "On average 12.39 % of the columns of ZCode Dense are active",
            "12.39 %",
            f"{mean:.2f} %, at most {largest:.2f} %",
            abs(mean - 12.39) < 0.005,
            "12.39 % is the value of EsEn alone",
        ),
        _spanned(
            "FVP-21 (b)",
            "The projection gains {} times",
            ("2.4 to 2.6", 2.35, 2.65),
            [row.ratio for row in TABLE_2],
            f"ZCode Dense {spans['dense']}, M3 {spans['m3']}, by Table 2",
        ),
        printed_claim(
            "FVP-21 (c)",
            "At most about 15 % of the columns are active",
            f"{100 * published.MOST_ACTIVE:.0f} %",
            "; ".join(f"{MODELS[row.model]} {row.direction} {row.active_percent:.2f} %" for row in beyond),
            not beyond,
            "in Table 2; half a point allowed",
        ),
        printed_claim(
            "FVP-20 (a)",
            "The projection takes about 25 % of the time or more",
            f"{100 * published.PROJECTION_SHARE:.0f} %",
            "; ".join(
                f"{MODELS[model]} {format_span(implied, '.0f')} %, mean {fmean(implied):.0f} %"
                for model, implied in shares.items()
            ),
            min(min(implied) for implied in shares.values()) >= 100 * published.PROJECTION_SHARE - 3.0,
            "implied at beam 2, batch 20, by Table 2's ratios and Table 3's gains; 3 points allowed",
        ),
    ]


def _gains() -> list[ClaimRecord]:
    gains = {(cell.model, cell.row, cell.beam): cell.gain_percent for cell in ROWS if cell.test_set == 1}
    dense, sparse = ([gain for key, gain in gains.items() if key[0] == model] for model in MODELS)
    higher = {model: sum(gains[model, row, 1] > gains[model, row, 2] for row in DIRECTIONS) for model in MODELS}
    return [
        _spanned("FVP-21 (d)", "ZCode Dense gains {} end to end", ("13.0 to 25.7 %", 12.95, 25.75), dense, "Table 3"),
        _spanned("FVP-21 (e)", "ZCode M3 gains {} end to end", ("6 to 8.8 %", 5.5, 8.85), sparse, "Table 3"),
        printed_claim(
            "FVP-20 (b)",
            "With the large vocabulary beam 1, batch 1 gains more than beam 2, batch 20",
            "",
            f"in {higher['dense']} of {len(DIRECTIONS)} directions of ZCode Dense",
            higher["dense"] == len(DIRECTIONS),
            f"with M3's smaller vocabulary in {higher['m3']} of {len(DIRECTIONS)}; Table 3",
        ),
    ]


def _bleu_kept() -> ClaimRecord:
    changes = sorted(ROWS, key=lambda cell: cell.bleu_change)
    worst, best = (
        f"{cell.bleu_change:+.2f} ({MODELS[cell.model]} {cell.row}, set {cell.test_set}, beam {cell.beam})"
        for cell in (changes[0], changes[-1])
    )
    return printed_claim(
        "FVP-20 (c)",
        "BLEU is kept",
        "maintaining the BLEU score",
        f"{worst} to {best}, mean {fmean(cell.bleu_change for cell in ROWS):+.3f}",
        round(changes[0].bleu_change, 4) >= -published.MOST_BLEU_CHANGE,
        f"a loss of {published.MOST_BLEU_CHANGE} allowed in each of the {len(ROWS)} cells of Tables 3 and 4",
    )


def _averages(identifier: str, table: int) -> ClaimRecord:
    averages = [average for average in means() if average.printed.test_set == table - 2]
    odd = {_label(average): average for average in averages if not average.follows}
    mixed = sum(average.follows == "by sentences" for average in averages)
    why = f"of {len(averages)}, {len(averages) - len(odd) - mixed} are simple means"
    return printed_claim(
        identifier,
        f"The averages of Table {table} are means of its directions",
        "; ".join(f"{label} {average.value:.2f}" for label, average in odd.items()),
        "; ".join(f"{label} {mean.simple:.2f} simple, {mean.by_sentences:.2f} by sentences" for label, mean in odd.items()),
        not odd,
        f"{why} and {mixed} weighted by sentences" if mixed else why,
    )


def _label(average: Mean) -> str:
    names = {"baseline": "BLEU", "clustered": "BLEU with clusters", "gain_percent": "gain"}
    printed = average.printed
    return f"{MODELS[printed.model]} {printed.row}, beam {printed.beam}, {names[average.what]}"


def _size() -> ClaimRecord:
    billions = {model: preset.parameters / 1e9 for model, preset in PRESETS.items()}
    return printed_claim(
        "FVP-13",
        "The printed shapes give the printed numbers of parameters",
        "0.7 and 5 billion",
        "; ".join(f"{MODELS[model]} {count:.2f} billion" for model, count in billions.items()),
        0.7 <= billions["dense"] < 0.8 and 5.0 <= billions["m3"] < 6.0,
        "embedding tied, experts in every second layer, which the text leaves open; printed digits cut off, not rounded",
    )


def _people() -> list[ClaimRecord]:
    same = sum(abs(scores.difference - scores.printed_difference) <= 0.005 for scores in TABLE_6)
    claim, ours = "The differences of Table 6 follow from its scores", f"{same} of {len(TABLE_6)}"
    return [
        printed_claim("FVP-19 (a)", claim, "", ours, same == len(TABLE_6), ""),
        ClaimRecord(
            "FVP-19 (b)",
            "Paid annotators score translations with clusters no lower, and higher out of English",
            "+0.40 to +0.90 out of English (p < 0.05 and less), 0.00 to +0.50 into it (none)",
            "",
            UNKNOWN,
            "needs annotators; FVP-08 stands for it: how many sentences are identical, and BLEU",
            basis="published",
        ),
    ]


def _spanned(identifier: str, claim: str, span: tuple[str, float, float], values: Sequence[float], why: str) -> ClaimRecord:
    """Return the claim that all values lie in a printed span: its text, and its ends before rounding."""
    text, low, high = span
    percent = " %" if text.endswith("%") else ""
    kept = min(values) >= low and max(values) < high
    return printed_claim(identifier, claim.format(text), text, f"{format_span(values)}{percent}", kept, why)
