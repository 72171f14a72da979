"""What the paper prints (`data/vocab.toml`), what follows from it, and the claims that it decides by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from statistics import fmean
from types import SimpleNamespace as Row
from typing import Any

import numpy as np

from simnmt.papers.kit.claims import (
    Claim,
    ClaimRecord,
    Printed,
    Result,
    below,
    format_span,
    judge,
    of_paper,
    share_needed,
    unmeasured,
)
from simnmt.papers.kit.paper import read_paper
from simnmt.papers.kit.rendering import Derived
from simnmt.profile.decoder_block import memory_account

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

PRESETS = {model: Row(**shapes) for model, shapes in PAPER["presets"].items()}
"""The shapes of the paper's two models (FVP-13)."""


def _published(row: Mapping[str, Any], direction: str, **derived: float) -> Row:
    """Return a row on translations with its names, its agreement (XP-03) and what is derived from it."""
    same = f"about {100 * PAPER['identical']:.0f} % the same (section 3.4)" if row["model"] == "m3" else "not printed"
    return Row(**row, **derived, name=f"{MODELS[row['model']]}, {direction}", kind="published", agreement=f"not exact: {same}")


QUALITY = [_published(row, row["row"], bleu_change=row["bleu_part"] - row["bleu"]) for row in PAPER.table("quality").rows]
"""Tables 3 and 4, averages included."""
CELLS = [cell for cell in QUALITY if cell.row in DIRECTIONS]


def _projection(model: str) -> tuple[list[Row], Row]:
    """Return Table 2 of a model with what follows from each row, and the line through its six rows by least squares (FVP-09).

    Of a row `ratio` to the projection without clusters (FVP-15); `line_us` by the line; `operation_limit`, d V over d (r + V'),
    the ratio of multiply-adds (FVP-09); `implied_share` of the whole time, by Table 3's gain at beam 2 and the ratio (FVP-20).
    Of the line `break_even`: percentage of active columns above which the default is faster.
    """
    printed = [row for row in PAPER.table("table-2").rows if row["model"] == model]
    percent, us = (np.array([row[name] for row in printed]) for name in ("active_percent", "us"))
    vocab, default_us = PRESETS[model].vocab, DEFAULT_US[model]
    slope, fixed = np.polyfit(percent, us, 1).tolist()
    r_squared = float(np.corrcoef(percent, us)[0, 1] ** 2)
    rows = []
    for row in printed:
        active, ratio = row["active_percent"], default_us / row["us"]
        gain = PAPER.table("quality")[model, row["direction"], 1, 2, "gain_percent"]
        follows = {"line_us": fixed + slope * active, "operation_limit": vocab / (TYPICAL + vocab * active / 100.0)}
        follows["implied_share"] = share_needed(1.0 + gain / 100.0, ratio)
        rows.append(_published(row, row["direction"], beam=2, batch=20, ratio=ratio, **follows))
    break_even = (default_us - fixed) / slope
    return rows, Row(fixed_us=fixed, us_per_percent=slope, r_squared=r_squared, break_even=break_even)


PROJECTION = {model: _projection(model) for model in MODELS}
"""Rows of Table 2 by model, and the line through them."""


def derived() -> list[Derived]:
    """Return means of Table 2 and its fitted lines (FVP-09, FVP-15)."""
    figures = []
    for model, (rows, line) in PROJECTION.items():
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
        figures += [Derived(f"{MODELS[model]}: {what}", *value) for what, *value in of_this_model]
    vocabularies = PRESETS["dense"].vocab / PRESETS["m3"].vocab
    ratio = DEFAULT_US["dense"] / DEFAULT_US["m3"]
    return [*figures, Derived("default times, Dense over M3", ratio, "times", f"vocabularies: {vocabularies:.2f}")]


WHAT = {"bleu": ("BLEU", 0.0151), "bleu_part": ("BLEU with clusters", 0.0151), "gain_percent": ("gain, %", 0.0751)}
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
            figures = {"printed": printed, "simple": both["simple"], "by_sentences": both["by sentences"], "follows": follows}
            averages.append(Row(**vars(cell) | {"table": 2 + cell.set, "key": key, "what": what} | figures))
    return averages


def parameters(preset: Row) -> int:
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


# Claims by the printed figures.


