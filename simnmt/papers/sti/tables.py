"""Tables of the reproduction: printed figures beside the results of studies and of a real pipeline (STI-12, 20 to 27)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from simnmt.papers.kit.page import Row, grouped
from simnmt.papers.kit.table import KIND, SHOWN_DIGITS, Table, percent, record
from simnmt.papers.sti import published
from simnmt.papers.sti.comparison import POINTS, Comparison, PairedDifference, comparisons, importance_gain
from simnmt.papers.sti.paper_claims import DERIVED, LOADED_FIRST, PIPELINE
from simnmt.papers.sti.pipeline import PipelineMeasurement
from simnmt.papers.sti.study import Point, StudiedDevice, Study
from simnmt.report.table import Column
from simnmt.report.typography import number, significant

DEVICE = Column("device", "device")
ACCURACY = percent("accuracy, %", "accuracy", 1)
ALIKE = percent("alike, %", "agreement", 1)
ANSWERS = "accuracy=outcome.accuracy log_likelihood=outcome.log_likelihood agreement=outcome.agreement"
"""Keys of a row on a submodel's answers."""


def all_tables(studies: Sequence[Study], pipeline: PipelineMeasurement | None) -> list[Table]:
    """Return every table; a part that was not measured has no rows."""
    grid = _point_rows((study, point) for study in studies for point in study.grid)
    sizes = _point_rows((study, point) for study in studies for point in study.sizes)
    plans = "Deadline: in ms, and of the whole model’s computation. Bits: mean over shards. Late: beyond its deadline."
    return [
        _gains(studies),
        _submodels(grid),
        _upgrades(studies),
        _points("sizes", "Sizes of the preload buffer", "Plans with other buffers, all else the same.", sizes),
        _uniform(studies),
        _pipeline(pipeline),
        _simulated(pipeline),
        _single_figures(),
        _derived(),
        _lost(),
        _points("grid", "Every method under every deadline", plans, grid),
        _devices(studies),
        _runs(studies),
        _studied(studies),
    ]


def _single_figures() -> Table:
    rows = [{"what": what, "said": text} for what, text in published.SINGLE_FIGURES]
    columns = [Column("of", "what"), Column("the text says", "said", words=True)]
    note = "All that its sentences give of what its tables and figures showed."
    return Table("said", "Single figures of the text", rows, columns, note, published=True)


def _lost() -> Table:
    rows = [{"what": what, "held": content, "stands": substitute} for what, content, substitute in published.LOST]
    columns = [
        Column("lost", "what"),
        Column("what it showed", "held", words=True, on_terminal=False),
        Column("in its place", "stands", words=True),
    ]
    note = "Tables and figures that the text refers to and does not hold."
    return Table("lost", "Not in source text", rows, columns, note, published=True, on_terminal=True)


def _in_points(gain: PairedDifference) -> tuple[float, float, float]:
    return POINTS * gain.difference, POINTS * gain.low, POINTS * gain.high


def _gain_columns(compared: Comparison, suffix: str = "") -> Row:
    """Return gain, interval, accuracies and number of deadlines, under names with this suffix."""
    names = [f"{name}{suffix}" for name in ("gain", "low", "high", "accuracy", "accuracy_other")]
    values = (*_in_points(compared.gain), *compared.accuracies) if compared.pairs else (None,) * 5
    return dict(zip(names, values, strict=True)) | {f"deadlines{suffix}": len(compared.pairs)}


def _gain_row(study: Study, device: StudiedDevice, method: str, compared: Comparison) -> Row:
    missed, missed_other = compared.missed
    row = {"kind": device.kind, "study": study.name, "device": device.name, "method": method}
    row |= {**_gain_columns(compared.in_time, "_in_time"), **_gain_columns(compared)}
    ratio = compared.ratio(lambda point: point.shards)
    return row | {"missed": missed, "missed_other": missed_other, "shards_ratio": ratio}


