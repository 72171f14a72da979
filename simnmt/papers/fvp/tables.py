"""Tables of the reproduction: the printed ones with our figures in the same columns, and those of studies and benches alone.

Every row on translations says how many sentences stay the same, or that the paper does not print it (XP-03).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from simnmt.calibrate.projection_bench import ProjectionBench
from simnmt.papers.fvp import published
from simnmt.papers.fvp.evidence import name_of
from simnmt.papers.fvp.paper_claims import derived, fit, implied_share, operation_limit, rows_of
from simnmt.papers.fvp.presets import CENTROID_BYTES, preset_memory
from simnmt.papers.fvp.published import CELLS, DIRECTIONS, MODELS, SENTENCES, TABLE_5, TABLE_6, Model, means
from simnmt.papers.fvp.study import Decoded, Part, Study, format_clusters
from simnmt.papers.kit.page import Row
from simnmt.papers.kit.table import Column, Table, Value
from simnmt.report.typography import number

SHOWN_DIGITS = 16
"""Digits of a SHA-256 sum on the page; the JSON document has all 64."""
KNOWN = {"both": "both languages", "target": "the target alone", "mixed, same size": "the target alone, as much text"}


def all_tables(studies: Sequence[Study], benches: Sequence[ProjectionBench]) -> list[Table]:
    """Return every table, in the order of the page; a table without measurements has no rows."""
    return [
        _real(studies),
        _sentences(),
        _projection(studies),
        _quality("table-3", "Table 3: BLEU and speed, set 1", studies, 1),
        _quality("table-4", "Table 4: BLEU and speed, set 2", (), 2),
        _averages(),
        _memory(studies),
        _people(),
        _amdahl(studies),
        _cells("figure-2", "Figure 2: knowledge of languages", studies, "by_language"),
        _speeds(studies),
        _trials(studies),
        _cells("sweep", "Clusters and K", studies, "sweep"),
        _cells("volume", "Training text", studies, "volume"),
        _per_cluster(studies),
        _bench(benches),
        _break_even(benches),
        _derived(),
        _runs(studies),
    ]


def _agreement(identical: float, tokens: float | None = None) -> str:
    text = f"not exact: {100 * identical:.1f} % of the sentences the same"
    return text if tokens is None else f"{text}, {100 * tokens:.2f} % of the tokens"


def _printed_agreement(model: Model) -> str:
    return (
        f"not exact: about {100 * published.IDENTICAL:.0f} % the same (section 3.4)"
        if model == "m3"
        else ("not exact: not printed")
    )


def _decodings(studies: Sequence[Study]) -> list[tuple[Study, Decoded]]:
    """Return each study with its decodings by the chosen clusters and by candidate lists."""
    return [(study, decoding) for study in studies for decoding in (*study.chosen, *study.candidates)]


def _fields(entry: object, *names: str) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in names}


def _decoded(study: Study, decoding: Decoded, label: str = "label") -> dict[str, Any]:
    """Return the fields that name a decoding and its agreement; `label`: the key of the direction."""
    return {
        "model": study.model.name,
        label: decoding.label,
        "way": decoding.method_label,
        "beam": decoding.beam,
        "batch": decoding.batch,
        "agreement": _agreement(decoding.identical, decoding.token_agreement),
    }


def _name(row: Row) -> str:
    return ", ".join(part for part in (row["model"], row.get("row", row.get("label")), row.get("way")) if part)


DIRECTION = Column("direction", _name)
SEARCH = Column("beam, batch", lambda row: f"{row['beam']}, {row['batch']}")
KIND = Column("kind", "kind", kind=True)
TRANSLATIONS = Column("translations", "agreement", words=True)
CLUSTERS = (Column("clusters", "clusters", digits=0), Column("K", "top", digits=0))


def _published(row: Row) -> bool:
    return bool(row["kind"] == "published")


def _real(studies: Sequence[Study]) -> Table:
    return Table(
        "real",
        "Real decoding of held-out text",
        [
            _decoded(study, decoding)
            | _fields(decoding, "sentences", "share_of_emitted", "emitted", "miss_rate", "identical", "near_ties")
            | _fields(decoding, "active_mass", "token_agreement")
            | {
                "vocab": study.model.vocab,
                "share_mean": decoding.share.mean,
                "share_most": decoding.share.most,
                "tokens_per_s": decoding.dense.tokens_per_s,
                "tokens_per_s_fused": decoding.fused.tokens_per_s,
                "tokens_per_s_part": decoding.part.tokens_per_s,
            }
            for study, decoding in _decodings(studies)
        ],
        [
            DIRECTION,
            SEARCH,
            Column(
                "active, % of V",
                "share_mean",
                digits=2,
                scale=100,
                small=lambda row: f"at most {number(100 * row['share_most'], 2)}",
            ),
            Column("V", "vocab", digits=0),
            Column(
                "of what is written, %",
                "share_of_emitted",
                digits=1,
                scale=100,
                small=lambda row: f"of {number(row['emitted'], 0)}",
            ),
            Column("missed, %", "miss_rate", digits=3, scale=100),
            Column("probability, %", "active_mass", digits=1, scale=100),
            Column(
                "sentences the same, %",
                "identical",
                digits=1,
                scale=100,
                small=lambda row: f"of {number(row['sentences'], 0)}",
            ),
            Column("tokens the same, %", "token_agreement", digits=2, scale=100),
            Column("tokens/s, all", "tokens_per_s", digits=0),
            Column("fused", "tokens_per_s_fused", digits=0),
            Column("with a part", "tokens_per_s_part", digits=0),
        ],
        "Share of active columns: of V, and of the tokens that dense decoding of the training text and the development half "
        "writes; small print: the most of any step. Missed: on the path of this decoding. Probability: of the model's, the "
        "part on active columns at batch 1.",
    )


def _sentences() -> Table:
    return Table(
        "table-1",
        "Table 1: sentences",
        [
            {"direction": direction, "set_1": SENTENCES[1][direction], "set_2": SENTENCES[2][direction]}
            for direction in DIRECTIONS
        ],
        [Column("direction", "direction"), Column("set 1", "set_1", digits=0), Column("set 2", "set_2", digits=0)],
        "As published; the weights of the averages of Tables 3 and 4.",
        published=True,
    )


def _projection(studies: Sequence[Study]) -> Table:
    rows = [
        {
            "kind": "published",
            "model": name,
            "row": projection.direction,
            "way": "",
            "beam": 2,
            "batch": 20,
            "active_percent": projection.active_percent,
            "us": projection.us,
            "line_us": fit(model).us(projection.active_percent),
            "ratio": projection.ratio,
            "operation_limit": operation_limit(projection),
            "implied_share": implied_share(projection),
            "agreement": _printed_agreement(model),
        }
        for model, name in MODELS.items()
        for projection in rows_of(model)
    ]
    rows += [
        _decoded(study, decoding, "row")
        | {
            "kind": "measured",
            "active_percent": 100 * decoding.share.mean,
            "us": 1e6 * decoding.part.layer_s / decoding.part.steps,
            "line_us": None,
            "ratio": decoding.layer_ratio,
            "operation_limit": 1.0 / (decoding.share.mean + (decoding.clusters or 0) / study.model.vocab),
            "implied_share": decoding.layer_share,
        }
        for study, decoding in _decodings(studies)
    ]
    return Table(
        "table-2",
        "Table 2: the projection of a step",
        rows,
        [
            DIRECTION,
            KIND,
            SEARCH,
            Column("active, %", "active_percent", digits=2),
            Column("us", "us", digits=1),
            Column("by the line, us", "line_us", digits=1),
            Column("ratio", "ratio", digits=2),
            Column("ratio by counting", "operation_limit", digits=1),
            Column("share, %", "implied_share", digits=1, scale=100),
            TRANSLATIONS,
        ],
        "Published: the projection, of 720 us (ZCode Dense) and 600 us (ZCode M3) by default. Ours: the output layer, softmax "
        "and search included. By counting: multiply-adds, with 2,000 clusters for the paper's. The line: through a model's six "
        "points. Share: of the whole time, as Tables 2 and 3 imply it, and as ours was measured.",
        published=_published,
        on_terminal=True,
    )


def _quality(identifier: str, title: str, studies: Sequence[Study], test_set: int) -> Table:
    """Return BLEU and end-to-end gains of Table 3 (set 1, with our measurements) or Table 4 (set 2)."""
    rows = [
        {
            "kind": "published",
            "model": MODELS[cell.model],
            "way": "",
            **_fields(cell, "row", "beam", "batch", "bleu_change", "gain_percent"),
            "bleu": cell.baseline,
            "bleu_part": cell.clustered,
            "agreement": _printed_agreement(cell.model),
        }
        for cell in CELLS
        if cell.test_set == test_set
    ]
    rows += [
        _decoded(study, decoding, "row")
        | {
            "kind": "measured",
            "bleu": decoding.dense.bleu,
            "bleu_part": decoding.part.bleu,
            "bleu_change": decoding.bleu_change,
            "gain_percent": 100 * (decoding.measured - 1.0),
        }
        for study, decoding in _decodings(studies)
    ]
    return Table(
        identifier,
        title,
        rows,
        [
            DIRECTION,
            KIND,
            SEARCH,
            Column("BLEU", "bleu", digits=2),
            Column("BLEU with a part", "bleu_part", digits=2),
            Column("change", "bleu_change", digits=2, signed=True),
            Column("gain, %", "gain_percent", digits=2, signed=True),
            TRANSLATIONS,
        ],
        "The gain is of tokens per second end to end. EX and XE are averages as printed; a table below recomputes them.",
        published=_published,
        on_terminal=True,
    )


def _averages() -> Table:
    names = {"baseline": "BLEU", "clustered": "BLEU with clusters", "gain_percent": "gain, %"}
    return Table(
        "averages",
        "Averages of Tables 3 and 4, recomputed",
        [
            {
                "table": 2 + average.printed.test_set,
                "model": MODELS[average.printed.model],
                "row": average.printed.row,
                "beam": average.printed.beam,
                "what": names[average.what],
                "printed": average.value,
                "follows": average.follows or "neither",
                **_fields(average, "simple", "by_sentences", "decimals"),
            }
            for average in means()
        ],
        [
            Column("average", _name),
            Column("table", "table", digits=0),
            Column("beam", "beam", digits=0),
            Column("of", "what", words=True),
            Column("printed", lambda row: number(row["printed"], row["decimals"])),
            Column("simple mean", "simple", digits=2),
            Column("weighted by sentences", "by_sentences", digits=2),
            Column("printed is", "follows", words=True),
        ],
        "The simple mean of three directions, and their mean weighted by the sentences of Table 1.",
    )


def _memory(studies: Sequence[Study]) -> Table:
    rows = [
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
    return Table(
        "table-5",
        "Table 5: memory",
        rows,
        [
            Column("model", _name),
            KIND,
            CLUSTERS[0],
            Column("model, MB", "model_mb", digits=1),
            Column("more, MB", "more_mb", significant=3),
            Column("more, %", "more_percent", digits=2),
        ],
        "Published: memory of the device. Inferred: the presets' weights in float16 by their shapes, with sets as large as "
        "figure 4 prints of cluster 0, here taken for all, or as our own sets are. Measured: ours as allocated, centroids, "
        "norms, sets and flags.",
        published=_published,
        on_terminal=True,
    )


def _people() -> Table:
    return Table(
        "table-6",
        "Table 6: human evaluation",
        [
            _fields(scores, "direction", "baseline", "clustered", "printed_difference", "difference")
            | {"level": scores.level or "none"}
            for scores in TABLE_6
        ],
        [
            Column("direction", "direction"),
            Column("without clusters", "baseline", digits=2),
            Column("with clusters", "clustered", digits=2),
            Column("printed difference", "printed_difference", digits=2, signed=True),
            Column("recomputed", "difference", digits=2, signed=True),
            Column("significance", "level", words=True),
        ],
        "As published, 0 to 100, of 1,700 translations a direction that differ; nothing here can repeat it.",
        published=True,
    )


def _amdahl(studies: Sequence[Study]) -> Table:
    return Table(
        "amdahl",
        "The output layer by Amdahl's law",
        [
            _decoded(study, decoding)
            | _fields(decoding, "layer_share", "layer_ratio", "body_ratio", "step_ratio", "predicted", "measured")
            | _fields(decoding, "measured_over_fused", "layer_ratio_over_fused")
            | {"rounds": list(decoding.gains), "off": decoding.predicted / decoding.measured - 1.0}
            for study, decoding in _decodings(studies)
        ],
        [
            DIRECTION,
            SEARCH,
            Column("share, %", "layer_share", digits=1, scale=100),
            Column(
                "output layer's gain",
                "layer_ratio",
                digits=2,
                small=lambda row: f"{number(row['layer_ratio_over_fused'], 2)} over fused",
            ),
            Column("body's gain", "body_ratio", digits=2),
            Column("predicted", "predicted", digits=3),
            Column(
                "measured",
                "measured",
                digits=3,
                small=lambda row: f"[{number(min(row['rounds']), 3)}, {number(max(row['rounds']), 3)}]",
            ),
            Column("off, %", "off", digits=1, scale=100, signed=True),
            Column("over fused", "measured_over_fused", digits=3),
            TRANSLATIONS,
        ],
        "Share: of the plain decoder's time in projection, softmax and search. Gain: of the output layer, the choice of "
        "columns included. Over fused: beside the fused output layer with all columns, so the gain of leaving columns out "
        "alone. Body: below the output layer, whose gain Amdahl's law takes for 1.",
        on_terminal=True,
    )


def _cells(identifier: str, title: str, studies: Sequence[Study], part: Part) -> Table:
    """Return the cells of a part of the studies: active, missed and kept on held-out text."""
    rows = [
        {
            "model": study.model.name,
            "vocab": study.model.vocab,
            **_fields(cell, "label", "knowledge", "clusters", "top", "training_sentences", "training_contexts", "union_rows"),
            **_fields(cell, "share_of_emitted", "union_of_emitted", "emitted", "miss_rate", "identical", "set_bytes"),
            "bundle_bytes": cell.bundle_bytes,
            "share_mean": cell.share.mean,
            "share_p90": cell.share.p90,
            "share_most": cell.share.most,
            "union_mean": cell.union.mean,
            "set_most": cell.sets.most,
            "agreement": _agreement(cell.identical),
        }
        for study in studies
        for cell in getattr(study, part)
    ]
    return Table(
        identifier,
        title,
        rows,
        [
            DIRECTION,
            Column("known", lambda row: KNOWN[row["knowledge"]], words=True, on_terminal=False),
            *CLUSTERS,
            Column("sentences", "training_sentences", digits=0, on_terminal=False),
            Column("of V, mean", "share_mean", digits=2, scale=100),
            Column("of V, most", "share_most", digits=2, scale=100),
            Column("largest set, of V", "set_most", digits=2, scale=100, on_terminal=False),
            Column(f"of V, {rows[0]['union_rows'] if rows else 0} rows", "union_mean", digits=2, scale=100),
            Column("of what is written", "share_of_emitted", digits=1, scale=100),
            Column("missed", "miss_rate", digits=3, scale=100),
            TRANSLATIONS,
        ],
        "In percent, over held-out steps of dense decoding; of what is written: of the tokens that dense decoding of the "
        "training text and the development half writes.",
    )


def sweep_ends(sweep: Table, studies: Sequence[Study]) -> str:
    """Return for a terminal the cells with the fewest and the most clusters, and those that were decoded with."""
    spans: dict[tuple[str, str, int], list[int]] = {}
    for row in sweep.rows:
        spans.setdefault((row["model"], row["label"], row["top"]), []).append(row["clusters"])
    chosen = {(study.model.name, decoding.label, decoding.method_label) for study, decoding in _decodings(studies)}
    rows = []
    for row in sweep.rows:
        clusters = spans[row["model"], row["label"], row["top"]]
        method = format_clusters(row["clusters"], row["top"])
        if row["clusters"] in (min(clusters), max(clusters)) or (row["model"], row["label"], method) in chosen:
            rows.append(row)
    return Table(sweep.id, f"{sweep.title}, in percent", rows, sweep.columns).text()


def _speeds(studies: Sequence[Study]) -> Table:
    return Table(
        "figure-3",
        "Figure 3: speed by clusters and K",
        [
            {
                "model": study.model.name,
                **_fields(speed, "label", "clusters", "top", "beam", "batch", "sentences"),
                "gain_percent": 100 * speed.gain,
                "low_percent": 100 * (min(speed.ratios) - 1.0),
                "high_percent": 100 * (max(speed.ratios) - 1.0),
                "agreement": _agreement(speed.identical, speed.token_agreement),
            }
            for study in studies
            for speed in study.speeds
        ],
        [
            DIRECTION,
            *CLUSTERS,
            SEARCH,
            Column("gain, %", "gain_percent", digits=1, signed=True, interval=("low_percent", "high_percent")),
            TRANSLATIONS,
        ],
        "Tokens per second more than plain dense decoding; small print: least and most of the rounds. Translations: of the "
        "same decoding.",
    )


def _trials(studies: Sequence[Study]) -> Table:
    return Table(
        "tried",
        "How r and K were chosen",
        [
            {
                "model": study.model.name,
                "vocab": study.model.vocab,
                **trial.model_dump(),
                "agreement": _agreement(trial.identical, trial.token_agreement),
            }
            for study in studies
            for trial in study.tried
        ],
        [
            DIRECTION,
            *CLUSTERS,
            SEARCH,
            Column("columns", "columns", digits=0),
            Column("BLEU, all", "bleu_dense", digits=2),
            Column("with a part", "bleu", digits=2),
            Column("enough", lambda row: "yes" if row["good"] else "no"),
            TRANSLATIONS,
        ],
        "Decoded on the development half: of the cells that keep enough with each search the one that multiplies least is "
        "taken; if there is none, the one that keeps most.",
    )


def _per_cluster(studies: Sequence[Study]) -> Table:
    rows = [
        {"model": study.model.name, "vocab": study.model.vocab, **sizes.model_dump(), "columns": list(sizes.columns)}
        for study in studies
        for sizes in study.per_cluster
    ]
    return Table("figure-4", "Figure 4: each cluster's columns", rows)


def _bench(benches: Sequence[ProjectionBench]) -> Table:
    rows = [
        {
            "kind": bench.kind,
            "box": name_of(bench),
            **_fields(step, "vocab", "width", "rows", "share", "fitted", "way", "overhead_share"),
            "dense_us": 1e6 * step.dense_s,
            "columns_us": 1e6 * step.columns_s,
            "predicted_us": None if step.predicted_s is None else 1e6 * step.predicted_s,
            "ratio": step.ratios.get("columns"),
            "ratio_kept": step.ratios.get("kept"),
            "ratio_scattered": step.ratios.get("scattered"),
        }
        for bench in benches
        for step in bench.steps
    ]

    def off(row: Row) -> float | None:
        return None if row["fitted"] or row["predicted_us"] is None else row["predicted_us"] / row["columns_us"] - 1.0

    return Table(
        "bench",
        "The output layer by itself",
        rows,
        [
            Column("box", "box"),
            KIND,
            *SHAPE,
            Column("active, %", "share", digits=1, scale=100),
            Column("dense, us", "dense_us", digits=0),
            Column("active alone, us", "columns_us", digits=0, small="way"),
            Column("times as fast", "ratio", digits=2),
            Column("kept copy", "ratio_kept", digits=2),
            Column("scattered", "ratio_scattered", digits=2),
            Column("overheads, % of dense", "overhead_share", digits=1, scale=100),
            Column("off, %", off, digits=1, scale=100, signed=True),
        ],
        "Whole steps with random weights, so that nothing is translated: exact for the columns that are active. Dense: the "
        "fastest of torch's products, then the same search. Off: the prediction of a cost fitted to other steps' stages, where "
        "a step was not fitted.",
    )


SHAPE = (Column("V", "vocab", digits=0), Column("width", "width", digits=0), Column("rows", "rows", digits=0))


def _break_even(benches: Sequence[ProjectionBench]) -> Table:
    def share_of(key: str) -> Callable[[Row], Value]:
        return lambda row: "never" if row[key] is None else 100 * row[key]

    heads = {"columns": "straight", "scattered": "scattered", "own": "by any product"}
    return Table(
        "break-even",
        "Above which share all columns win",
        [
            {"kind": bench.kind, "box": name_of(bench), "date": bench.date, "clusters": bench.setting.clusters}
            | point.model_dump()
            for bench in benches
            for point in bench.break_even
        ],
        [
            Column("box", "box"),
            KIND,
            *SHAPE,
            CLUSTERS[0],
            *(Column(head, share_of(key), digits=0) for key, head in heads.items()),
        ],
        "By the fitted costs, in percent of V: active columns straight into the search, scattered as published, and against "
        "all columns by the faster of torch's products and ours.",
        small="date",
    )


def _derived() -> Table:
    return Table(
        "derived",
        "What follows from the printed figures",
        derived(),
        [
            Column("figure", "what"),
            Column("value", "value"),
            Column("unit", "unit"),
            Column("beside it", "meaning", words=True),
        ],
        published=True,
    )


def _runs(studies: Sequence[Study]) -> Table:
    return Table(
        "runs",
        "How it was measured",
        [
            {
                "model": study.model.name,
                **run.model_dump(mode="json"),
                "seed": run.settings.seed,
                "quick": run.settings.quick,
            }
            for study in studies
            for run in study.runs
        ],
        [
            Column("part", lambda row: f"{row['model']}, {row['part']}"),
            Column("date", "date", words=True),
            Column("seconds", "seconds", digits=0),
            Column("threads", "threads", digits=0),
            Column("busy beside it, CPUs", "others_cpus", digits=2),
            Column("machine", "machine", words=True),
            Column("k-means", lambda row: row["method"] or "none"),
            Column("with", lambda row: ", ".join(" ".join(library) for library in row["versions"].items()), words=True),
        ],
        small=lambda row: ", ".join(row["labels"]),
    )


def models(studies: Sequence[Study]) -> list[dict[str, Any]]:
    """Return the studied models for JSON, with the sums of their files."""
    return [
        study.model.model_dump(exclude={"name", "kind"})
        | {
            "model": study.model.name,
            "architecture": study.model.kind,
            "machines": sorted({run.machine for run in study.runs}),
            "dates": sorted({run.date[:10] for run in study.runs}),
            "tool": study.tool,
            "texts": [text.model_dump() for text in study.texts],
        }
        for study in studies
    ]


def studied(studies: Sequence[Study]) -> Table:
    """Return the table of the page on `models`: each model and each of its texts."""
    rows = []
    for model in models(studies):
        size = f"{model['architecture']}, V {model['vocab']:,}, width {model['width']:,}, "
        size += f"{model['parameters'] / 1e6:,.1f} million parameters"
        origin = "; ".join((", ".join(model["machines"]), ", ".join(model["dates"]), model["tool"]))
        rows.append({"model": model["model"], "part": "weights", "size": size, "sha256": model["sha256"], "origin": origin})
        rows += [
            {
                "model": model["model"],
                "part": f"{text['role']}: {text['name']}",
                "size": f"{text['lines']:,} lines",
                "sha256": text["sha256"],
                "origin": text["label"],
            }
            for text in model["texts"]
        ]
    return Table(
        "studied",
        "What was studied",
        rows,
        [
            Column("model", "model"),
            Column("file", "part", words=True),
            Column("content", "size", words=True),
            Column("SHA-256", lambda row: row["sha256"][:SHOWN_DIGITS], words=True),
            Column("of", "origin", words=True),
        ],
        in_document=False,
    )
