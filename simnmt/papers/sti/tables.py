"""Tables of the reproduction: printed figures, and what studies and a real pipeline measured beside them (STI-12, 20 to 27)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from simnmt.papers.kit.page import Row, grouped
from simnmt.papers.kit.table import Column, Table, percent, record
from simnmt.papers.sti import published
from simnmt.papers.sti.comparison import POINTS, Comparison, PairedDifference, comparisons, importance_gain
from simnmt.papers.sti.paper_claims import DERIVED, LOADED_FIRST, PIPELINE
from simnmt.papers.sti.pipeline import PipelineMeasurement
from simnmt.papers.sti.study import Point, StudiedDevice, Study
from simnmt.report.typography import number, significant

SHOWN_DIGITS = 16
"""Digits of a SHA-256 on the page; the JSON document has all 64."""


def all_tables(studies: Sequence[Study], pipeline: PipelineMeasurement | None) -> list[Table]:
    """Return every table; a part that was not measured has no rows."""
    grid = _point_rows((study, point) for study in studies for point in study.grid)
    return [
        _gains(studies),
        _submodels(grid),
        _upgrades(studies),
        _points(
            "sizes",
            "Sizes of the preload buffer",
            "Plans with other buffers, all else the same.",
            _point_rows((study, point) for study in studies for point in study.sizes),
        ),
        _uniform(studies),
        _greedy(studies),
        _pipeline(pipeline),
        _simulated(pipeline),
        Table(
            "said",
            "Single figures of the text",
            [{"what": what, "said": text} for what, text in published.SINGLE_FIGURES],
            [Column("of", "what"), Column("the text says", "said", words=True)],
            note="All that its sentences give of what its tables and figures showed.",
            published=True,
        ),
        _derived(),
        Table(
            "lost",
            "Not in source text",
            [{"what": what, "held": content, "stands": substitute} for what, content, substitute in published.LOST],
            [
                Column("lost", "what"),
                Column("what it showed", "held", words=True, on_terminal=False),
                Column("in its place", "stands", words=True),
            ],
            note="Tables and figures that the text refers to and does not hold.",
            published=True,
            on_terminal=True,
        ),
        _points(
            "grid",
            "Every method under every deadline",
            "Deadline: in ms, and of the whole model’s computation. Bits: mean over shards. Late: beyond its deadline.",
            grid,
        ),
        _devices(studies),
        _runs(studies),
        _studied(studies),
    ]


def is_published(row: Row) -> bool:
    """Return True if the row is the paper's."""
    return bool(row["kind"] == "published")


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
    """Points gained by STI over each other method, printed and ours."""
    rows = [_printed_gain_row(board, *printed) for board, gains in published.GAINS.items() for printed in gains.items()]
    rows += [
        _gain_row(study, device, method, compared)
        for study in studies
        for device in study.devices
        for method, compared in comparisons(study, device).items()
    ]
    return Table(
        "gains",
        "Points of accuracy gained over each other method",
        rows,
        [
            Column("STI over", "method"),
            Column("kind", "kind", kind=True),
            Column("device", "device"),
            Column(
                "points in time",
                lambda row: row["gain"] if row["kind"] == "published" else row["gain_in_time"],
                digits=2,
                signed=True,
                interval=("low_in_time", "high_in_time"),
                interval_on_terminal=True,
            ),
            Column("deadlines", _deadlines),
            percent("STI, %", "accuracy_in_time", 1),
            percent("other, %", "accuracy_other_in_time", 1),
            Column(
                "all deadlines",
                lambda row: None if row["kind"] == "published" else row["gain"],
                digits=2,
                signed=True,
                interval=("low", "high"),
                interval_on_terminal=True,
            ),
            Column("missed", "missed", 0),
            Column("missed by the other", "missed_other", 0),
            Column("shards, times", "shards_ratio", 2),
        ],
        note="Means over the deadlines that both keep, by which STI-22 is judged, as are the accuracies. All deadlines: also "
        "over those that either misses, where an answer counts however late it is. Published: over GLUE; Table 5 itself is not "
        "in the source text. Missed: deadlines, by STI and by the other. Shards: n x m of STI over the other’s, which stands "
        "for operations.",
        small="study",
        published=is_published,
        on_terminal=True,
    )


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
    """n x m by method and deadline, in the place of Table 6."""
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
    return Table(
        "submodels",
        "Submodels by deadline, layers x slices",
        rows,
        [
            Column("method", share_label),
            Column("device", "device"),
            *(Column(f"{deadline} %", partial(_size_at, deadline)) for deadline in deadlines),
            Column("held, MB", "held_mb", significant=3),
            Column("working, MB", "working_mb", significant=3),
            Column("missed", "missed", 0),
            percent("accuracy, %", "accuracy", 1),
        ],
        note="Deadlines as shares of the whole model’s computation. Held: parameters between executions; working: layers in "
        "float32 beside them, without the compressed shards that are read. Table 6 itself is not in the source text.",
        small="study",
        on_terminal=True,
    )


def _size_at(deadline: str, row: Row) -> str:
    return " x ".join(map(str, row["sizes"].get(deadline, ())))


