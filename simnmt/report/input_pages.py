"""The pages of inputs, of device profiles and of traces: facts and figures in one HTML file that opens without a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base.arrays import Floats
from simnmt.network.traces.summary import format_facts, format_title, lost_runs, time_unit
from simnmt.network.traces.trace import NOUN, Trace
from simnmt.profile.blocks import EncoderBlock, StepBlock
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.doubts import heldout_errors, profile_doubts
from simnmt.profile.profile_summary import facts, title
from simnmt.report.charts import Axis, Chart, Kind, Mark, Panel, extremes, numbers, quantile_shares, quantiles
from simnmt.report.page_template import Section, render_page
from simnmt.report.words import words

MOST_LINES = 6
"""Most positions or source lengths with a line each."""
TRACE_POINTS = 4_000
"""Most points of a series; its peaks and troughs are kept."""
MOST_OUTAGES = 2_000


def profile_panels(profile: DeviceProfile) -> list[Panel]:
    """Return the figures for which the profile has numbers."""
    panels = [_execution_panel(profile)]
    if profile.step is not None:
        step = profile.step
        panels.append(_grid_panel("Decode step by batch", "position", step, step.position, step.cost.seconds))
    if profile.encoder is not None:
        encoder = profile.encoder
        panels.append(_grid_panel("Encoder by batch", "source length", encoder, encoder.src_len, encoder.cost.seconds))
    return panels


def means_per_tgt_len(profile: DeviceProfile) -> tuple[Floats, Floats, Floats, Floats]:
    """Return target lengths of the samples, rising; means and standard deviations of their times, means of the plane, s.

    The deviations are of the cells that state one, NaN for a length without such a cell.
    """
    samples = profile.execution.samples
    length, which = np.unique([sample.tgt_len for sample in samples], return_inverse=True)
    which = which.reshape(-1)
    count = np.array([sample.repeats for sample in samples], np.float64)

    def means(values: Floats, count: Floats = count) -> Floats:
        with np.errstate(invalid="ignore"):
            mean: Floats = np.bincount(which, weights=count * values) / np.bincount(which, weights=count)
        return mean

    mean = np.array([sample.mean_s for sample in samples])
    stated = np.array([sample.sd_s is not None for sample in samples])
    inner = np.array([(sample.sd_s or 0.0) ** 2 * (sample.repeats - 1) / sample.repeats for sample in samples])
    src = np.array([sample.src_len for sample in samples])
    believed = profile.of_forced_lengths.plane.seconds(src, np.array([sample.tgt_len for sample in samples]))
    middle = means(mean)
    # Variance within cells plus variance between cells, which differ in source length.
    return (
        length.astype(np.float64),
        middle,
        np.sqrt(means(inner + (mean - middle[which]) ** 2, count * stated)),
        means(believed),
    )


def _execution_panel(profile: DeviceProfile) -> Panel:
    execution = profile.execution
    if execution.samples:
        length, mean, sd, believed = means_per_tgt_len(profile)
        known = np.isfinite(sd)
        low, high = (numbers(1e3 * edge[known], 6) for edge in (np.maximum(mean - sd, 0.0), mean + sd))
        marks = [
            Mark(
                "band", length[known].tolist(), [], "one standard deviation", "rtt", low=low, high=high, opacity=0.25, hover=""
            ),
            _line("the profile's plane", length, believed),
            _points("mean", length, mean, size=8.0),
        ]
        fit = execution.fit
        basis = f" ({fit.heldout_how})" if fit.heldout_how else ""
        caption = (
            "Mean time per target length, the standard deviation of single executions where it was measured, and the plane at "
            "the same lengths. "
            f"Error held out: {percent(fit.heldout_error_of_means)} on the means of undisturbed repeats, "
            f"{percent(fit.heldout_error)} of undisturbed time{basis}."
        )
    else:
        (src_low, src_high), (tgt_low, tgt_high) = profile.valid_range.src_len, profile.valid_range.tgt_len
        tgt = np.array([tgt_low, tgt_high], np.float64)
        plane = profile.of_forced_lengths.plane
        sources = sorted({src_low, (src_low + src_high) // 2, src_high})
        marks = [_line(f"source {src}", tgt, plane.seconds(src, tgt), place) for place, src in enumerate(sources)]
        caption = f"The plane alone: no samples come with this profile ({execution.kind})."
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
        marks.append(_points("", batch, np.array([row[column] for row in block.seconds]), place))
        judges = [(size, second) for size, length, second in block.judged_cells if length == lengths[column]]
        if judges:
            size, second = np.array(judges).T
            marks.append(_points("", size, second, place, symbol="circle-open"))
    basis = f" ({block.heldout_how})" if block.heldout_how else ""
    some_judge = "open points were measured only to judge, " if block.judged_cells else ""
    notes = "".join(f"; {note}" for note in block.notes)
    error = f"{percent(block.heldout_error)}{basis}"
    caption = f"Points are the table, {some_judge}lines lie between them; held-out error {error}{notes}."
    return _panel(title, caption, "batch, sentences", marks)


def _panel(title: str, caption: str, x: str, marks: list[Mark]) -> Panel:
    chart = Chart(marks, Axis(x, from_zero=True), Axis("time, ms", from_zero=True))
    return Panel(title, title, f"{title}: time, ms over {x}", lambda: chart, caption=caption)


def _mark(kind: Kind, name: str, x: Floats, seconds: Floats, place: int | None = None, **style: Any) -> Mark:
    """Return marks with milliseconds on the y axis, in the colour of `place` among the series, or of a single series."""
    shade = "accent" if place is None else f"policy-{place}"
    look = {"colour": shade, "hover": "%{y:,.4~g} ms at %{x:,.4~g}"} | style
    return Mark(kind, numbers(x, 9), numbers(1e3 * seconds, 6), name, **look)


_line = partial(_mark, "line")
_points = partial(_mark, "points", symbol="circle")


def percent(share: float | None) -> str:
    """Format a share as a percentage; `unknown` for None."""
    return "unknown" if share is None else f"{100 * share:.3g} %"


def describe_trust(profile: DeviceProfile) -> list[str]:
    """Return one or two sentences on how far the numbers of the profile can be trusted."""
    errors = {name: error for name, error in heldout_errors(profile).items() if error is not None}
    worst = max(errors, key=errors.__getitem__, default=None)
    doubts = [doubt.message for doubt in profile_doubts(profile)]
    return words("trust", kind=profile.execution.kind, doubts=doubts, errors=errors, worst=worst)


def render_profiles(profiles: Sequence[DeviceProfile]) -> str:
    """Return the page as text; the same profiles give the same text, and every name that came with the input is escaped."""
    several = len(profiles) > 1
    sections = [
        Section(
            (f"{profile.name}: " if several else "") + title(profile),
            f"profile-{place}",
            describe_trust(profile),
            facts(profile),
            profile_panels(profile),
        )
        for place, profile in enumerate(profiles)
    ]
    return render_page("simnmt profile", ", ".join(profile.name for profile in profiles), sections)


def render_traces(name: str, traces: Sequence[Trace]) -> str:
    """Return the page as text; the same traces give the same text, and every name that came with the input is escaped."""
    sections = []
    for place, trace in enumerate(traces):
        text, facts = [trace.source, *trace.remarks], format_facts(trace)
        sections.append(Section(format_title(trace), f"series-{place}", text, facts, trace_panels(trace)))
    return render_page("simnmt trace", name, sections)


def trace_panels(trace: Trace) -> list[Panel]:
    """Return the figures of one trace: over time, and its distribution; milliseconds or Mbit/s."""
    lap_s = trace.duration_s
    per_unit, unit = (1e3, "ms") if trace.quantity == "rtt" else (1e-6, "Mbit/s")
    length_s, unit_of_time = time_unit(lap_s)
    title = f"{NOUN[trace.quantity]}, {unit}"
    kept = extremes(trace.value, TRACE_POINTS)
    value, until = trace.value * per_unit, np.append(trace.time_s, lap_s) / length_s
    time = numbers(np.append(trace.time_s[kept], lap_s) / length_s, 7)
    hover = f"%{{y:,.4~g}} {unit} at %{{x:.4~g}} {unit_of_time}"
    series = Mark("line", time, np.append(value[kept], value[-1]), colour="accent", width=1.2, step=True, hover=hover)
    lost = _outages(trace, until, unit_of_time)
    over_time = Chart([series, *lost], Axis(f"time, {unit_of_time}"), Axis(title, from_zero=True))
    arrived = value[~trace.lost]
    grid = quantile_shares(arrived.size)
    drawn = numbers(quantiles(arrived, grid))
    share = np.round(grid, 7).tolist()
    symbol = "circle" if drawn and drawn[0] == drawn[-1] else ""
    curve = Mark("line", drawn, share, colour="accent", symbol=symbol, hover=f"%{{y:.2%}} up to %{{x:,.4~g}} {unit}")
    distribution = Chart([curve], Axis(title), Axis("share of samples", span=(0.0, 1.01), tick_format=".0%"))
    return [
        Panel("time", "Over time, lost samples held", f"{title} over time", lambda: over_time, across=True),
        Panel("distribution", "Share of samples up to a value", f"Distribution of {title}", lambda: distribution),
    ]


def _outages(trace: Trace, until: NDArray[np.float64], unit: str) -> list[Mark]:
    """Return a mark with begin, end and a break of each run of lost samples; none if no sample was lost."""
    begins, ends = (edges[:MOST_OUTAGES] for edges in lost_runs(trace.lost))
    points: list[float | None] = []
    for begin, end in zip(until[begins].tolist(), until[ends].tolist(), strict=True):
        points += [round(begin, 7), round(end, 7), None]
    if not points:
        return []
    floor = [None if at is None else 0.0 for at in points]
    return [
        Mark("line", points, floor, "lost", "bad", width=4.0, symbol="circle", size=5.0, hover=f"lost at %{{x:.5~g}} {unit}")
    ]
