"""Rows of the printed tables and of the studies of trained models, in the same columns (FVP-08 to 19, XP-07)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from simnmt.papers.fvp import published
from simnmt.papers.fvp.decoding_claims import bleu_change, body_ratio, method_label, ratios
from simnmt.papers.fvp.memory import CENTROID_BYTES, preset_memory
from simnmt.papers.fvp.paper_claims import fit, implied_share, operation_limit, rows_of
from simnmt.papers.fvp.published import CELLS, DIRECTIONS, MODELS, SENTENCES, TABLE_5, TABLE_6, means

if TYPE_CHECKING:
    from simnmt.papers.fvp.study import Cell, Decoded, Study

Rows = list[dict[str, Any]]

AS_PRINTED = f"not exact: about {100 * published.IDENTICAL:.0f} % the same (section 3.4)"
UNPRINTED = "not exact: not printed"
UNMEASURED = "not exact: not measured"


def agreement(identical: float, tokens: float | None = None) -> str:
    """What changes, in words (XP-03)."""
    said = f"not exact: {100 * identical:.1f} % of the sentences the same"
    return said if tokens is None else f"{said}, {100 * tokens:.2f} % of the tokens"


def table_1() -> Rows:
    """Sentences."""
    return [{"direction": each, "set_1": SENTENCES[1][each], "set_2": SENTENCES[2][each]} for each in DIRECTIONS]


def table_2(studies: Sequence[Study]) -> Rows:
    """Time of a projection: printed, what the line through it says, limits by counting; and our output layers of a step."""
    rows: Rows = []
    for model, name in MODELS.items():
        line = fit(model)
        for each in rows_of(model):
            rows.append(
                {
                    "kind": "published",
                    "model": name,
                    "row": each.direction,
                    "way": "",
                    "beam": 2,
                    "batch": 20,
                    "active_percent": each.active_percent,
                    "us": each.us,
                    "line_us": line.us(each.active_percent),
                    "ratio": each.ratio,
                    "operation_limit": operation_limit(each),
                    "implied_share": implied_share(each),
                    "agreement": AS_PRINTED if model == "m3" else UNPRINTED,
                }
            )
    for study, own in decoded(studies):
        rows.append(
            {
                "kind": "measured",
                "model": study.model.name,
                "row": own.label,
                "way": method_label(own),
                "beam": own.beam,
                "batch": own.batch,
                "active_percent": 100 * own.share.mean,
                "us": 1e6 * own.part.layer_s / own.part.steps,
                "line_us": None,
                "ratio": own.layer_ratio,
                "operation_limit": 1.0 / (own.share.mean + (own.clusters or 0) / study.model.vocab),
                "implied_share": own.layer_share,
                "agreement": agreement(own.identical, own.token_agreement),
            }
        )
    return rows


def quality(studies: Sequence[Study], test_set: int) -> Rows:
    """Table 3 (set 1) or 4 (set 2): BLEU and gains end to end; with the first, ours."""
    rows: Rows = [
        {
            "kind": "published",
            "model": MODELS[each.model],
            "row": each.row,
            "way": "",
            "beam": each.beam,
            "batch": each.batch,
            "bleu": each.baseline,
            "bleu_part": each.clustered,
            "bleu_change": each.bleu_change,
            "gain_percent": each.gain_percent,
            "agreement": AS_PRINTED if each.model == "m3" else UNPRINTED,
        }
        for each in CELLS
        if each.test_set == test_set
    ]
    if test_set == 1:
        rows += [
            {
                "kind": "measured",
                "model": study.model.name,
                "row": own.label,
                "way": method_label(own),
                "beam": own.beam,
                "batch": own.batch,
                "bleu": own.dense.bleu,
                "bleu_part": own.part.bleu,
                "bleu_change": bleu_change(own),
                "gain_percent": 100 * (own.measured - 1.0),
                "agreement": agreement(own.identical, own.token_agreement),
            }
            for study, own in decoded(studies)
        ]
    return rows


def averages() -> Rows:
    """Every printed average beside both means."""
    return [
        {
            "table": 2 + each.printed.test_set,
            "model": MODELS[each.printed.model],
            "row": each.printed.row,
            "beam": each.printed.beam,
            "what": {"baseline": "BLEU", "clustered": "BLEU with clusters", "gain_percent": "gain, %"}[each.what],
            "printed": each.value,
            "simple": each.simple,
            "by_sentences": each.by_sentences,
            "follows": each.follows or "neither",
            "decimals": each.decimals,
        }
        for each in means()
    ]


def table_5(studies: Sequence[Study]) -> Rows:
    """Memory: printed; the presets by their shapes; ours as allocated."""
    rows: Rows = [
        {
            "kind": "published",
            "model": MODELS[each.model],
            "row": each.direction,
            "clusters": None,
            "model_mb": 1e3 * each.baseline_gb,
            "more_mb": 1e3 * (each.clustered_gb - each.baseline_gb),
            "more_percent": each.more_percent,
        }
        for each in TABLE_5
    ]
    rows += [
        {
            "kind": "inferred",
            "model": f"{MODELS[each.model]}, weights",
            "row": f"sets of {100 * each.mean_share:.2g} % ({each.shares_of}), {CENTROID_BYTES[each.centroid_bytes]} centroids",
            "clusters": each.clusters,
            "model_mb": (each.account.model or 0) / 1e6,
            "more_mb": each.account.total / 1e6,
            "more_percent": 100 * each.of_model,
        }
        for each in preset_memory(studies)
    ]
    rows += [
        {
            "kind": "measured",
            "model": study.model.name,
            "row": f"{own.label}, K = {own.top}",
            "clusters": own.clusters,
            "model_mb": study.model.parameter_bytes / 1e6,
            "more_mb": own.total_bytes / 1e6,
            "more_percent": 100 * own.share_of_model,
        }
        for study in studies
        for own in study.memory
    ]
    return rows


def table_6() -> Rows:
    """People's scores."""
    return [
        {
            "direction": each.direction,
            "baseline": each.baseline,
            "clustered": each.clustered,
            "printed_difference": each.printed_difference,
            "difference": each.difference,
            "level": each.level or "none",
        }
        for each in TABLE_6
    ]