def _printed_gain_row(board: str, method: str, gain: float) -> Row:
    nothing, deadlines = Comparison(0, ()), len(published.DEADLINES_S)
    row: dict[str, Any] = {"kind": "published", "study": "GLUE, mean", "device": board, "method": method}
    row |= {**_gain_columns(nothing, "_in_time"), **_gain_columns(nothing), "gain": gain, "deadlines_in_time": None}
    return row | {"deadlines": deadlines, "missed": None, "missed_other": None, "shards_ratio": published.SHARDS[method]}


def _gains(studies: Sequence[Study]) -> Table:
    """Return the points that STI gains over each other method, printed and ours."""
    rows = [_printed_gain_row(board, *printed) for board, gains in published.GAINS.items() for printed in gains.items()]
    rows += [
        _gain_row(study, device, method, compared)
        for study in studies
        for device in study.devices
        for method, compared in comparisons(study, device).items()
    ]
    gain = partial(Column, digits=2, signed=True, interval_on_terminal=True)
    columns = [
        Column("STI over", "method"),
        KIND,
        DEVICE,
        gain(
            "points in time",
            lambda row: row["gain"] if row["kind"] == "published" else row["gain_in_time"],
            interval=("low_in_time", "high_in_time"),
        ),
        Column("deadlines", _deadlines),
        percent("STI, %", "accuracy_in_time", 1),
        percent("other, %", "accuracy_other_in_time", 1),
        gain("all deadlines", lambda row: None if row["kind"] == "published" else row["gain"], interval=("low", "high")),
        Column("missed", "missed", 0),
        Column("missed by the other", "missed_other", 0),
        Column("shards, times", "shards_ratio", 2),
    ]
    note = (
        "Means over the deadlines that both keep, by which STI-22 is judged, as are the accuracies. All deadlines: also "
        "over those that either misses, where an answer counts however late it is. Published: over GLUE; Table 5 itself is not "
        "in the source text. Missed: deadlines, by STI and by the other. Shards: n x m of STI over the other’s, which stands "
        "for operations."
    )
    title = "Points of accuracy gained over each other method"
    return Table("gains", title, rows, columns, note, small="study", published="kind", on_terminal=True)


def _deadlines(row: Row) -> str:
    in_time = row["deadlines_in_time"]
    return str(row["deadlines"]) if in_time is None else f"{in_time} of {row['deadlines']}"


def method_label(row: Row, size: str) -> str:
    """Return a label of a row's method, with the `size` of its preload buffer if it can have one."""
    share = row["preload_share"]
    if share is None:
        return str(row["method"])
    return f"{row['method']}, buffer of {size}" if share else f"{row['method']}, no buffer"


def share_label(row: Row) -> str:
    """Return a label of a row's method, with its preload buffer as a share of the whole model."""
    return method_label(row, f"{100 * (row['preload_share'] or 0.0):.2f} %")


def _submodels(grid: Sequence[Row]) -> Table:
    """Return n x m by method and deadline, instead of the lost Table 6."""
    rows = [
        {
            "study": study,
            "device": device,
            "method": method,
            "preload_share": share,
            "sizes": {f"{100 * row['deadline_share']:g}": [row["layers"], row["slices"]] for row in group},
            "shards": fmean(row["layers"] * row["slices"] for row in group),
            "missed": sum(row["misses"] for row in group),
            **{name: fmean(row[name] for row in group) for name in ("accuracy", "held_mb", "working_mb")},
        }
        for (study, device, method, share), group in grouped(grid, "study", "device", "method", "preload_share").items()
    ]
    deadlines = sorted({share for row in rows for share in row["sizes"]}, key=float)
    columns = [
        Column("method", share_label),
        DEVICE,
        *(Column(f"{deadline} %", partial(_size_at, deadline)) for deadline in deadlines),
        Column("held, MB", "held_mb", significant=3),
        Column("working, MB", "working_mb", significant=3),
        Column("missed", "missed", 0),
        ACCURACY,
    ]
    note = (
        "Deadlines as shares of the whole model’s computation. Held: parameters between executions; working: layers in float32 "
        "beside them, without the compressed shards that are read. Table 6 itself is not in the source text."
    )
    title = "Submodels by deadline, layers x slices"
    return Table("submodels", title, rows, columns, note, small="study", on_terminal=True)


