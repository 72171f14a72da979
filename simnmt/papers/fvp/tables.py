"""Tables of the reproduction: the printed ones with our figures in the same columns, and those of studies and benches alone.

Every row on translations states how many sentences stay the same, or that the paper does not print it (XP-03).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from simnmt.calibrate.projection_bench import ProjectionBench
from simnmt.papers.fvp import published
from simnmt.papers.fvp.bench_claims import name_of
from simnmt.papers.fvp.paper_claims import derived, fit, implied_share, operation_limit, rows_of
from simnmt.papers.fvp.presets import CENTROID_BYTES, preset_memory
from simnmt.papers.fvp.published import CELLS, DIRECTIONS, MODELS, SENTENCES, TABLE_5, TABLE_6, Model, means
from simnmt.papers.fvp.study import Decoded, Part, Study, format_clusters
from simnmt.papers.kit.page import Row, grouped
from simnmt.papers.kit.table import KIND, SHOWN_DIGITS, Table, derived_table, percent, record
from simnmt.report.table import Column
from simnmt.report.typography import number

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
        derived_table(derived()),
        _runs(studies),
        _studied(studies),
    ]


def _agreement(identical: float, tokens: float | None = None) -> str:
    text = f"not exact: {100 * identical:.1f} % of the sentences the same"
    return text if tokens is None else f"{text}, {100 * tokens:.2f} % of the tokens"


def _printed(model: Model, row: str, beam: int, batch: int) -> dict[str, Any]:
    """Return the fields that name a published row and its agreement."""
    same = f"about {100 * published.IDENTICAL:.0f} % the same (section 3.4)" if model == "m3" else "not printed"
    fields = {"kind": "published", "model": MODELS[model], "row": row, "way": "", "beam": beam, "batch": batch}
    return fields | {"agreement": f"not exact: {same}"}


def _decoded(study: Study, decoding: Decoded, label: str = "label") -> dict[str, Any]:
    """Return the fields that name a decoding and its agreement; `label`: the key of the direction."""
    fields = {"model": study.name, label: decoding.label, **record(decoding, "beam batch way=method_label")}
    return fields | {"agreement": _agreement(decoding.identical, decoding.token_agreement)}


def _decodings(studies: Sequence[Study]) -> list[tuple[Study, Decoded]]:
    """Return each study with its decodings by the chosen clusters and by candidate lists."""
    return [(study, decoding) for study in studies for decoding in (*study.chosen, *study.candidates)]


def _name(row: Row) -> str:
    return ", ".join(part for part in (row["model"], row.get("row", row.get("label")), row.get("way")) if part)


def _out_of(key: str) -> Callable[[Row], str]:
    """Return small print that gives the whole of a share."""
    return lambda row: f"of {number(row[key], 0)}"


DIRECTION = Column("direction", _name)
SEARCH = Column("beam, batch", lambda row: f"{row['beam']}, {row['batch']}")
TRANSLATIONS = Column("translations", "agreement", words=True)
CLUSTERS = Column("clusters", "clusters", 0)
GRID = (CLUSTERS, Column("K", "top", 0))
COMPARED = (DIRECTION, KIND, SEARCH)
LAYER = (Column("box", "box"), KIND, Column("V", "vocab", 0), Column("width", "width", 0), Column("rows", "rows", 0))


def _real(studies: Sequence[Study]) -> Table:
    rows = [
        _decoded(study, decoding)
        | record(decoding, "sentences emitted share_of_emitted miss_rate identical near_ties active_mass")
        | record(decoding, "token_agreement share_mean=share.mean share_most=share.most")
        | record(decoding, "tokens_per_s=dense.tokens_per_s tokens_per_s_fused=fused.tokens_per_s")
        | record(decoding, "tokens_per_s_part=part.tokens_per_s")
        | {"vocab": study.model.vocab}
        for study, decoding in _decodings(studies)
    ]
    columns = [
        DIRECTION,
        SEARCH,
        percent("active, % of V", "share_mean", 2, small=lambda row: f"at most {number(100 * row['share_most'], 2)}"),
        Column("V", "vocab", 0),
        percent("of what is written, %", "share_of_emitted", 1, small=_out_of("emitted")),
        percent("missed, %", "miss_rate", 3),
        percent("probability, %", "active_mass", 1),
        percent("sentences the same, %", "identical", 1, small=_out_of("sentences")),
        percent("tokens the same, %", "token_agreement", 2),
        Column("tokens/s, all", "tokens_per_s", 0),
        Column("fused", "tokens_per_s_fused", 0),
        Column("with a part", "tokens_per_s_part", 0),
    ]
    note = (
        "Share of active columns: of V, and of the tokens that dense decoding of the training text and the development half "
        "writes; small print: the most of any step. Missed: on the path of this decoding. Probability: of the model's, the "
        "part on active columns at batch 1."
    )
    return Table("real", "Real decoding of held-out text", rows, columns, note)


def _sentences() -> Table:
    rows = [{"direction": row, "set_1": SENTENCES[1][row], "set_2": SENTENCES[2][row]} for row in DIRECTIONS]
    columns = [Column("direction", "direction"), Column("set 1", "set_1", 0), Column("set 2", "set_2", 0)]
    note = "As published; the weights of the averages of Tables 3 and 4."
    return Table("table-1", "Table 1: sentences", rows, columns, note, published=True)


def _projection(studies: Sequence[Study]) -> Table:
    rows = [
        _printed(model, projection.direction, 2, 20)
        | record(projection, "active_percent us ratio")
        | {"line_us": fit(model).us(projection.active_percent), "operation_limit": operation_limit(projection)}
        | {"implied_share": implied_share(projection)}
        for model in MODELS
        for projection in rows_of(model)
    ]
    rows += [
        _decoded(study, decoding, "row")
        | {"kind": "measured", "us": 1e6 * decoding.part.layer_s / decoding.part.steps, "line_us": None}
        | record(decoding, "active_percent=share.mean*100 ratio=layer_ratio implied_share=layer_share")
        | {"operation_limit": 1.0 / (decoding.share.mean + (decoding.clusters or 0) / study.model.vocab)}
        for study, decoding in _decodings(studies)
    ]
    columns = [
        *COMPARED,
        Column("active, %", "active_percent", 2),
        Column("us", "us", 1),
        Column("by the line, us", "line_us", 1),
        Column("ratio", "ratio", 2),
        Column("ratio by counting", "operation_limit", 1),
        percent("share, %", "implied_share", 1),
        TRANSLATIONS,
    ]
    note = (
        "Published: the projection, of 720 us (ZCode Dense) and 600 us (ZCode M3) by default. Ours: the output layer, softmax "
        "and search included. By counting: multiply-adds, with 2,000 clusters for the paper's. The line: through a model's six "
        "points. Share: of the whole time, as Tables 2 and 3 imply it, and as ours was measured."
    )
    return Table("table-2", "Table 2: the projection of a step", rows, columns, note, published="kind", on_terminal=True)


def _quality(identifier: str, title: str, studies: Sequence[Study], test_set: int) -> Table:
    """Return BLEU and end-to-end gains of Table 3 (set 1, with our measurements) or Table 4 (set 2)."""
    rows = [
        _printed(cell.model, cell.row, cell.beam, cell.batch)
        | record(cell, "bleu_change gain_percent bleu=baseline bleu_part=clustered")
        for cell in CELLS
        if cell.test_set == test_set
    ]
    rows += [
        _decoded(study, decoding, "row")
        | record(decoding, "bleu_change bleu=dense.bleu bleu_part=part.bleu")
        | {"kind": "measured", "gain_percent": 100 * (decoding.measured - 1.0)}
        for study, decoding in _decodings(studies)
    ]
    columns = [
        *COMPARED,
        Column("BLEU", "bleu", 2),
        Column("BLEU with a part", "bleu_part", 2),
        Column("change", "bleu_change", 2, signed=True),
        Column("gain, %", "gain_percent", 2, signed=True),
        TRANSLATIONS,
    ]
    note = "The gain is of tokens per second end to end. EX and XE are averages as printed; a table below recomputes them."
    return Table(identifier, title, rows, columns, note, published="kind", on_terminal=True)


def _averages() -> Table:
    names = {"baseline": "BLEU", "clustered": "BLEU with clusters", "gain_percent": "gain, %"}
    rows = [
        record(average, "simple by_sentences decimals row=printed.row beam=printed.beam printed=value")
        | {
            "table": 2 + average.printed.test_set,
            "model": MODELS[average.printed.model],
            "what": names[average.what],
            "follows": average.follows or "neither",
        }
        for average in means()
    ]
    columns = [
        Column("average", _name),
        Column("table", "table", 0),
        Column("beam", "beam", 0),
        Column("of", "what", words=True),
        Column("printed", lambda row: number(row["printed"], row["decimals"])),
        Column("simple mean", "simple", 2),
        Column("weighted by sentences", "by_sentences", 2),
        Column("printed is", "follows", words=True),
    ]
    note = "The simple mean of three directions, and their mean weighted by the sentences of Table 1."
    return Table("averages", "Averages of Tables 3 and 4, recomputed", rows, columns, note)


def _memory(studies: Sequence[Study]) -> Table:
    figures: list[tuple[str, str, str, int | None, float, float]] = [
        ("published", MODELS[row.model], row.direction, None, 1e9 * row.baseline_gb, 1e9 * (row.clustered_gb - row.baseline_gb))
        for row in TABLE_5
    ]
    for preset in preset_memory(studies):
        sets = f"sets of {100 * preset.mean_share:.2g} % ({preset.shares_of}), "
        sets += f"{CENTROID_BYTES[preset.centroid_bytes]} centroids"
        weights = f"{MODELS[preset.model]}, weights"
        figures.append(("inferred", weights, sets, preset.clusters, preset.account.model or 0, preset.account.total))
    for study in studies:
        for bundle in study.memory:
            sets, model_bytes = f"{bundle.label}, K = {bundle.top}", study.model.parameter_bytes
            figures.append(("measured", study.name, sets, bundle.clusters, model_bytes, bundle.total_bytes))
    rows = [
        {"kind": kind, "model": model, "row": row, "clusters": clusters}
        | {"model_mb": model_bytes / 1e6, "more_mb": more_bytes / 1e6, "more_percent": 100.0 * more_bytes / model_bytes}
        for kind, model, row, clusters, model_bytes, more_bytes in figures
    ]
    columns = [
        Column("model", _name),
        KIND,
        CLUSTERS,
        Column("model, MB", "model_mb", 1),
        Column("more, MB", "more_mb", significant=3),
        Column("more, %", "more_percent", 2),
    ]
    note = (
        "Published: memory of the device. Inferred: the presets' weights in float16 by their shapes, with sets as large as "
        "figure 4 prints of cluster 0, here taken for all, or as our own sets are. Measured: ours as allocated, centroids, "
        "norms, sets and flags."
    )
    return Table("table-5", "Table 5: memory", rows, columns, note, published="kind", on_terminal=True)


def _people() -> Table:
    rows = [
        record(scores, "direction baseline clustered printed_difference difference") | {"level": scores.level or "none"}
        for scores in TABLE_6
    ]
    columns = [
        Column("direction", "direction"),
        Column("without clusters", "baseline", 2),
        Column("with clusters", "clustered", 2),
        Column("printed difference", "printed_difference", 2, signed=True),
        Column("recomputed", "difference", 2, signed=True),
        Column("significance", "level", words=True),
    ]
    note = "As published, 0 to 100, of 1,700 translations a direction that differ; nothing here can repeat it."
    return Table("table-6", "Table 6: human evaluation", rows, columns, note, published=True)


def _amdahl(studies: Sequence[Study]) -> Table:
    rows = [
        _decoded(study, decoding)
        | record(decoding, "layer_share layer_ratio body_ratio step_ratio predicted measured")
        | record(decoding, "measured_over_fused layer_ratio_over_fused")
        | {"rounds": list(decoding.gains), "off": decoding.predicted / decoding.measured - 1.0}
        for study, decoding in _decodings(studies)
    ]

    def over_fused(row: Row) -> str:
        return f"{number(row['layer_ratio_over_fused'], 2)} over fused"

    def rounds(row: Row) -> str:
        return f"[{number(min(row['rounds']), 3)}, {number(max(row['rounds']), 3)}]"

    columns = [
        DIRECTION,
        SEARCH,
        percent("share, %", "layer_share", 1),
        Column("output layer's gain", "layer_ratio", 2, small=over_fused),
        Column("body's gain", "body_ratio", 2),
        Column("predicted", "predicted", 3),
        Column("measured", "measured", 3, small=rounds),
        percent("off, %", "off", 1, signed=True),
        Column("over fused", "measured_over_fused", 3),
        TRANSLATIONS,
    ]
    note = (
        "Share: of the plain decoder's time in projection, softmax and search. Gain: of the output layer, the choice of "
        "columns included. Over fused: beside the fused output layer with all columns, so the gain of leaving columns out "
        "alone. Body: below the output layer, whose gain Amdahl's law takes for 1."
    )
    return Table("amdahl", "The output layer by Amdahl's law", rows, columns, note, on_terminal=True)


def _cells(identifier: str, title: str, studies: Sequence[Study], part: Part) -> Table:
    """Return the cells of a part of the studies: active, missed and kept on held-out text."""
    rows = [
        record(cell, "label knowledge clusters top training_sentences training_contexts union_rows")
        | record(cell, "share_of_emitted union_of_emitted emitted miss_rate identical set_bytes bundle_bytes")
        | record(cell, "share_mean=share.mean share_p90=share.p90 share_most=share.most union_mean=union.mean")
        | {"model": study.name, "vocab": study.model.vocab, "set_most": cell.sets.most}
        | {"agreement": _agreement(cell.identical)}
        for study in studies
        for cell in getattr(study, part)
    ]
    columns = [
        DIRECTION,
        Column("known", lambda row: KNOWN[row["knowledge"]], words=True, on_terminal=False),
        *GRID,
        Column("sentences", "training_sentences", 0, on_terminal=False),
        percent("of V, mean", "share_mean", 2),
        percent("of V, most", "share_most", 2),
        Column("largest set, of V", "set_most", 2, scale=100, on_terminal=False),
        percent(f"of V, {rows[0]['union_rows'] if rows else 0} rows", "union_mean", 2),
        percent("of what is written", "share_of_emitted", 1),
        percent("missed", "miss_rate", 3),
        TRANSLATIONS,
    ]
    note = "In percent, over held-out steps of dense decoding; of what is written: of the tokens that dense decoding of the "
    note += "training text and the development half writes."
    return Table(identifier, title, rows, columns, note)


def sweep_ends(sweep: Table, studies: Sequence[Study]) -> str:
    """Return for a terminal the cells with the fewest and the most clusters, and those that were decoded with."""
    chosen = {(study.name, decoding.label, decoding.method_label) for study, decoding in _decodings(studies)}
    rows = []
    for (model, label, _), group in grouped(sweep.rows, "model", "label", "top").items():
        clusters = [row["clusters"] for row in group]
        for row in group:
            method = format_clusters(row["clusters"], row["top"])
            if row["clusters"] in (min(clusters), max(clusters)) or (model, label, method) in chosen:
                rows.append(row)
    return Table(sweep.id, f"{sweep.title}, in percent", rows, sweep.columns).text()


def _speeds(studies: Sequence[Study]) -> Table:
    rows = [
        record(speed, "label clusters top beam batch sentences")
        | {
            "model": study.name,
            "gain_percent": 100 * speed.gain,
            "low_percent": 100 * (min(speed.ratios) - 1.0),
            "high_percent": 100 * (max(speed.ratios) - 1.0),
            "agreement": _agreement(speed.identical, speed.token_agreement),
        }
        for study in studies
        for speed in study.speeds
    ]
    gain = Column("gain, %", "gain_percent", 1, signed=True, interval=("low_percent", "high_percent"))
    note = "Tokens per second more than plain dense decoding; small print: least and most of the rounds. Translations: of the "
    note += "same decoding."
    columns = [DIRECTION, *GRID, SEARCH, gain, TRANSLATIONS]
    return Table("figure-3", "Figure 3: speed by clusters and K", rows, columns, note)


def _trials(studies: Sequence[Study]) -> Table:
    rows = [
        {"model": study.name, "vocab": study.model.vocab, **trial.model_dump()}
        | {"agreement": _agreement(trial.identical, trial.token_agreement)}
        for study in studies
        for trial in study.tried
    ]
    columns = [
        DIRECTION,
        *GRID,
        SEARCH,
        Column("columns", "columns", 0),
        Column("BLEU, all", "bleu_dense", 2),
        Column("with a part", "bleu", 2),
        Column("enough", lambda row: "yes" if row["good"] else "no"),
        TRANSLATIONS,
    ]
    note = "Decoded on the development half: of the cells that keep enough with each search the one that multiplies least is "
    note += "taken; if there is none, the one that keeps most."
    return Table("tried", "How r and K were chosen", rows, columns, note)


def _per_cluster(studies: Sequence[Study]) -> Table:
    rows = [
        {"model": study.name, "vocab": study.model.vocab, **sizes.model_dump(mode="json")}
        for study in studies
        for sizes in study.per_cluster
    ]
    return Table("figure-4", "Figure 4: each cluster's columns", rows)


def _bench(benches: Sequence[ProjectionBench]) -> Table:
    rows = [
        record(step, "vocab width rows share fitted overhead_share way=method")
        | record(step, "dense_us=dense_s*1e6 columns_us=columns_s*1e6 predicted_us=predicted_s*1e6")
        | {"kind": bench.kind, "box": name_of(bench), "ratio": step.ratios.get("columns")}
        | {"ratio_scattered": step.ratios.get("scattered")}
        for bench in benches
        for step in bench.steps
    ]

    def off(row: Row) -> float | None:
        return None if row["fitted"] or row["predicted_us"] is None else row["predicted_us"] / row["columns_us"] - 1.0

    columns = [
        *LAYER,
        percent("active, %", "share", 1),
        Column("dense, us", "dense_us", 0),
        Column("active alone, us", "columns_us", 0, small="way"),
        Column("times as fast", "ratio", 2),
        Column("scattered", "ratio_scattered", 2),
        percent("overheads, % of dense", "overhead_share", 1),
        Column("off, %", off, 1, scale=100, signed=True),
    ]
    note = (
        "Whole steps with random weights, so that nothing is translated: exact for the columns that are active. Dense: the "
        "fastest of torch's products, then the same search. Off: the prediction of a cost fitted to other steps' stages, where "
        "a step was not fitted."
    )
    return Table("bench", "The output layer by itself", rows, columns, note)


def _break_even(benches: Sequence[ProjectionBench]) -> Table:
    rows = [
        record(bench, "kind date clusters=setting.clusters") | {"box": name_of(bench), **point.model_dump()}
        for bench in benches
        for point in bench.break_even
    ]

    def share(key: str) -> Callable[[Row], float | str]:
        return lambda row: "never" if row[key] is None else 100 * row[key]

    heads = {"columns": "straight", "scattered": "scattered", "fastest": "by any product"}
    note = "By the fitted costs, in percent of V: active columns straight into the search, scattered as published, and against "
    note += "all columns by the faster of torch's products and ours."
    columns = [*LAYER, CLUSTERS, *(Column(head, share(key), 0) for key, head in heads.items())]
    return Table("break-even", "Above which share all columns win", rows, columns, note, small="date")


def _runs(studies: Sequence[Study]) -> Table:
    rows = [
        {"model": study.name, **run.model_dump(mode="json"), **record(run.settings, "seed quick")}
        for study in studies
        for run in study.runs
    ]
    columns = [
        Column("part", lambda row: f"{row['model']}, {row['part']}"),
        Column("date", "date", words=True),
        Column("seconds", "seconds", 0),
        Column("threads", "threads", 0),
        Column("busy beside it, CPUs", "others_cpus", 2),
        Column("machine", "machine", words=True),
        Column("k-means", lambda row: row["method"] or "none"),
        Column("with", lambda row: ", ".join(" ".join(library) for library in row["versions"].items()), words=True),
    ]
    return Table("runs", "How it was measured", rows, columns, small=lambda row: ", ".join(row["labels"]))


def models(studies: Sequence[Study]) -> list[dict[str, Any]]:
    """Return the studied models for JSON, with the sums of their files."""
    return [
        study.model.model_dump(exclude={"name", "kind"})
        | record(study, "tool model=model.name architecture=model.kind")
        | {
            "machines": sorted({run.machine for run in study.runs}),
            "dates": sorted({run.date[:10] for run in study.runs}),
            "texts": [text.model_dump() for text in study.texts],
        }
        for study in studies
    ]


def _studied(studies: Sequence[Study]) -> Table:
    """Return the page's table of `models`: each model and each of its texts."""
    rows = []
    for model in models(studies):
        size = f"{model['architecture']}, V {model['vocab']:,}, width {model['width']:,}, "
        size += f"{model['parameters'] / 1e6:,.1f} million parameters"
        origin = "; ".join((", ".join(model["machines"]), ", ".join(model["dates"]), model["tool"]))
        rows.append((model["model"], "weights", size, model["sha256"], origin))
        for text in model["texts"]:
            file = f"{text['role']}: {text['name']}"
            rows.append((model["model"], file, f"{text['lines']:,} lines", text["sha256"], text["label"]))
    columns = [
        Column("model", lambda row: row[0]),
        Column("file", lambda row: row[1], words=True),
        Column("content", lambda row: row[2], words=True),
        Column("SHA-256", lambda row: row[3][:SHOWN_DIGITS], words=True),
        Column("of", lambda row: row[4], words=True),
    ]
    return Table("studied", "What was studied", rows, columns, in_document=False)