def _submodel(row: Row) -> str:
    return f"{row['layers']} x {row['slices']}"


def _upgrades(studies: Sequence[Study]) -> Table:
    """Shards raised by importance and at random, in the place of Table 7."""
    rows: list[Row] = []
    for study in studies:
        for case in study.upgrades:
            by_chance = [outcome.accuracy for outcome in case.random]
            gain = importance_gain([case], study.task.examples) if by_chance else None
            points, low, high = (None,) * 3 if gain is None else _in_points(gain)
            rows.append(
                {
                    "study": study.name,
                    **record(case, "layers slices raised to_bits base=base.accuracy best=best.accuracy"),
                    "random_mean": fmean(by_chance) if by_chance else None,
                    "random_least": min(by_chance, default=None),
                    "random_most": max(by_chance, default=None),
                    "orders": len(by_chance),
                    "beaten": sum(accuracy <= case.best.accuracy for accuracy in by_chance),
                    "gain": points,
                    "low": low,
                    "high": high,
                    "agreement": case.best.agreement,
                }
            )
    return Table(
        "upgrades",
        "Shards raised by importance and at random",
        rows,
        [
            Column("submodel", _submodel),
            Column("raised", "raised", 0),
            Column("to bits", "to_bits", 0),
            percent("none raised, %", "base", 1),
            percent("by importance, %", "best", 1),
            Column("at random, %", "random_mean", digits=1, scale=100.0, interval=("random_least", "random_most")),
            Column("points", "gain", digits=2, signed=True, interval=("low", "high"), interval_on_terminal=True),
            Column("orders no better", lambda row: f"{row['beaten']} of {row['orders']}"),
        ],
        note="Of a submodel with all shards at 2 bits. At random: the mean over orders; small print: the least and the most. "
        "Table 7 itself is not in the source text; by it importance gains 8.19 points on average.",
        small="study",
        on_terminal=True,
    )


def _uniform(studies: Sequence[Study]) -> Table:
    rows = [
        {"study": study.name} | record(entry, f"layers slices bits {ANSWERS}")
        for study in studies
        for entry in sorted(study.uniform, key=lambda entry: (entry.bits, entry.layers, entry.slices))
    ]
    return Table(
        "uniform",
        "Bits, layers and slices",
        rows,
        [
            Column("submodel", _submodel),
            Column("bits", "bits", 0),
            percent("accuracy, %", "accuracy", 1),
            Column("log-likelihood", "log_likelihood", digits=3, signed=True),
            percent("alike, %", "agreement", 1),
        ],
        note="Every shard at the same bits, the most important slices of the bottom layers. Alike: examples that the whole "
        "model in 32 bits answers alike.",
        small="study",
    )


ANSWERS = "accuracy=outcome.accuracy log_likelihood=outcome.log_likelihood agreement=outcome.agreement"


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
        Column("device", "device"),
        Column("deadline", "deadline_ms", digits=1, small=lambda row: f"{number(100 * row['deadline_share'], 1)} %"),
        Column("n x m", _submodel),
        Column("bits", "mean_bits", 1),
        Column("held, MB", "held_mb", significant=3),
        Column("ms", "latency_ms", digits=1, small=lambda row: "late" if row["misses"] else ""),
        Column("stall, ms", "stall_ms", 1),
        Column("reads, ms", "io_busy_ms", 1),
        percent("accuracy, %", "accuracy", 1),
        percent("alike, %", "agreement", 1),
    ]
    return Table(identifier, title, rows, columns, note=note, small="study")


def _greedy(studies: Sequence[Study]) -> Table:
    return Table(
        "greedy",
        "The planner beside the exact one, small cases",
        [{"study": study.name} | case.model_dump() for study in studies for case in study.greedy],
        [
            Column("case", _submodel),
            Column("device", "device"),
            Column("deadline, ms", "deadline_s", digits=1, scale=1e3),
            Column("buffer, kB", "preload_bytes", digits=1, scale=1e-3),
            Column("planner", "greedy"),
            Column("exact", "exact"),
            percent("gap, %", "gap", 2),
        ],
        note="Both keep the timeline; the exact one maximises fidelity weighted by importance over all plans of the submodel.",
        small="study",
    )


def _pipeline(measured: PipelineMeasurement | None) -> Table:
    """The paper's pipeline of section 2.2, and the measured ones."""
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
    return Table(
        "pipeline",
        "Real pipelines of BERT’s base size",
        rows,
        [
            Column("pipeline", "what"),
            Column("kind", "kind", kind=True),
            Column("pace, MB/s", "pace_mb_s", 0),
            Column("ms", "latency_ms", 1),
            Column("stall, ms", "stall_ms", significant=3),
            Column("ratio", "ratio", 2),
        ],
        note="Threads for reading and computing, the page cache dropped, reads paced. Published: by the times of a layer in "
        "section 2.2. Ratio: load, then run over it.",
        published=is_published,
        on_terminal=True,
    )


