"""The page of device profiles: facts and plots in one HTML file that opens without a network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base.errors import InputError
from simnmt.base.files import written_whole
from simnmt.profile.blocks import EncoderBlock, StepBlock
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.profile_summary import facts, percent, title
from simnmt.profile.streaming_block import StiBlock
from simnmt.report import thinning
from simnmt.report.page_template import embedded_json, render_template

POINTS = 4_000
"""Of cells, predicted against measured."""
MOST_LINES = 6
"""Of positions or source lengths, one line each."""

Floats = NDArray[np.float64]
Plot = dict[str, Any]


def profile_plots(profile: DeviceProfile) -> list[Plot]:
    """The plots that the profile has numbers for, ready for JSON: title, caption, axes, and series of points and lines."""
    plots = [*_execution_plots(profile)]
    if profile.step is not None:
        plots.append(
            _grid_plot("Decode step by batch", "position", profile.step, profile.step.position, profile.step.cost.seconds)
        )
    if profile.encoder is not None:
        encoder = profile.encoder
        plots.append(_grid_plot("Encoder by batch", "source length", encoder, encoder.src_len, profile.encoder.cost.seconds))
    return plots + _disk_plots(profile) + ([] if profile.sti is None else _streaming_plots(profile.sti))


def means_per_tgt_len(profile: DeviceProfile) -> tuple[Floats, Floats, Floats, Floats]:
    """Target lengths of the samples, rising; mean time and its standard deviation over inferences, s; inferences."""
    samples = [sample for sample in profile.execution.samples if sample.batch == 1]
    length, which = np.unique([sample.tgt_len for sample in samples], return_inverse=True)
    which = which.reshape(-1)
    count = np.array([sample.repeats for sample in samples], np.float64)
    mean = np.array([sample.mean_s for sample in samples])
    inner = np.array([(sample.sd_s or 0.0) ** 2 * (sample.repeats - 1) / sample.repeats for sample in samples])
    many: Floats = np.bincount(which, weights=count).astype(np.float64)
    middle = np.bincount(which, weights=count * mean) / many
    # Within the cells and between them: cells of one target length differ by their source length.
    variance = np.bincount(which, weights=count * (inner + (mean - middle[which]) ** 2)) / many
    return length.astype(np.float64), middle, np.sqrt(variance), many


def _execution_plots(profile: DeviceProfile) -> list[Plot]:
    samples = [sample for sample in profile.execution.samples if sample.batch == 1]
    if not samples:
        return [_plane_plot(profile)]
    length, mean, sd, count = means_per_tgt_len(profile)
    caption = "Mean time per target length; the band is one standard deviation of single executions either way."
    series = [
        _series("line", "mean + sd", length, mean + sd, role="band"),
        _series("line", "mean - sd", length, np.maximum(mean - sd, 0.0), role="band-to"),
        _series("points", "mean", length, mean, size=8),
    ]
    if length.size >= 2:
        offset, slope = np.polynomial.polynomial.polyfit(length, mean, 1, w=np.sqrt(count))
        off = mean - offset - slope * length
        spread = float((count * (mean - np.average(mean, weights=count)) ** 2).sum())
        r2 = f"R2 {1.0 - float((count * off**2).sum()) / spread:.4f}, " if spread > 0.0 and length.size > 2 else ""
        mse = 1e6 * float(np.average(off**2, weights=count))
        caption += f" Line through the means: {1e3 * slope:.4g} x target + {1e3 * offset:.4g} ms; {r2}MSE {mse:.4g} ms^2."
        ends = np.array([length[0], length[-1]])
        series.insert(2, _series("line", "fitted line", ends, offset + slope * ends))
    by_length = _plot("Time by target length", caption, "target length, tokens", "time, ms", series)
    return [by_length, _predicted_plot(profile)]


def _predicted_plot(profile: DeviceProfile) -> Plot:
    samples = [sample for sample in profile.execution.samples if sample.batch == 1]
    measured = np.array([sample.mean_s for sample in samples])
    src = np.array([sample.src_len if sample.src_len_mean is None else sample.src_len_mean for sample in samples])
    tgt = np.array([sample.tgt_len for sample in samples])
    predicted = profile.of_forced_lengths.plane.seconds(src, tgt)
    kept = np.unique(np.linspace(0, len(samples) - 1, min(POINTS, len(samples))).round().astype(int))
    labels = [f"source {src[at]:.4g}, target {tgt[at]}" for at in kept]
    ends = np.array([min(measured.min(), max(predicted.min(), 1e-9)), max(measured.max(), predicted.max())])
    fit, mean_error = profile.execution.fit, float(np.abs(predicted / measured - 1.0).mean())
    how = f" ({fit.heldout_how})" if fit.heldout_how else ""
    summed_up = any(sample.src_len_mean is not None for sample in samples)
    which = "a target length at its mean source length" if summed_up else "a cell"
    fitted = "" if profile.reconciliation is None else ", of the plane fitted to whole executions alone"
    return _plot(
        "Predicted against measured",
        f"Each point is {which}: the mean time of all its repeats, and the profile's plane. Mean absolute relative error "
        f"of all points {percent(mean_error)}; held out{fitted}, on the means of undisturbed repeats, "
        f"{percent(fit.heldout_error_of_means)}, and of undisturbed time {percent(fit.heldout_error)}{how}.",
        "measured, ms",
        "predicted, ms",
        [
            _series("line", "equal", ends, ends, role="guide"),
            _series("points", "cell", measured[kept], predicted[kept], labels=labels),
        ],
        log=True,
        x_ms=True,
    )


def _plane_plot(profile: DeviceProfile) -> Plot:
    (src_low, src_high), (tgt_low, tgt_high) = profile.valid_range.src_len, profile.valid_range.tgt_len
    tgt = np.array([tgt_low, tgt_high], np.float64)
    sources = sorted({src_low, (src_low + src_high) // 2, src_high})
    return _plot(
        "Time by target length",
        f"The plane alone: no samples come with this profile ({profile.execution.kind}).",
        "target length, tokens",
        "time, ms",
        [_series("line", f"source {src}", tgt, profile.of_forced_lengths.plane.seconds(src, tgt)) for src in sources],
    )


def _grid_plot(title: str, along: str, block: StepBlock | EncoderBlock, lengths: tuple[int, ...], seconds: Any) -> Plot:
    batch = np.array(block.batch, np.float64)
    fine = np.unique(np.concatenate([batch, np.linspace(batch[0], batch[-1], 60)]))
    columns = np.unique(np.linspace(0, len(lengths) - 1, min(MOST_LINES, len(lengths))).round().astype(int)).tolist()
    series = []
    for order, column in enumerate(columns):
        name = f"{along} {lengths[column]}"
        series.append(_series("line", name, fine, seconds(fine, lengths[column]), colour=order))
        if block.seconds is not None:
            measured = np.array([row[column] for row in block.seconds])
            series.append(_series("points", name, batch, measured, colour=order, role="of-line"))
        judges = [(size, second) for size, length, second in block.judged_cells if length == lengths[column]]
        if judges:
            size, second = np.array(judges).T
            series.append(_series("points", f"{name}, only to judge", size, second, colour=order, role="judge"))
    table = block.form == "table"
    form = "an interpolated table, which passes through what was measured" if table else "a linear form"
    how = f" ({block.heldout_how})" if block.heldout_how else ""
    some_judge = "open ones only to judge, " if block.judged_cells else ""
    error = f"held-out error {percent(block.heldout_error)}{how}"
    caption = f"Points were measured, {some_judge}lines are {form}; {error}."
    return _plot(title, caption, "batch, sentences", "time, ms", series)


def _disk_plots(profile: DeviceProfile) -> list[Plot]:
    block = profile.disk
    if block is None:
        return []
    size = np.array([sample.bytes for sample in block.samples], np.float64)
    ends = (size.min(), size.max()) if size.size else (1e4, 1e8)
    fine = np.geomspace(ends[0], ends[1], 60)
    name = "interpolated table" if block.form == "table" else "fixed part + bytes / bandwidth"
    series = [_series("line", name, fine / 1e6, profile.disk_cost.seconds(fine))]
    if size.size:
        series.append(
            _series("points", "median of cold reads", size / 1e6, np.array([sample.median_s for sample in block.samples]))
        )
    r2 = "" if block.r2 is None or block.form == "table" else f"R2 {block.r2:.4f}, "
    caption = f"One read by its size; {r2}held-out error {percent(block.heldout_error)}."
    return [_plot("Disk", caption, "size, MB", "time, ms", series, log=True)]


def _streaming_plots(block: StiBlock) -> list[Plot]:
    """T_comp by width, T_io by the record's size (STI-07, STI-08)."""
    series = [
        _series("line", f"{timing.length} tokens", np.arange(1.0, 1.0 + len(timing.seconds)), np.array(timing.seconds))
        for timing in block.compute.lengths[:MOST_LINES]
    ]
    error = f"Medians, unpacking at 6 bits included; held-out error {percent(block.compute.heldout_error)}."
    io = block.io
    size, median = np.array([read.bytes for read in io.reads], np.float64), np.array([read.median_s for read in io.reads])
    fine = np.geomspace(size[0], size[-1], 60)
    reads = [
        _series("line", "fixed part + bytes / bandwidth", fine / 1e6, io.s_fixed + fine / io.bytes_per_s),
        _series("points", "median of one shard", size / 1e6, median),
    ]
    r2 = "" if io.r2 is None else f"; R2 {io.r2:.4f}"
    caption = f"One shard of 2, 3, 4, 5, 6 and 32 bits, from the left{r2}."
    return [
        _plot("Streamed layer by width", error, "shards of the layer", "time, ms", series),
        _plot("Streamed shard by size", caption, "record, MB", "time, ms", reads, log=True),
    ]