def decoded(studies: Sequence[Study]) -> list[tuple[Study, Decoded]]:
    """Of every study what was chosen, and its candidate lists."""
    return [(study, own) for study in studies for own in (*study.chosen, *study.candidates)]


def cells(studies: Sequence[Study], part: str) -> Rows:
    """Of `sweep`, `volume` or `by_language`; shares are of V."""
    return [_cell(study, own) for study in studies for own in _cells(study, part)]


def _cells(study: Study, part: str) -> Iterable[Cell]:
    found: Iterable[Cell] = getattr(study, part)
    return found


def _cell(study: Study, own: Cell) -> dict[str, Any]:
    return {
        "model": study.model.name,
        "label": own.label,
        "knowledge": own.knowledge,
        "clusters": own.clusters,
        "top": own.top,
        "training_sentences": own.training_sentences,
        "training_contexts": own.training_contexts,
        "share_mean": own.share.mean,
        "share_p90": own.share.p90,
        "share_most": own.share.most,
        "union_mean": own.union.mean,
        "union_rows": own.union_rows,
        "set_most": own.sets.most,
        "share_of_emitted": own.share_of_emitted,
        "union_of_emitted": own.union_of_emitted,
        "emitted": own.emitted,
        "vocab": study.model.vocab,
        "miss_rate": own.miss_rate,
        "identical": own.identical,
        "agreement": agreement(own.identical),
        "set_bytes": own.set_bytes,
        "bundle_bytes": own.bundle_bytes,
    }


def per_cluster(studies: Sequence[Study]) -> Rows:
    """Every cluster's active columns, the largest set first."""
    return [
        {
            "model": study.model.name,
            "label": own.label,
            "clusters": own.clusters,
            "top": own.top,
            "vocab": study.model.vocab,
            "first": own.first,
            "columns": list(own.columns),
        }
        for study in studies
        for own in study.per_cluster
    ]


def speeds(studies: Sequence[Study]) -> Rows:
    """Tokens a second over dense ones by r and K, with the sentences of the same decoding that stay the same."""
    return [
        {
            "model": study.model.name,
            "label": own.label,
            "clusters": own.clusters,
            "top": own.top,
            "beam": own.beam,
            "batch": own.batch,
            "sentences": own.sentences,
            "gain_percent": 100 * own.gain,
            "low_percent": 100 * (min(own.ratios) - 1.0) if own.ratios else None,
            "high_percent": 100 * (max(own.ratios) - 1.0) if own.ratios else None,
            "agreement": UNMEASURED if own.identical is None else agreement(own.identical, own.token_agreement),
        }
        for study in studies
        for own in study.speeds
    ]


def tried(studies: Sequence[Study]) -> Rows:
    """By which decodings of the development half r and K were chosen."""
    return [
        {"model": study.model.name}
        | own.model_dump()
        | {"agreement": agreement(own.identical, own.token_agreement), "vocab": study.model.vocab}
        for study in studies
        for own in study.tried
    ]


def real(studies: Sequence[Study]) -> Rows:
    """Real decoding, cell by cell: what is active, what stays the same."""
    return [
        {
            "model": study.model.name,
            "label": own.label,
            "way": method_label(own),
            "beam": own.beam,
            "batch": own.batch,
            "sentences": own.sentences,
            "vocab": study.model.vocab,
            "share_mean": own.share.mean,
            "share_most": own.share.most,
            "share_of_emitted": own.share_of_emitted,
            "emitted": own.emitted,
            "miss_rate": own.miss_rate,
            "identical": own.identical,
            "near_ties": own.near_ties,
            "active_mass": own.active_mass,
            "token_agreement": own.token_agreement,
            "agreement": agreement(own.identical, own.token_agreement),
            "tokens_per_s": own.dense.tokens_per_s,
            "tokens_per_s_fused": own.fused.tokens_per_s,
            "tokens_per_s_part": own.part.tokens_per_s,
        }
        for study, own in decoded(studies)
    ]


def amdahl(studies: Sequence[Study]) -> Rows:
    """Predicted and measured speed-up end to end, of each cell (XP-07)."""
    return [
        {
            "model": study.model.name,
            "label": own.label,
            "way": method_label(own),
            "beam": own.beam,
            "batch": own.batch,
            "layer_share": own.layer_share,
            "layer_ratio": own.layer_ratio,
            "body_ratio": body_ratio(own),
            "step_ratio": own.step_ratio,
            "predicted": own.predicted,
            "measured": own.measured,
            "rounds": ratios(own),
            "measured_over_fused": own.measured_over_fused,
            "layer_ratio_over_fused": own.layer_ratio_over_fused,
            "off": own.predicted / own.measured - 1.0,
            "agreement": agreement(own.identical, own.token_agreement),
        }
        for study, own in decoded(studies)
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
            "seed": run.seed,
            "notes": list(run.notes),
            "quick": run.quick,
            "settings": run.settings,
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
