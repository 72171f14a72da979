"""Rows of what studies of trained models measured: sweeps, sets, languages, speeds, Amdahl's law (FVP-08 to 12, XP-07)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from simnmt.reproduce.vocab.decoding_claims import body_ratio, ratios, way_of
from simnmt.reproduce.vocab.published_rows import UNMEASURED, Rows, agreement, decoded

if TYPE_CHECKING:
    from simnmt.calibrate.vocabulary.study.document import Cell, Study


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
            "way": way_of(own),
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
            "way": way_of(own),
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
