"""The page of device profiles: facts and plots in one HTML file that opens without a network."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.profile.blocks import EncoderBlock, StepBlock
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.doubts import heldout_errors, profile_doubts
from simnmt.profile.profile_summary import facts, percent, title
from simnmt.profile.streaming_block import StiBlock
from simnmt.report import thinning
from simnmt.report.charts import Axis, Chart, Kind, Mark, Panel, panel
from simnmt.report.page_template import Section, render_page, write_page

POINTS = 4_000
"""Most cells in the figure of predicted against measured times."""
MOST_LINES = 6
"""Most positions or source lengths with a line each."""

Floats = NDArray[np.float64]


def profile_panels(profile: DeviceProfile) -> list[Panel]:
    """Return the figures for which the profile has numbers."""
    panels = _execution_panels(profile)
    if profile.step is not None:
        step = profile.step
        panels.append(_grid_panel("Decode step by batch", "position", step, step.position, step.cost.seconds))
    if profile.encoder is not None:
        encoder = profile.encoder
        panels.append(_grid_panel("Encoder by batch", "source length", encoder, encoder.src_len, encoder.cost.seconds))
    return panels + _disk_panels(profile) + ([] if profile.sti is None else _streaming_panels(profile.sti))


def means_per_tgt_len(profile: DeviceProfile) -> tuple[Floats, Floats, Floats, Floats]:
    """Return target lengths of the samples, rising; mean time and its standard deviation over inferences, s; inferences."""
    samples = [sample for sample in profile.execution.samples if sample.batch == 1]
    length, which = np.unique([sample.tgt_len for sample in samples], return_inverse=True)
    which = which.reshape(-1)
    count = np.array([sample.repeats for sample in samples], np.float64)
    mean = np.array([sample.mean_s for sample in samples])
    inner = np.array([(sample.sd_s or 0.0) ** 2 * (sample.repeats - 1) / sample.repeats for sample in samples])
    many: Floats = np.bincount(which, weights=count).astype(np.float64)
    middle = np.bincount(which, weights=count * mean) / many
    # Variance within cells plus variance between cells, which differ in source length.
    variance = np.bincount(which, weights=count * (inner + (mean - middle[which]) ** 2)) / many
    return length.astype(np.float64), middle, np.sqrt(variance), many


def _execution_panels(profile: DeviceProfile) -> list[Panel]:
    if not any(sample.batch == 1 for sample in profile.execution.samples):
        return [_plane_panel(profile)]
    length, mean, sd, count = means_per_tgt_len(profile)
    caption = "Mean time per target length; the band is one standard deviation of single executions either way."
    low, high = (thinning.numbers(1e3 * edge, 6) for edge in (np.maximum(mean - sd, 0.0), mean + sd))
    marks = [
        Mark("band", length.tolist(), [], "one standard deviation", "rtt", low=low, high=high, opacity=0.25, hover=""),
        _points("mean", length, mean, size=8.0),
    ]
    if length.size >= 2:
        offset, slope = np.polynomial.polynomial.polyfit(length, mean, 1, w=np.sqrt(count))
        off = mean - offset - slope * length
        spread = float((count * (mean - np.average(mean, weights=count)) ** 2).sum())
        r2 = f"R2 {1.0 - float((count * off**2).sum()) / spread:.4f}, " if spread > 0.0 and length.size > 2 else ""
        mse = 1e6 * float(np.average(off**2, weights=count))
        caption += f" Line through the means: {1e3 * slope:.4g} x target + {1e3 * offset:.4g} ms; {r2}MSE {mse:.4g} ms^2."
        ends = length[[0, -1]]
        marks.insert(1, _line("fitted line", ends, offset + slope * ends))
    return [_panel("Time by target length", caption, "target length, tokens", marks), _predicted_panel(profile)]


def _predicted_panel(profile: DeviceProfile) -> Panel:
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
    caption = (
        f"Each point is {which}: the mean time of all its repeats, and the profile's plane. Mean absolute relative error "
        f"of all points {percent(mean_error)}; held out, on the means of undisturbed repeats, "
        f"{percent(fit.heldout_error_of_means)}, and of undisturbed time {percent(fit.heldout_error)}{how}."
    )
    marks = [
        _line("equal", 1e3 * ends, ends, dash="dot", width=1.2, colour="soft", hover=""),
        _points("cell", 1e3 * measured[kept], predicted[kept], text=labels, opacity=0.7, hover="%{y:,.4~g} ms: %{text}"),
    ]
    return _panel("Predicted against measured", caption, "measured, ms", marks, y="predicted, ms", log=True)


def _plane_panel(profile: DeviceProfile) -> Panel:
    (src_low, src_high), (tgt_low, tgt_high) = profile.valid_range.src_len, profile.valid_range.tgt_len
    tgt = np.array([tgt_low, tgt_high], np.float64)
    sources = sorted({src_low, (src_low + src_high) // 2, src_high})
    plane = profile.of_forced_lengths.plane
    marks = [_line(f"source {src}", tgt, plane.seconds(src, tgt), place) for place, src in enumerate(sources)]
    caption = f"The plane alone: no samples come with this profile ({profile.execution.kind})."
    return _panel("Time by target length", caption, "target length, tokens", marks)


def _grid_panel(
    title: str, along: str, block: StepBlock | EncoderBlock, lengths: tuple[int, ...], seconds: Callable[[Floats, int], Floats]
) -> Panel:
    batch = np.array(block.batch, np.float64)
    fine = np.unique(np.concatenate([batch, np.linspace(batch[0], batch[-1], 60)]))
    columns = np.unique(np.linspace(0, len(lengths) - 1, min(MOST_LINES, len(lengths))).round().astype(int)).tolist()
    marks = []
    for place, column in enumerate(columns):
        marks.append(_line(f"{along} {lengths[column]}", fine, seconds(fine, lengths[column]), place))
        if block.seconds is not None:
            marks.append(_points("", batch, np.array([row[column] for row in block.seconds]), place))
        judges = [(size, second) for size, length, second in block.judged_cells if length == lengths[column]]
        if judges:
            size, second = np.array(judges).T
            marks.append(_points("", size, second, place, symbol="circle-open"))
    form = "an interpolated table, which passes through what was measured" if block.form == "table" else "a linear form"
    how = f" ({block.heldout_how})" if block.heldout_how else ""
    some_judge = "open ones only to judge, " if block.judged_cells else ""
    caption = f"Points were measured, {some_judge}lines are {form}; held-out error {percent(block.heldout_error)}{how}."
    spikes = _spikes(block, lengths)
    return _panel(title, caption + (f" {spikes}" if spikes else ""), "batch, sentences", marks)


SPIKE = 1.15
"""A batch size whose median time exceeds that of a larger one by this factor is named."""


def _spikes(block: StepBlock | EncoderBlock, lengths: tuple[int, ...]) -> str:
    """Return a sentence on batch sizes that are slower than a larger one at most lengths; empty without any."""
    if block.seconds is None:
        return ""
    times = np.array(block.seconds)
    later = np.minimum.accumulate(times[::-1])[::-1][1:]
    slower = (times[:-1] > SPIKE * later).sum(axis=1) * 2 > len(lengths)
    sizes = [str(size) for size, spikes in zip(block.batch, slower.tolist(), strict=False) if spikes]
    how = "the table keeps the spike" if block.form == "table" else "the line passes below it"
    return f"Measured slower than a larger batch: size {', '.join(sizes)}; {how}." if sizes else ""


def _disk_panels(profile: DeviceProfile) -> list[Panel]:
    block = profile.disk
    if block is None:
        return []
    size = np.array([sample.bytes for sample in block.samples], np.float64)
    ends = (size.min(), size.max()) if size.size else (1e4, 1e8)
    fine = np.geomspace(ends[0], ends[1], 60)
    name = "interpolated table" if block.form == "table" else "fixed part + bytes / bandwidth"
    marks = [_line(name, fine / 1e6, block.seconds(fine))]
    if size.size:
        medians = np.array([sample.median_s for sample in block.samples])
        marks.append(_points("median of cold reads", size / 1e6, medians))
    r2 = "" if block.r2 is None or block.form == "table" else f"R2 {block.r2:.4f}, "
    caption = f"One read by its size; {r2}held-out error {percent(block.heldout_error)}."
    return [_panel("Disk", caption, "size, MB", marks, log=True)]


def _streaming_panels(block: StiBlock) -> list[Panel]:
    """Return T_comp by width and T_io by the record's size (STI-07, STI-08)."""
    marks = [
        _line(f"{timing.length} tokens", np.arange(1.0, 1.0 + len(timing.seconds)), np.array(timing.seconds), place)
        for place, timing in enumerate(block.compute.lengths[:MOST_LINES])
    ]
    error = f"Medians, unpacking at 6 bits included; held-out error {percent(block.compute.heldout_error)}."
    io = block.io
    size, median = np.array([read.bytes for read in io.reads], np.float64), np.array([read.median_s for read in io.reads])
    fine = np.geomspace(size[0], size[-1], 60)
    reads = [
        _line("fixed part + bytes / bandwidth", fine / 1e6, io.s_fixed + fine / io.bytes_per_s),
        _points("median of one shard", size / 1e6, median),
    ]
    r2 = "" if io.r2 is None else f"; R2 {io.r2:.4f}"
    caption = f"One shard of 2, 3, 4, 5, 6 and 32 bits, from the left{r2}."
    return [
        _panel("Streamed layer by width", error, "shards of the layer", marks),
        _panel("Streamed shard by size", caption, "record, MB", reads, log=True),
    ]


