"""What the paper prints (`data/vocab.toml`), the figures that follow from it, and the memory of clusters beside its models."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from types import SimpleNamespace as Row

import numpy as np

from simnmt.papers.kit.claims import share_needed
from simnmt.papers.kit.paper import read_paper
from simnmt.papers.kit.rendering import Derived

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

PROJECTION = [Row(**row, ratio=DEFAULT_US[row["model"]] / row["us"]) for row in PAPER.table("table-2").rows]
"""Table 2, with the speed-up over the projection without clusters (FVP-15)."""
QUALITY = [Row(**row, bleu_change=row["clustered"] - row["baseline"]) for row in PAPER.table("quality").rows]
"""Tables 3 and 4, averages included."""
CELLS = [cell for cell in QUALITY if cell.row in DIRECTIONS]
"""Cells of single directions."""
PRESETS = {model: Row(**shapes) for model, shapes in PAPER["presets"].items()}
"""The shapes of the paper's two models (FVP-13)."""


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
    """Return means of Table 2 and its fitted line (FVP-09, FVP-15)."""
    figures = []
    for model, name in MODELS.items():
        rows, line = of_model(model), fit(model)
        default = f"default: {DEFAULT_US[model] / 100.0:.1f}"
        beyond = "beyond all columns: by the line clusters always win"
        above = "active columns above which the line says that the default wins"
        of_this_model = (
            ("mean time of the projection", fmean(row.us for row in rows), "us", "Table 2"),
            ("mean ratio to the default", fmean(row.ratio for row in rows), "times", "Table 2"),
            ("time without any column", line.fixed_us, "us", f"line through Table 2, R2 {line.r_squared:.3f}"),
            ("time per percent of the columns", line.us_per_percent, "us", default),
            ("break-even", line.break_even, "%", beyond if line.break_even > 100.0 else above),
        )
        figures += [Derived(f"{name}: {what}", *value) for what, *value in of_this_model]
    vocabularies = PRESETS["dense"].vocab / PRESETS["m3"].vocab
    ratio = DEFAULT_US["dense"] / DEFAULT_US["m3"]
    return [*figures, Derived("default times, Dense over M3", ratio, "times", f"vocabularies: {vocabularies:.2f}")]


WHAT = {"baseline": ("BLEU", 0.0151), "clustered": ("BLEU with clusters", 0.0151), "gain_percent": ("gain, %", 0.0751)}
"""Words for the figures of Tables 3 and 4, and how far a printed average may be off: a BLEU 0.01, a gain 0.05 more than its
rounding, as means of rounded values may."""


def means() -> list[Row]:
    """Return both means of its three directions beside every printed average of Tables 3 and 4 (FVP-16, 17).

    `follows`: the first of `simple` and `by sentences` (of Table 1) that gives the printed mean, or `neither`.
    """
    averages = []
    for cell in QUALITY:
        if cell in CELLS:
            continue
        same = [other for other in CELLS if (other.model, other.set, other.beam) == (cell.model, cell.set, cell.beam)]
        same = [other for other in same if other.row in PAPER["groups"][cell.row]]
        weights = [PAPER.table("table-1")[other.row, f"set_{cell.set}"] for other in same]
        for key, (what, allowed) in WHAT.items():
            values, printed = [getattr(other, key) for other in same], getattr(cell, key)
            both = {"simple": fmean(values), "by sentences": float(np.average(values, weights=weights))}
            follows = next((name for name, mean in both.items() if abs(mean - printed) <= allowed), "neither")
            name = f"{MODELS[cell.model]}, {cell.row}"
            figures = {"printed": printed, "simple": both["simple"], "by_sentences": both["by sentences"], "follows": follows}
            averages.append(Row(**vars(cell) | {"name": name, "table": 2 + cell.set, "key": key, "what": what} | figures))
    return averages


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


def memory() -> list[Row]:
    """Return the rows of Table 5, and the memory of clusters beside both presets, in float16 with 32-bit indices (FVP-12, 18).

    The presets have figure 4's shares at 1,300 and, for K = 1, at 2,000 clusters; the paper prints them for cluster 0 alone.
    """
    # Here, so that the published tables need no more than their digits.
    from simnmt.nmt.vocabulary.memory_account import memory_account

    rows = []
    for row in PAPER.table("table-5").rows:
        sizes = {"model_mb": 1e3 * row["baseline_gb"], "more_mb": 1e3 * (row["clustered_gb"] - row["baseline_gb"])}
        name = f"{MODELS[row['model']]}, {row['direction']}"
        rows.append(Row(kind="published", model=row["model"], name=name, clusters=None, top=None, **sizes))
    for model, preset in PRESETS.items():
        for clusters, top in ((BEST, 1), (TYPICAL, 1), *((BEST, top) for top in FIGURE_4 if top != 1)):
            columns = round(clusters * FIGURE_4[top] / 100.0 * preset.vocab)
            more = sum(memory_account(preset.vocab, preset.width, clusters, columns).values())
            name = f"{MODELS[model]}, weights, sets of {FIGURE_4[top]:.2g} % (figure 4, K = {top})"
            sizes = {"model_mb": 2e-6 * parameters(preset), "more_mb": more / 1e6}
            rows.append(Row(kind="inferred", model=model, name=name, clusters=clusters, top=top, **sizes))
    for item in rows:
        item.more_percent = 100.0 * item.more_mb / item.model_mb
    return rows