def _size_at(deadline: str, row: Row) -> str:
    return " x ".join(map(str, row["sizes"].get(deadline, ())))


def _submodel(row: Row) -> str:
    return f"{row['layers']} x {row['slices']}"


def _upgrades(studies: Sequence[Study]) -> Table:
    """Return shards raised by importance and at random, instead of the lost Table 7."""
    rows: list[Row] = []
    for study in studies:
        for case in study.upgrades:
            by_chance = [outcome.accuracy for outcome in case.random]
            gain = importance_gain([case], study.task.examples) if by_chance else None
            points, low, high = (None,) * 3 if gain is None else _in_points(gain)
            rows.append(
                {"study": study.name, "gain": points, "low": low, "high": high, "agreement": case.best.agreement}
                | record(case, "layers slices raised to_bits base=base.accuracy best=best.accuracy")
                | {
                    "random_mean": fmean(by_chance) if by_chance else None,
                    "random_least": min(by_chance, default=None),
                    "random_most": max(by_chance, default=None),
                    "orders": len(by_chance),
                    "beaten": sum(accuracy <= case.best.accuracy for accuracy in by_chance),
                }
            )
    columns = [
        Column("submodel", _submodel),
        Column("raised", "raised", 0),
        Column("to bits", "to_bits", 0),
        percent("none raised, %", "base", 1),
        percent("by importance, %", "best", 1),
        Column("at random, %", "random_mean", digits=1, scale=100.0, interval=("random_least", "random_most")),
        Column("points", "gain", digits=2, signed=True, interval=("low", "high"), interval_on_terminal=True),
        Column("orders no better", lambda row: f"{row['beaten']} of {row['orders']}"),
    ]
    note = (
        "Of a submodel with all shards at 2 bits. At random: the mean over orders; small print: the least and the most. "
        "Table 7 itself is not in the source text; by it importance gains 8.19 points on average."
    )
    return Table("upgrades", "Shards raised by importance and at random", rows, columns, note, small="study", on_terminal=True)


def _uniform(studies: Sequence[Study]) -> Table:
    rows = [
        {"study": study.name} | record(entry, f"layers slices bits {ANSWERS}")
        for study in studies
        for entry in sorted(study.uniform, key=lambda entry: (entry.bits, entry.layers, entry.slices))
    ]
    log_likelihood = Column("log-likelihood", "log_likelihood", digits=3, signed=True)
    columns = [Column("submodel", _submodel), Column("bits", "bits", 0), ACCURACY, log_likelihood, ALIKE]
    note = "Every shard at the same bits, the most important slices of the bottom layers. Alike: examples that the whole "
    note += "model in 32 bits answers alike."
    return Table("uniform", "Bits, layers and slices", rows, columns, note, small="study")


def _point_rows(points: Iterable[tuple[Study, Point]]) -> list[Row]:
    """Return a row for every method under every deadline."""
    keys = (
        "device method deadline_share preload_share layers slices misses flagged deadline_ms=deadline_s*1e3 mean_bits "
        "preload_mb=preload_bytes*1e-6 held_mb=held_bytes*1e-6 working_mb=working_bytes*1e-6 latency_ms=latency_s*1e3 "
        f"stall_ms=stall_s*1e3 io_busy_ms=io_s*1e3 compute_busy_ms=busy_s*1e3 {ANSWERS}"
    )
    return [
        {"study": study.name, "bits": {str(bits): count for bits, count in point.bits.items()}} | record(point, keys)
        for study, point in points
    ]


def _points(identifier: str, title: str, note: str, rows: Sequence[Row]) -> Table:
    columns = [
        Column("method", lambda row: method_label(row, f"{significant(row['preload_mb'], 3)} MB")),
        DEVICE,
        Column("deadline", "deadline_ms", digits=1, small=lambda row: f"{number(100 * row['deadline_share'], 1)} %"),
        Column("n x m", _submodel),
        Column("bits", "mean_bits", 1),
        Column("held, MB", "held_mb", significant=3),
        Column("ms", "latency_ms", digits=1, small=lambda row: "late" if row["misses"] else ""),
        Column("stall, ms", "stall_ms", 1),
        Column("reads, ms", "io_busy_ms", 1),
        ACCURACY,
        ALIKE,
    ]
    return Table(identifier, title, rows, columns, note, small="study")


