"""What the paper prints (`data/vocab.toml`), the figures that follow from it, and the memory of clusters beside its models."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from types import SimpleNamespace

import numpy as np

from simnmt.papers.kit.claims import share_needed
from simnmt.papers.kit.paper import read_paper
from simnmt.papers.kit.rendering import Derived

Row = SimpleNamespace
"""A row, with an attribute for each column."""
PAPER = read_paper("vocab")
MODELS: Mapping[str, str] = PAPER["models"]
DEFAULT_US: Mapping[str, float] = PAPER["default_us"]
"""Microseconds of the projection without clusters, `about` (section 3.2)."""
DIRECTIONS = [direction for group in PAPER["groups"].values() for direction in group]
FIGURE_4: Mapping[int, float] = {int(top): percent for top, percent in PAPER["figure_4"].items()}
BEST, TYPICAL = PAPER["figure_3_best"], PAPER["typical_clusters"]
"""Clusters with which decoding was fastest, and what section 2.3 calls typical."""
MOST_ACTIVE: float = PAPER["most_active"]
LEAST_IDENTICAL = 0.90
"""Least share of held-out sentences that must stay the same (FVP-08's accept)."""
MOST_BLEU_CHANGE = 0.2
"""Largest accepted change of BLEU against dense decoding, in points."""
MOST_MEMORY = 0.02
"""Largest share of the model's memory that clusters may add in the preset (FVP-18's accept)."""
NEAR_PREDICTED = 0.10
"""Largest relative difference of Amdahl's prediction from the measurement (FVP-20's accept)."""
LEAST_STEP_RATIO = 1.5
"""Least speed-up of the projection at 15 % active and less, on a GPU (FVP-15's accept)."""

PROJECTION = [Row(**row, ratio=DEFAULT_US[row["model"]] / row["us"]) for row in PAPER.table("table-2").rows]
"""Table 2, with the speed-up over the projection without clusters (FVP-15)."""
QUALITY = [Row(**row, bleu_change=row["clustered"] - row["baseline"]) for row in PAPER.table("quality").rows]
"""Tables 3 and 4, averages included."""
CELLS = [cell for cell in QUALITY if cell.row in DIRECTIONS]
"""Cells of single directions."""
MEMORY = [
    Row(**row, more_percent=100.0 * (row["clustered_gb"] / row["baseline_gb"] - 1.0)) for row in PAPER.table("table-5").rows
]
"""Table 5, with the memory that clusters add."""


def of_model(model: str) -> list[Row]:
    """Return the rows of Table 2 of a model."""
    return [row for row in PROJECTION if row.model == model]


def fit(model: str) -> Row:
    """Fit a line through the six rows of a model in Table 2 by least squares (FVP-09).

    `fixed_us`, `us_per_percent`, `r_squared`; `break_even`: percentage of active columns above which the default is faster.
    """
    percent, us = (np.array([getattr(row, name) for row in of_model(model)]) for name in ("active_percent", "us"))
    slope, fixed = (float(value) for value in np.polyfit(percent, us, 1))
    r_squared = float(np.corrcoef(percent, us)[0, 1] ** 2)
    return Row(fixed_us=fixed, us_per_percent=slope, r_squared=r_squared, break_even=(DEFAULT_US[model] - fixed) / slope)


def operation_limit(row: Row, clusters: int = TYPICAL) -> float:
    """Return the ratio of multiply-adds without and with clusters: d V over d (r + V') (FVP-09)."""
    vocab = PRESETS[row.model].vocab
    return float(vocab / (clusters + vocab * row.active_percent / 100.0))


def implied_share(row: Row) -> float:
    """Return the share of the whole time in the projection that Table 3's gain at beam 2 and its ratio imply (FVP-20)."""
    gain = PAPER.table("quality")[row.model, row.direction, 1, 2, "gain_percent"]
    return share_needed(1.0 + gain / 100.0, row.ratio)


def derived() -> list[Derived]:
    """Return means of Table 2, its fitted line, limits by counting and implied shares (FVP-09, 13, 15, 20)."""
    figures = []
    for model, name in MODELS.items():
        rows, line, preset = of_model(model), fit(model), PRESETS[model]
        limits, shares = [operation_limit(row) for row in rows], [100.0 * implied_share(row) for row in rows]
        beyond = "beyond all columns: by the line clusters always win"
        above = "active columns above which the line says that the default wins"
        figures += [
            Derived(f"{name}: parameters", parameters(preset) / 1e9, "billion", preset.printed),
            Derived(f"{name}: mean of the columns active", fmean(row.active_percent for row in rows), "%", "Table 2"),
            Derived(f"{name}: mean time of the projection", fmean(row.us for row in rows), "us", "Table 2"),
            Derived(f"{name}: mean ratio to the default", fmean(row.ratio for row in rows), "times", "Table 2"),
            Derived(f"{name}: time without any column", line.fixed_us, "us", f"line through Table 2, R2 {line.r_squared:.3f}"),
            Derived(
                f"{name}: time per percent of the columns",
                line.us_per_percent,
                "us",
                f"default: {DEFAULT_US[model] / 100.0:.1f}",
            ),
            Derived(f"{name}: break-even", line.break_even, "%", beyond if line.break_even > 100.0 else above),
            Derived(f"{name}: least limit by counting", min(limits), "times", f"multiply-adds, {TYPICAL:,} clusters"),
            Derived(f"{name}: most by counting", max(limits), "times", "so what is fixed may dominate the times printed"),
            Derived(f"{name}: least share of the projection", min(shares), "%", "that beam 2's gain and ratio imply"),
            Derived(f"{name}: mean share of the projection", fmean(shares), "%", "`about 25 % or more` in the text"),
            Derived(f"{name}: largest share of the projection", max(shares), "%", "the same"),
        ]
    dense, sparse = DEFAULT_US.values()
    vocabularies = PRESETS["dense"].vocab / PRESETS["m3"].vocab
    figures.append(Derived("default times, Dense over M3", dense / sparse, "times", f"vocabularies: {vocabularies:.2f}"))
    return figures


def means() -> list[Row]:
    """Return both means of its three directions beside every printed average of Tables 3 and 4 (FVP-16, 17).

    `follows`: the first of `simple` and `by sentences` (of Table 1) that gives the printed mean, or `neither`. A BLEU may be
    0.01 off, and a gain 0.05 more than its rounding, as means of rounded values may.
    """
    sentences, averages = PAPER.table("table-1"), []
    for cell in QUALITY:
        if cell in CELLS:
            continue
        same = [other for other in CELLS if (other.model, other.set, other.beam) == (cell.model, cell.set, cell.beam)]
        same = [other for other in same if other.row in PAPER["groups"][cell.row]]
        weights = [sentences[other.row, f"set_{cell.set}"] for other in same]
        for what, allowed, decimals in (("baseline", 0.0151, 2), ("clustered", 0.0151, 2), ("gain_percent", 0.0751, 1)):
            values, printed = [getattr(other, what) for other in same], getattr(cell, what)
            both = {"simple": fmean(values), "by sentences": float(np.average(values, weights=weights))}
            follows = next((name for name, mean in both.items() if abs(mean - printed) <= allowed), "neither")
            names = {"model": cell.model, "row": cell.row, "set": cell.set, "beam": cell.beam, "what": what}
            figures = {"printed": printed, "simple": both["simple"], "by_sentences": both["by sentences"]}
            averages.append(Row(**names, **figures, decimals=decimals, follows=follows))
    return averages


PRESETS = {model: Row(**shapes) for model, shapes in PAPER["presets"].items()}
"""The shapes of the paper's two models (FVP-13)."""


def parameters(preset: Row) -> int:
    """Count the weights, biases and norms of all layers of a preset, and the embedding."""
    attention = 4 * preset.width * (preset.width + 1)
    block = preset.width * preset.feed_forward * 2 + preset.feed_forward + preset.width
    layers = preset.encoder_layers + preset.decoder_layers
    sparse = 0 if preset.experts == 1 else layers // preset.expert_every
    attentions = preset.encoder_layers + 2 * preset.decoder_layers
    blocks = (layers - sparse + sparse * preset.experts) * block + sparse * preset.width * preset.experts
    norms = (attentions + layers + 2) * 2 * preset.width
    return int(preset.vocab * preset.width + attentions * attention + blocks + norms)


def preset_memory() -> list[Row]:
    """Return the memory of clusters beside both presets, in float16 and with 32-bit indices (FVP-12, FVP-18).

    With figure 4's shares at 1,300 and, for K = 1, at 2,000 clusters. The shares that the paper prints for cluster 0 are taken
    for all clusters. `of_model`: share of the weights; `of_published`: share of Table 5's memory, more than weights.
    """
    # Here, so that the published tables need no more than their digits.
    from simnmt.nmt.vocabulary.memory_account import memory_account

    rows = []
    for model, preset in PRESETS.items():
        model_bytes, (gb,) = 2 * parameters(preset), {row.baseline_gb for row in MEMORY if row.model == model}
        for clusters, top in ((BEST, 1), (TYPICAL, 1), *((BEST, top) for top in FIGURE_4 if top != 1)):
            columns = round(clusters * FIGURE_4[top] / 100.0 * preset.vocab)
            more = sum(memory_account(preset.vocab, preset.width, clusters, columns).values())
            names = {"model": model, "clusters": clusters, "top": top, "percent": FIGURE_4[top]}
            sizes = {"model_bytes": model_bytes, "bytes": more}
            rows.append(Row(**names, **sizes, of_model=more / model_bytes, of_published=more / gb / 1e9))
    return rows