def _plot(title: str, caption: str, x: str, y: str, series: list[Plot], *, log: bool = False, x_ms: bool = False) -> Plot:
    if x_ms:
        series = [curve | {"x": thinning.numbers(1e3 * np.asarray(curve["x"]))} for curve in series]
    return {"title": title, "caption": caption, "x": x, "y": y, "log": log, "series": series}


def _series(form: str, name: str, x: Floats, seconds: Floats, **more: Any) -> Plot:
    return {"form": form, "name": name, "x": thinning.numbers(x, 9), "y": thinning.numbers(1e3 * seconds, 6), **more}


def write_profile_page(path: str | os.PathLike[str], profiles: Sequence[DeviceProfile]) -> None:
    """Write the page whole or not at all. Raises `InputError` where the file cannot be written."""
    try:
        with written_whole(path) as partial:
            partial.write_text(render_profiles(profiles), encoding="utf-8", newline="\n")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=path, remedy="choose another folder") from None


def render_profiles(profiles: Sequence[DeviceProfile]) -> str:
    """The page as text; the same profiles give the same text, and every name that came with the input is escaped."""
    plots = [profile_plots(profile) for profile in profiles]
    return render_template(
        "profile_page.html.j2",
        ("plain_plots.js", "profile_page.js"),
        name=", ".join(profile.name for profile in profiles),
        sections=[
            {
                "index": index,
                "name": profile.name,
                "title": title(profile),
                "facts": facts(profile),
                "plots": [{"at": at, "title": plot["title"], "caption": plot["caption"]} for at, plot in enumerate(plotted)],
            }
            for index, (profile, plotted) in enumerate(zip(profiles, plots, strict=True))
        ],
        content=embedded_json({"profiles": plots}),
    )