def _pipeline(measured: PipelineMeasurement | None) -> Table:
    """Return the paper's pipeline of section 2.2, and the measured ones."""
    both_s, pipeline_s = LOADED_FIRST.latency_s, PIPELINE.latency_s
    figures: list[tuple[str, str, float | None, float, float, float]] = [
        ("six layers, 32 bits loaded first", "published", None, both_s, LOADED_FIRST.stall_s, 1.0),
        ("six layers, pipeline, 32 bits", "published", None, pipeline_s, PIPELINE.stall_s, both_s / pipeline_s),
    ]
    layers = "" if measured is None else f"{measured.layers} layers"
    for runs in () if measured is None else measured.faster:
        loaded_s, two_s = runs.load_then_run_s, runs.bits_2_s
        figures += [
            (f"{layers}, 32 bits loaded first", "measured", runs.pace_mb, loaded_s, runs.load_then_run_stall_s, 1.0),
            (f"{layers}, pipeline, 6 bits", "measured", runs.pace_mb, runs.bits_6_s, runs.bits_6_stall_s, runs.ratio),
            (f"{layers}, pipeline, 2 bits", "measured", runs.pace_mb, two_s, runs.bits_2_stall_s, loaded_s / two_s),
        ]
    rows = [
        {"what": what, "kind": kind, "pace_mb_s": pace, "latency_ms": 1e3 * total_s, "stall_ms": 1e3 * stall_s, "ratio": ratio}
        for what, kind, pace, total_s, stall_s, ratio in figures
    ]
    columns = [
        Column("pipeline", "what"),
        KIND,
        Column("pace, MB/s", "pace_mb_s", 0),
        Column("ms", "latency_ms", 1),
        Column("stall, ms", "stall_ms", significant=3),
        Column("ratio", "ratio", 2),
    ]
    note = "Threads for reading and computing, the page cache dropped, reads paced. Published: by the times of a layer in "
    note += "section 2.2. Ratio: load, then run over it."
    title = "Real pipelines of BERT’s base size"
    return Table("pipeline", title, rows, columns, note, published="kind", on_terminal=True)


def _simulated(measured: PipelineMeasurement | None) -> Table:
    """Return every plan of the benchmark, simulated and measured."""
    plans, skew_mb = ((), 0.0) if measured is None else (measured.grid, measured.skew.pace_mb)
    keys = "pace_mb_s=pace_mb length deadline_ms preload_mb simulated_ms=simulated_s*1e3 measured_ms=measured_s*1e3 off=error "
    keys += "off_before=error_before no_stall_predicted stall_share"
    rows = [
        {"what": f"{plan.layers} x {plan.slices}, {plan.mean_bits:.1f} bits", "at_skew": plan.pace_mb == skew_mb}
        | record(plan, keys)
        for plan in plans
    ]
    columns = [
        Column("plan", "what"),
        Column("pace, MB/s", "pace_mb_s", 0),
        Column("deadline, ms", "deadline_ms", 1),
        Column("simulated, ms", "simulated_ms", 1),
        Column("measured, ms", "measured_ms", 1),
        percent("off, %", "off", 1, signed=True),
        percent("off before, %", "off_before", 1, signed=True),
        percent("stall, %", "stall_share", 1),
    ]
    note = "By costs of reads and layers alone, measured in the same rounds as the plans; off before: by those that were "
    note += "measured ahead of all rounds. Nothing is fitted to these plans."
    return Table("simulated", "Simulated beside measured latency", rows, columns, note)


def _derived() -> Table:
    columns = [
        Column("what", "what"),
        Column("value", lambda row: number(row.value, 0) if row.value >= 1e4 else row.value),
        Column("unit", "unit"),
        Column("the text says", "printed", words=True),
        Column("beside it", "meaning", words=True, on_terminal=False),
    ]
    keys = "what value unit said=printed meaning"
    note = "Sizes by the shapes of BERT’s base model, the pipeline of section 2.2 by our timeline, means of what is printed."
    title = "What follows from the printed figures"
    return Table("derived", title, DERIVED, columns, note, keys=keys, published=True, on_terminal=True)


