"""Rows of what is printed, and ours in the same columns (FVP-14 to 19)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simnmt.reproduce.vocab import published
from simnmt.reproduce.vocab.decoding_claims import bleu_change, way_of
from simnmt.reproduce.vocab.derived import fit, implied_share, operation_limit, rows_of
from simnmt.reproduce.vocab.memory_claims import CENTROID_BYTES, preset_memory
from simnmt.reproduce.vocab.published import DIRECTIONS, MODELS, SENTENCES, TABLE_5, TABLE_6
from simnmt.reproduce.vocab.published_quality import CELLS, means

if TYPE_CHECKING:
    from simnmt.calibrate.vocabulary.study.document import Decoded, Study

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
                "way": way_of(own),
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
                "way": way_of(own),
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