def _simulated(measured: PipelineMeasurement | None) -> Table:
    """Every plan of the benchmark, simulated and measured."""
    plans, skew_mb = ((), 0.0) if measured is None else (measured.grid, measured.skew.pace_mb)
    rows = [
        {"what": f"{plan.layers} x {plan.slices}, {plan.mean_bits:.1f} bits", "at_skew": plan.pace_mb == skew_mb}
        | record(
            plan,
            "pace_mb_s=pace_mb length deadline_ms preload_mb simulated_ms=simulated_s*1e3 measured_ms=measured_s*1e3 "
            "off=error off_before=error_before no_stall_predicted stall_share",
        )
        for plan in plans
    ]
    return Table(
        "simulated",
        "Simulated beside measured latency",
        rows,
        [
            Column("plan", "what"),
            Column("pace, MB/s", "pace_mb_s", 0),
            Column("deadline, ms", "deadline_ms", 1),
            Column("simulated, ms", "simulated_ms", 1),
            Column("measured, ms", "measured_ms", 1),
            percent("off, %", "off", 1, signed=True),
            percent("off before, %", "off_before", 1, signed=True),
            percent("stall, %", "stall_share", 1),
        ],
        note="By costs of reads and layers alone, measured in the same rounds as the plans; off before: by those that were "
        "measured ahead of all rounds. Nothing is fitted to these plans.",
    )


def _derived() -> Table:
    return Table(
        "derived",
        "What follows from the printed figures",
        DERIVED,
        [
            Column("what", "what"),
            Column("value", lambda row: number(row.value, 0) if row.value >= 1e4 else row.value),
            Column("unit", "unit"),
            Column("the text says", "printed", words=True),
            Column("beside it", "meaning", words=True, on_terminal=False),
        ],
        keys="what value unit said=printed meaning",
        note="Sizes by the shapes of BERT’s base model, the pipeline of section 2.2 by our timeline, means of what is printed.",
        published=True,
        on_terminal=True,
    )


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
    return Table(
        "devices",
        "The costs that plans were made by",
        rows,
        [
            Column("device", "device"),
            Column("kind", "kind", kind=True),
            Column("layer computed, ms", "layer_ms", significant=3),
            Column("a quarter of it, ms", "quarter_ms", significant=3),
            Column("ends, ms", lambda row: row["embed_ms"] + row["head_ms"], significant=3),
            Column(
                "shard read, ms",
                lambda row: row["io_ms"]["2"],
                significant=3,
                small=lambda row: f"{significant(row['io_ms']['32'], 3)} in 32 bits",
            ),
            Column("skew", "skew", 2),
            percent("buffer, %", "preload_share", 2),
            Column("from", "said", words=True),
        ],
        note="Skew: reading a whole layer in 32 bits over computing it; the paper’s Arm board has 3.57. Ends: embedding and "
        "head, 0 if no profile records them.",
        small="study",
    )


def _runs(studies: Sequence[Study]) -> Table:
    return Table(
        "runs",
        "How it was measured",
        [{"study": study.name} | run.model_dump(mode="json") for study in studies for run in study.runs],
        [
            Column("part", "part"),
            Column("date", lambda row: row["date"][:16].replace("T", " ")),
            Column("s", "seconds", 0),
            Column("evaluations", "evaluations", 0),
            Column("threads", "threads", 0),
            Column("others", "others_cpus", 1),
            Column("machine", lambda row: row["machine"] + ("; quick" if row["quick"] else ""), words=True),
        ],
        note="Others: CPUs that others used when it began. Evaluations: submodels that answered every example.",
        small="study",
    )


def _studied(studies: Sequence[Study]) -> Table:
    """Model, task and store of each study, with the sums that identify the files."""
    rows: list[Row] = [
        {
            "study": study.name,
            "model": study.model.model_dump(),
            "task": study.task.model_dump(),
            "store": study.store.model_dump(mode="json"),
        }
        | record(
            study,
            "layers_mb=model.layers_bytes*1e-6 importance_task_sha256=importance.task_sha256 importance_task=importance.task "
            "importance_on_same=ranked_on_judged importance_examples=importance.examples importance_shared=importance.shared "
            "evaluations=importance.evaluations tool",
        )
        for study in studies
    ]
    return Table(
        "studied",
        "What was studied",
        rows,
        [
            Column("study", "study"),
            Column("layers x slices", lambda row: f"{row['model']['layers']} x {row['model']['heads']}"),
            Column("width", lambda row: f"{row['model']['width']}, {row['model']['ffn']}"),
            Column("shards, MB", "layers_mb", 1),
            Column("2 bits, kB a shard", lambda row: row["store"]["shard_bytes"]["2"] / 1e3, 1),
            percent("outliers, %", "store.outlier_share", 3),
            Column("examples", "task.examples", 0),
            percent("guessing, %", "task.largest_class", 1),
            Column(
                "ranked on",
                lambda row: "the same" if row["importance_on_same"] else row["importance_task"] or "others",
                words=True,
            ),
            Column("SHA-256", lambda row: row["model"]["sha256"][:SHOWN_DIGITS], words=True),
        ],
        note="Guessing: accuracy of naming the largest class. Shards: all of them in float32. Ranked on: the examples that put "
        "the shards in order, which should not be those that judge.",
        small=lambda row: row["model"]["kind"],
        in_document=False,
    )