def _devices(studies: Sequence[Study]) -> Table:
    rows = [
        {
            "study": study.name,
            "layer_ms": 1e3 * device.comp_s[-1],
            "quarter_ms": 1e3 * device.comp_s[max(len(device.comp_s) // 4, 1) - 1],
            "slowed": max(device.slowed, default=1.0),
            "io_ms": {str(bits): 1e3 * seconds for bits, seconds in device.io_s.items()},
            "length": study.length,
        }
        | record(device, "device=name kind said=source skew embed_ms=embed_s*1e3 head_ms=head_s*1e3 preload_share")
        for study in studies
        for device in study.devices
    ]

    def read_in_full(row: Row) -> str:
        return f"{significant(row['io_ms']['32'], 3)} in 32 bits"

    columns = [
        DEVICE,
        KIND,
        Column("layer computed, ms", "layer_ms", significant=3),
        Column("a quarter of it, ms", "quarter_ms", significant=3),
        Column("ends, ms", lambda row: row["embed_ms"] + row["head_ms"], significant=3),
        Column("shard read, ms", "io_ms.2", significant=3, small=read_in_full),
        Column("skew", "skew", 2),
        percent("buffer, %", "preload_share", 2),
        Column("from", "said", words=True),
    ]
    note = "Skew: reading a whole layer in 32 bits over computing it; the paper’s Arm board has 3.57. Ends: embedding and "
    note += "head, 0 if no profile records them."
    return Table("devices", "The costs that plans were made by", rows, columns, note, small="study")


def _runs(studies: Sequence[Study]) -> Table:
    rows = [{"study": study.name} | run.model_dump(mode="json") for study in studies for run in study.runs]
    columns = [
        Column("part", "part"),
        Column("date", lambda row: row["date"][:16].replace("T", " ")),
        Column("s", "seconds", 0),
        Column("evaluations", "evaluations", 0),
        Column("threads", "threads", 0),
        Column("others", "others_cpus", 1),
        Column("machine", lambda row: row["machine"] + ("; quick" if row["quick"] else ""), words=True),
    ]
    note = "Others: CPUs that others used when it began. Evaluations: submodels that answered every example."
    return Table("runs", "How it was measured", rows, columns, note, small="study")


def _studied(studies: Sequence[Study]) -> Table:
    """Return model, task and store of each study, with the sums that identify the files."""
    keys = (
        "study=name layers_mb=model.layers_bytes*1e-6 importance_task_sha256=importance.task_sha256 "
        "importance_task=importance.task importance_on_same=ranked_on_judged importance_examples=importance.examples "
        "importance_shared=importance.shared evaluations=importance.evaluations tool"
    )
    rows = [record(study, keys) | study.model_dump(mode="json", include={"model", "task", "store"}) for study in studies]
    columns = [
        Column("study", "study"),
        Column("layers x slices", lambda row: f"{row['model']['layers']} x {row['model']['heads']}"),
        Column("width", lambda row: f"{row['model']['width']}, {row['model']['ffn']}"),
        Column("shards, MB", "layers_mb", 1),
        Column("2 bits, kB a shard", "store.shard_bytes.2", 1, scale=1e-3),
        percent("outliers, %", "store.outlier_share", 3),
        Column("examples", "task.examples", 0),
        percent("guessing, %", "task.largest_class", 1),
        Column("ranked on", _ranked_on, words=True),
        Column("SHA-256", lambda row: row["model"]["sha256"][:SHOWN_DIGITS], words=True),
    ]
    note = "Guessing: accuracy of naming the largest class. Shards: all of them in float32. Ranked on: the examples that put "
    note += "the shards in order, which should not be those that judge."
    return Table("studied", "What was studied", rows, columns, note, small="model.kind", in_document=False)


def _ranked_on(row: Row) -> str:
    return "the same" if row["importance_on_same"] else row["importance_task"] or "others"
