"""Rows of the printed tables and of the studies of trained models, in the same columns (FVP-08 to 19, XP-07)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from simnmt.papers.fvp import published
from simnmt.papers.fvp.memory import CENTROID_BYTES, preset_memory
from simnmt.papers.fvp.paper_claims import fit, implied_share, operation_limit, rows_of
from simnmt.papers.fvp.published import CELLS, DIRECTIONS, MODELS, SENTENCES, TABLE_5, TABLE_6, means

if TYPE_CHECKING:
    from simnmt.papers.fvp.study import Cell, Decoded, Study

Rows = list[dict[str, Any]]

AS_PRINTED = f"not exact: about {100 * published.IDENTICAL:.0f} % the same (section 3.4)"
UNPRINTED = "not exact: not printed"


def agreement(identical: float, tokens: float | None = None) -> str:
    """Describe how many sentences and tokens stay the same (XP-03)."""
    text = f"not exact: {100 * identical:.1f} % of the sentences the same"
    return text if tokens is None else f"{text}, {100 * tokens:.2f} % of the tokens"


def table_1() -> Rows:
    """Return the sentences of each direction and test set (Table 1)."""
    return [
        {"direction": direction, "set_1": SENTENCES[1][direction], "set_2": SENTENCES[2][direction]} for direction in DIRECTIONS
    ]


def table_2(studies: Sequence[Study]) -> Rows:
    """Return projection times: printed, fitted by a line, limited by operation counts, and measured for our output layers."""
    rows: Rows = []
    for model, name in MODELS.items():
        line = fit(model)
        for projection in rows_of(model):
            rows.append(
                {
                    "kind": "published",
                    "model": name,
                    "row": projection.direction,
                    "way": "",
                    "beam": 2,
                    "batch": 20,
                    "active_percent": projection.active_percent,
                    "us": projection.us,
                    "line_us": line.us(projection.active_percent),
                    "ratio": projection.ratio,
                    "operation_limit": operation_limit(projection),
                    "implied_share": implied_share(projection),
                    "agreement": AS_PRINTED if model == "m3" else UNPRINTED,
                }
            )
    for study, decoding in decoded(studies):
        rows.append(
            {
                "kind": "measured",
                "model": study.model.name,
                "row": decoding.label,
                "way": decoding.method_label,
                "beam": decoding.beam,
                "batch": decoding.batch,
                "active_percent": 100 * decoding.share.mean,
                "us": 1e6 * decoding.part.layer_s / decoding.part.steps,
                "line_us": None,
                "ratio": decoding.layer_ratio,
                "operation_limit": 1.0 / (decoding.share.mean + (decoding.clusters or 0) / study.model.vocab),
                "implied_share": decoding.layer_share,
                "agreement": agreement(decoding.identical, decoding.token_agreement),
            }
        )
    return rows


def quality(studies: Sequence[Study], test_set: int) -> Rows:
    """Return BLEU and end-to-end gains of Table 3 (set 1, with our measurements) or Table 4 (set 2)."""
    rows: Rows = [
        {
            "kind": "published",
            "model": MODELS[cell.model],
            "row": cell.row,
            "way": "",
            "beam": cell.beam,
            "batch": cell.batch,
            "bleu": cell.baseline,
            "bleu_part": cell.clustered,
            "bleu_change": cell.bleu_change,
            "gain_percent": cell.gain_percent,
            "agreement": AS_PRINTED if cell.model == "m3" else UNPRINTED,
        }
        for cell in CELLS
        if cell.test_set == test_set
    ]
    if test_set == 1:
        rows += [
            {
                "kind": "measured",
                "model": study.model.name,
                "row": decoding.label,
                "way": decoding.method_label,
                "beam": decoding.beam,
                "batch": decoding.batch,
                "bleu": decoding.dense.bleu,
                "bleu_part": decoding.part.bleu,
                "bleu_change": decoding.bleu_change,
                "gain_percent": 100 * (decoding.measured - 1.0),
                "agreement": agreement(decoding.identical, decoding.token_agreement),
            }
            for study, decoding in decoded(studies)
        ]
    return rows


def averages() -> Rows:
    """Return every printed average beside both recomputed means."""
    return [
        {
            "table": 2 + average.printed.test_set,
            "model": MODELS[average.printed.model],
            "row": average.printed.row,
            "beam": average.printed.beam,
            "what": {"baseline": "BLEU", "clustered": "BLEU with clusters", "gain_percent": "gain, %"}[average.what],
            "printed": average.value,
            "simple": average.simple,
            "by_sentences": average.by_sentences,
            "follows": average.follows or "neither",
            "decimals": average.decimals,
        }
        for average in means()
    ]


def table_5(studies: Sequence[Study]) -> Rows:
    """Return memory figures: printed, computed from the shapes of the presets, and allocated by our models."""
    rows: Rows = [
        {
            "kind": "published",
            "model": MODELS[printed.model],
            "row": printed.direction,
            "clusters": None,
            "model_mb": 1e3 * printed.baseline_gb,
            "more_mb": 1e3 * (printed.clustered_gb - printed.baseline_gb),
            "more_percent": printed.more_percent,
        }
        for printed in TABLE_5
    ]
    rows += [
        {
            "kind": "inferred",
            "model": f"{MODELS[preset.model]}, weights",
            "row": f"sets of {100 * preset.mean_share:.2g} % ({preset.shares_of}), "
            f"{CENTROID_BYTES[preset.centroid_bytes]} centroids",
            "clusters": preset.clusters,
            "model_mb": (preset.account.model or 0) / 1e6,
            "more_mb": preset.account.total / 1e6,
            "more_percent": 100 * preset.of_model,
        }
        for preset in preset_memory(studies)
    ]
    rows += [
        {
            "kind": "measured",
            "model": study.model.name,
            "row": f"{bundle.label}, K = {bundle.top}",
            "clusters": bundle.clusters,
            "model_mb": study.model.parameter_bytes / 1e6,
            "more_mb": bundle.total_bytes / 1e6,
            "more_percent": 100 * bundle.total_bytes / study.model.parameter_bytes,
        }
        for study in studies
        for bundle in study.memory
    ]
    return rows


def table_6() -> Rows:
    """Return the human evaluation scores."""
    return [
        {
            "direction": scores.direction,
            "baseline": scores.baseline,
            "clustered": scores.clustered,
            "printed_difference": scores.printed_difference,
            "difference": scores.difference,
            "level": scores.level or "none",
        }
        for scores in TABLE_6
    ]


def decoded(studies: Sequence[Study]) -> list[tuple[Study, Decoded]]:
    """Return each study with its decodings by the chosen clusters and by candidate lists."""
    return [(study, decoding) for study in studies for decoding in (*study.chosen, *study.candidates)]


def cells(studies: Sequence[Study], part: str) -> Rows:
    """Return the rows of part `sweep`, `volume` or `by_language`; shares are of V."""
    return [_cell(study, cell) for study in studies for cell in _cells(study, part)]


def _cells(study: Study, part: str) -> Iterable[Cell]:
    part_cells: Iterable[Cell] = getattr(study, part)
    return part_cells


def _cell(study: Study, cell: Cell) -> dict[str, Any]:
    return {
        "model": study.model.name,
        "label": cell.label,
        "knowledge": cell.knowledge,
        "clusters": cell.clusters,
        "top": cell.top,
        "training_sentences": cell.training_sentences,
        "training_contexts": cell.training_contexts,
        "share_mean": cell.share.mean,
        "share_p90": cell.share.p90,
        "share_most": cell.share.most,
        "union_mean": cell.union.mean,
        "union_rows": cell.union_rows,
        "set_most": cell.sets.most,
        "share_of_emitted": cell.share_of_emitted,
        "union_of_emitted": cell.union_of_emitted,
        "emitted": cell.emitted,
        "vocab": study.model.vocab,
        "miss_rate": cell.miss_rate,
        "identical": cell.identical,
        "agreement": agreement(cell.identical),
        "set_bytes": cell.set_bytes,
        "bundle_bytes": cell.bundle_bytes,
    }


def per_cluster(studies: Sequence[Study]) -> Rows:
    """Return the active columns of every cluster, the largest set first."""
    return [
        {
            "model": study.model.name,
            "label": sizes.label,
            "clusters": sizes.clusters,
            "top": sizes.top,
            "vocab": study.model.vocab,
            "first": sizes.first,
            "columns": list(sizes.columns),
        }
        for study in studies
        for sizes in study.per_cluster
    ]


def speeds(studies: Sequence[Study]) -> Rows:
    """Return the gain in tokens/s over dense decoding by r and K, with the agreement of the same decoding."""
    return [
        {
            "model": study.model.name,
            "label": speed.label,
            "clusters": speed.clusters,
            "top": speed.top,
            "beam": speed.beam,
            "batch": speed.batch,
            "sentences": speed.sentences,
            "gain_percent": 100 * speed.gain,
            "low_percent": 100 * (min(speed.ratios) - 1.0),
            "high_percent": 100 * (max(speed.ratios) - 1.0),
            "agreement": agreement(speed.identical, speed.token_agreement),
        }
        for study in studies
        for speed in study.speeds
    ]


def tried(studies: Sequence[Study]) -> Rows:
    """Return the decodings of the development half from which r and K were chosen."""
    return [
        {"model": study.model.name}
        | trial.model_dump()
        | {"agreement": agreement(trial.identical, trial.token_agreement), "vocab": study.model.vocab}
        for study in studies
        for trial in study.tried
    ]


def real(studies: Sequence[Study]) -> Rows:
    """Return active shares, agreement and speed of every real decoding."""
    return [
        {
            "model": study.model.name,
            "label": decoding.label,
            "way": decoding.method_label,
            "beam": decoding.beam,
            "batch": decoding.batch,
            "sentences": decoding.sentences,
            "vocab": study.model.vocab,
            "share_mean": decoding.share.mean,
            "share_most": decoding.share.most,
            "share_of_emitted": decoding.share_of_emitted,
            "emitted": decoding.emitted,
            "miss_rate": decoding.miss_rate,
            "identical": decoding.identical,
            "near_ties": decoding.near_ties,
            "active_mass": decoding.active_mass,
            "token_agreement": decoding.token_agreement,
            "agreement": agreement(decoding.identical, decoding.token_agreement),
            "tokens_per_s": decoding.dense.tokens_per_s,
            "tokens_per_s_fused": decoding.fused.tokens_per_s,
            "tokens_per_s_part": decoding.part.tokens_per_s,
        }
        for study, decoding in decoded(studies)
    ]


def amdahl(studies: Sequence[Study]) -> Rows:
    """Return the predicted and measured end-to-end speed-up of every decoding (XP-07)."""
    return [
        {
            "model": study.model.name,
            "label": decoding.label,
            "way": decoding.method_label,
            "beam": decoding.beam,
            "batch": decoding.batch,
            "layer_share": decoding.layer_share,
            "layer_ratio": decoding.layer_ratio,
            "body_ratio": decoding.body_ratio,
            "step_ratio": decoding.step_ratio,
            "predicted": decoding.predicted,
            "measured": decoding.measured,
            "rounds": list(decoding.gains),
            "measured_over_fused": decoding.measured_over_fused,
            "layer_ratio_over_fused": decoding.layer_ratio_over_fused,
            "off": decoding.predicted / decoding.measured - 1.0,
            "agreement": agreement(decoding.identical, decoding.token_agreement),
        }
        for study, decoding in decoded(studies)
    ]


def runs(studies: Sequence[Study]) -> Rows:
    """How and when each part was measured."""
    return [
        {
            "model": study.model.name,
            "part": run.part,
            "labels": list(run.labels),
            "date": run.date,
            "seconds": run.seconds,
            "threads": run.threads,
            "machine": run.machine,
            "others_cpus": run.others_cpus,
            "versions": run.versions,
            "method": run.method,
            "seed": run.settings.seed,
            "notes": list(run.notes),
            "quick": run.settings.quick,
            "settings": run.settings.model_dump(mode="json"),
        }
        for study in studies
        for run in study.runs
    ]


def models(studies: Sequence[Study]) -> Rows:
    """What was studied, with the sums that say which files."""
    return [
        {
            "model": study.model.name,
            "architecture": study.model.kind,
            "sha256": study.model.sha256,
            "vocab": study.model.vocab,
            "width": study.model.width,
            "parameters": study.model.parameters,
            "parameter_bytes": study.model.parameter_bytes,
            "machines": sorted({run.machine for run in study.runs}),
            "dates": sorted({run.date[:10] for run in study.runs}),
            "tool": study.tool,
            "texts": [text.model_dump() for text in study.texts],
        }
        for study in studies
    ]
