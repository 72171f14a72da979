"""What follows from the paper's printed figures: fits, break-even, limits by counting, shares of time (FVP-09, 15, 16, 20)."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

import numpy as np

from simnmt.reproduce.amdahl import share_needed
from simnmt.reproduce.vocab.presets import PRESETS
from simnmt.reproduce.vocab.published import DEFAULT_US, MODELS, TABLE_2, TYPICAL_CLUSTERS, Model, Projection
from simnmt.reproduce.vocab.published_quality import ROWS


@dataclass(frozen=True, slots=True)
class TimeByShare:
    """Microseconds of a projection as a line over the percentage of columns active, through Table 2 (FVP-09)."""

    model: Model
    fixed_us: float
    us_per_percent: float
    r_squared: float

    def us(self, percent: float) -> float:
        """At so many percent."""
        return self.fixed_us + self.us_per_percent * percent

    @property
    def break_even_percent(self) -> float:
        """Active columns beyond which the default is faster; above 100: the line says nowhere."""
        return (DEFAULT_US[self.model] - self.fixed_us) / self.us_per_percent


def fit(model: Model) -> TimeByShare:
    """Least squares through the six rows of a model."""
    rows = rows_of(model)
    percent, us = np.array([each.active_percent for each in rows]), np.array([each.us for each in rows])
    slope, fixed = np.polyfit(percent, us, 1)
    off = us - (fixed + slope * percent)
    return TimeByShare(model, float(fixed), float(slope), 1.0 - float((off**2).sum() / ((us - us.mean()) ** 2).sum()))


def rows_of(model: Model) -> list[Projection]:
    """Table 2's."""
    return [each for each in TABLE_2 if each.model == model]


def mean_percent(model: Model) -> float:
    """Of Table 2's active columns."""
    return fmean([each.active_percent for each in rows_of(model)])


def operation_limit(row: Projection, clusters: int = TYPICAL_CLUSTERS) -> float:
    """How many times fewer multiply-adds: d V over d (r + V') (FVP-09)."""
    vocab = PRESETS[row.model].vocab
    return vocab / (clusters + vocab * row.active_percent / 100.0)


def implied_share(row: Projection) -> float:
    """Share of the whole time that the projection must have had for Table 3's gain at beam 2 and its ratio (FVP-20)."""
    (own,) = (each for each in ROWS if (each.model, each.row, each.test_set, each.beam) == (row.model, row.direction, 1, 2))
    return share_needed(1.0 + own.gain_percent / 100.0, row.ratio)


@dataclass(frozen=True, slots=True)
class Derived:
    """One figure that follows from printed ones."""

    what: str
    value: float
    unit: str
    meaning: str


def derived() -> list[Derived]:
    """Means of Table 2, the line through it, limits by counting, implied shares (FVP-09, 13, 15, 20)."""
    found = []
    for model, name in MODELS.items():
        rows, line, preset = rows_of(model), fit(model), PRESETS[model]
        vocab_us = DEFAULT_US[model] / 100.0
        limits = [operation_limit(each) for each in rows]
        shares = [100.0 * implied_share(each) for each in rows]
        found += [
            Derived(f"{name}: parameters", preset.parameters / 1e9, "billion", preset.said),
            Derived(f"{name}: mean of the columns active", mean_percent(model), "%", "Table 2"),
            Derived(f"{name}: mean time of the projection", fmean([each.us for each in rows]), "us", "Table 2"),
            Derived(f"{name}: mean ratio to the default", fmean([each.ratio for each in rows]), "times", "Table 2"),
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
    found.append(Derived("default times, Dense over M3", dense / sparse, "times", f"vocabularies: {vocabularies:.2f}"))
    return found


def _where(percent: float) -> str:
    if percent > 100.0:
        return "beyond all columns: by the line clusters always win"
    return "active columns above which the line says that the default wins"