def _panel(title: str, caption: str, x: str, marks: list[Mark], *, y: str = "time, ms", log: bool = False) -> Panel:
    chart = Chart(marks, Axis(x, log=log, from_zero=True), Axis(y, log=log, from_zero=True))
    return panel(title, title, f"{title}: {y} over {x}", lambda: chart, caption=caption)


def _mark(kind: Kind, name: str, x: Floats, seconds: Floats, place: int | None = None, **style: Any) -> Mark:
    """Return marks with milliseconds on the y axis, in the colour of `place` among the series, or of a single series."""
    shade = "accent" if place is None else f"policy-{place}"
    look = {"colour": shade, "hover": "%{y:,.4~g} ms at %{x:,.4~g}"} | style
    return Mark(kind, thinning.numbers(x, 9), thinning.numbers(1e3 * seconds, 6), name, **look)


_line = partial(_mark, "line")
_points = partial(_mark, "points", symbol="circle")


def describe_trust(profile: DeviceProfile) -> str:
    """Return one or two sentences on how far the numbers of the profile can be trusted."""
    kind, doubts = profile.execution.kind, profile_doubts(profile)
    if kind != "measured":
        return (
            f"These numbers are {kind}, not measured: they show consistency with their source and prove nothing about a device."
        )
    errors = {name: error for name, error in heldout_errors(profile).items() if error is not None}
    worst = max(errors, key=errors.__getitem__, default=None)
    error = "No held-out error is known."
    if worst is not None:
        many = f"of all {len(errors)} cost models" if len(errors) > 1 else "of the cost model"
        error = f"The greatest held-out error {many} is {percent(errors[worst])} ({worst})."
    if not doubts:
        return f"Measured without a warning. {error}"
    return f"Measured, with {len(doubts)} warning{'s' if len(doubts) > 1 else ''}; the first: {doubts[0].message}. {error}"


def write_profile_page(path: str | os.PathLike[str], profiles: Sequence[DeviceProfile]) -> None:
    """Write the page of profiles, whole or not at all. Raises `InputError` if the file cannot be written."""
    write_page(path, render_profiles(profiles))


def render_profiles(profiles: Sequence[DeviceProfile]) -> str:
    """Return the page as text; the same profiles give the same text, and every name that came with the input is escaped."""
    several = len(profiles) > 1
    sections = [
        Section(
            (f"{profile.name}: " if several else "") + title(profile),
            f"profile-{place}",
            [describe_trust(profile)],
            facts(profile),
            profile_panels(profile),
        )
        for place, profile in enumerate(profiles)
    ]
    return render_page("simnmt profile", ", ".join(profile.name for profile in profiles), sections)