def _printed() -> Iterator[tuple[str, bool, str, str]]:
    """Yield each claim that printed figures decide: whether it holds, our figures and why. Spans end before rounding."""
    rows_of = {model: rows for model, (rows, _) in PROJECTION.items()}
    active = [row.active_percent for row in rows_of["dense"]]
    ours = f"{fmean(active):.2f} %, at most {max(active):.2f} %"
    mean_active = PAPER["mean_active"]
    yield "FVP-21 (a)", abs(fmean(active) - mean_active) < 0.005, ours, f"{mean_active} % is the value of EsEn alone"
    ratios = [row.ratio for row in chain(*rows_of.values())]
    spans = [f"{MODELS[model]} {format_span([row.ratio for row in rows])}" for model, rows in rows_of.items()]
    yield "FVP-21 (b)", _within(PAPER["ratios"], ratios), format_span(ratios), f"{', '.join(spans)}, by Table 2"
    beyond = [row for row in chain(*rows_of.values()) if row.active_percent > 100 * MOST_ACTIVE + 0.5]
    ours = "; ".join(f"{MODELS[row.model]} {row.direction} {row.active_percent:.2f} %" for row in beyond)
    yield "FVP-21 (c)", not beyond, ours, "in Table 2; half a point allowed"
    shares = {MODELS[model]: [100 * row.implied_share for row in rows] for model, rows in rows_of.items()}
    ours = "; ".join(f"{name} {format_span(share, '.0f')} %, mean {fmean(share):.0f} %" for name, share in shares.items())
    why = "implied at beam 2, batch 20, by Table 2's ratios and Table 3's gains; 3 points allowed"
    yield "FVP-20 (a)", min(map(min, shares.values())) >= 100 * PAPER["projection_share"] - 3.0, ours, why
    gains = {(cell.model, cell.row, cell.beam): cell.gain_percent for cell in CELLS if cell.set == 1}
    for identifier, model in (("FVP-21 (d)", "dense"), ("FVP-21 (e)", "m3")):
        of_model_gains = [gain for (name, _, _), gain in gains.items() if name == model]
        yield identifier, _within(PAPER["gains"][model], of_model_gains), f"{format_span(of_model_gains)} %", "Table 3"
    higher = {model: sum(gains[model, row, 1] > gains[model, row, 2] for row in DIRECTIONS) for model in MODELS}
    why = f"with M3's smaller vocabulary in {higher['m3']} of {len(DIRECTIONS)}; Table 3"
    ours = f"in {higher['dense']} of {len(DIRECTIONS)} directions of ZCode Dense"
    yield "FVP-20 (b)", higher["dense"] == len(DIRECTIONS), ours, why
    worst, *_, best = sorted(CELLS, key=lambda cell: cell.bleu_change)
    ours = " to ".join(
        f"{cell.bleu_change:+.2f} ({MODELS[cell.model]} {cell.row}, set {cell.set}, beam {cell.beam})" for cell in (worst, best)
    )
    why = f"a loss of {MOST_BLEU_CHANGE} allowed in each of the {len(CELLS)} cells of Tables 3 and 4"
    mean = fmean(cell.bleu_change for cell in CELLS)
    yield "FVP-20 (c)", round(worst.bleu_change, 4) >= -MOST_BLEU_CHANGE, f"{ours}, mean {mean:+.3f}", why
    for identifier, table in (("FVP-16", 3), ("FVP-17", 4)):
        averages = [row for row in means() if row.table == table]
        odd = [row for row in averages if row.follows == "neither"]
        mixed = sum(row.follows == "by sentences" for row in averages)
        ours = "; ".join(
            f"{MODELS[row.model]} {row.row}, beam {row.beam}, {row.what} {row.simple:.2f} simple, "
            f"{row.by_sentences:.2f} by sentences"
            for row in odd
        )
        why = f"of {len(averages)}, {len(averages) - len(odd) - mixed} are simple means and {mixed} weighted by sentences"
        yield identifier, not odd, ours, why
    dense, m3 = (parameters(PRESETS[model]) / 1e9 for model in MODELS)
    cut_off = PAPER["parameters"]
    why = "embedding tied, experts in every second layer, which the text leaves open; printed digits cut off, not rounded"
    ours = f"ZCode Dense {dense:.2f} billion; ZCode M3 {m3:.2f} billion"
    yield "FVP-13", _within(cut_off["dense"], [dense]) and _within(cut_off["m3"], [m3]), ours, why
    rows = PAPER.table("table-6").rows
    same = sum(abs(row["clustered"] - row["baseline"] - row["printed_difference"]) <= 0.005 for row in rows)
    yield "FVP-19 (a)", same == len(rows), f"{same} of {len(rows)}", ""


def _within(span: tuple[float, float], values: Sequence[float]) -> bool:
    low, high = span
    return min(values) >= low and max(values) < high


def _memory(identifier: str, clusters: int) -> Claim[Printed]:
    """Return the claim on the memory of so many clusters with K = 1, beside each preset."""
    rows = [row for row in memory() if (row.clusters, row.top) == (clusters, 1)]
    ours = "; ".join(f"{MODELS[row.model]} {row.more_mb:.1f} MB, {row.more_percent:.2f} %" for row in rows)
    why = "of the weights alone in float16; the paper prints cluster 0's share, about "
    why += f"{FIGURE_4[1]:.0f} % of the columns, which is taken for all clusters"
    effects = {row.model: row.more_percent / 100.0 for row in rows}
    result = Result(effects, ours, why, words=None, basis="inferred")
    return Claim(identifier, value=lambda _: result, holds=below(MOST_MEMORY))


def printed_claims() -> list[ClaimRecord]:
    """Return the claims that the printed figures and shapes decide, and those that nothing here can decide."""
    claims: list[Claim[Printed]] = [_memory("FVP-18 (a)", BEST), _memory("FVP-18 (b)", TYPICAL)]
    for identifier, *result in _printed():
        claims.append(Claim(identifier, value=lambda _, result=result: Result(*result)))  # type: ignore[misc]
    return [*judge(of_paper(PAPER, claims), [Printed()]), *unmeasured(PAPER.unmeasured)]
