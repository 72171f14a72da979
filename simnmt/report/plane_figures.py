"""The figures over lengths: regions and misrouted requests on the plane, and fits with the fitted means.

The fits are target over source length and time over target length, once per workload (CNMT-18, figures 3 and 2a).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base.suggestions import format_list
from simnmt.profile.execution_plane import ExecutionPlane
from simnmt.report import thinning
from simnmt.report.charts import SYMBOLS, Axis, Chart, Control, Mark, Panel, panel, plain, short
from simnmt.report.figures import CellView, estimating_policy
from simnmt.report.run_tables import share_explained
from simnmt.report.typography import MINUS, is_number, number, significant
from simnmt.results import Cell
from simnmt.results.request_log import Misroutes, were_answered
from simnmt.results.summary import Row
from simnmt.workload.length_diagnostics import means_by_source_length
from simnmt.workload.length_regression import LengthRegression

PLANE_REQUESTS = 1_500
REGION_CELLS = 60
"""Cells of the map of regions in each direction."""
MOST_MEANS = 200
"""Most means over target lengths on a device; with more lengths, neighbours share a mean."""

Log = Mapping[str, NDArray[Any]]
Ends = tuple[float, float]
_LOST = [(0.0, "lost-0"), (0.5, "lost-1"), (1.0, "lost-2")]


def axis_ends(cell: Cell) -> Ends:
    """Return the ends of the axes of source and target length, which show 99 % of the requests."""
    log = next(iter(cell.logs.values()))
    src_end, tgt_end = (
        min(_axis_end(1.2 * np.quantile(values, 0.99, method="lower")), _axis_end(values.max())) if values.size else 1.0
        for values in (log["src_len"], log["tgt_len"])
    )
    return src_end, tgt_end


def _plane_axes(ends: Ends) -> tuple[Axis, Axis]:
    return Axis("source length N, tokens", span=(0.0, ends[0])), Axis("target length M, tokens", span=(0.0, ends[1]))


def plane(view: CellView[Cell]) -> Panel:
    """Draw a sample of the requests by source and target length, coloured by the device that a policy chose.

    Between two devices the border is where the believed planes make both equally fast at the mean RTT of the trace; the band is
    the same between the 10th and the 90th percentile of RTT. With more devices each point of the plane has the colour of the
    device that is believed fastest at the mean transfer times. A policy that predicts lengths follows its own curve.
    """
    cell = view.cell
    log = next(iter(cell.logs.values()))
    requests = log["src_len"].size
    sampled = np.unique(np.linspace(0, max(requests - 1, 0), min(PLANE_REQUESTS, requests)).astype(np.int64))
    src_len, tgt_len = log["src_len"][sampled], log["tgt_len"][sampled]
    ends = axis_ends(cell)
    background, believed, sentence = _belief(view, ends)
    outside = int(((src_len > ends[0]) | (tgt_len > ends[1])).sum())
    beyond = f" Beyond the axes: {outside} of the requests drawn." if outside else ""

    def draw(policy: str) -> Chart:
        name = view.policies[int(policy)]
        target = cell.logs[name]["target"][sampled].tolist()
        points = Mark(
            "points", src_len.tolist(), tgt_len.tolist(), colour=[view.device_colour(number) for number in target],
            symbol=[view.device_symbol(number) for number in target], opacity=0.6,
            text=[plain(cell.devices[number].name) for number in target], hover="N %{x}, M %{y}: %{text}",
        )  # fmt: skip
        used = set(target) | believed if len(cell.devices) > 2 else range(len(cell.devices))
        legend = [
            Mark("points", [None], [None], plain(device.name), view.device_colour(number), symbol=view.device_symbol(number))
            for number, device in enumerate(cell.devices)
            if number in used
        ]
        curve, assumption = _assumption(view, name, ends[1], bool(sentence))
        start = sentence or "No border: the device that is believed faster does not depend on the lengths."
        # One mark for all requests, in their order: with one a device, the later would hide the earlier.
        return Chart([*background, points, *legend, *curve], *_plane_axes(ends), f"{start} {assumption}{beyond}")

    shown = estimating_policy(cell.logs)
    what = "border where both devices are believed equally fast" if len(cell.devices) == 2 else "fastest device by belief"
    options = [(str(place), name) for place, name in enumerate(view.policies)]
    return panel(
        "plane",
        "Who sent what where",
        f"Requests in the plane of source and target length, by the device they went to, with the {what}, {view.place}",
        draw,
        [Control("policy", "Policy", options, "0" if shown is None else str(view.policies.index(shown)))],
        caption=f"{number(sampled.size, 0)} of {number(log.requests, 0)} requests by source length N and target length M, "
        "coloured by the device that translated them.",
    )


def _belief(view: CellView[Cell], ends: Ends) -> tuple[list[Mark], set[int], str]:
    """Return the border or the regions that policies believe in, the devices believed fastest, and a sentence on them."""
    cell = view.cell
    if len(cell.planes) != 2:
        regions = _regions(cell, ends)
        if regions is None:
            return [], set(), ""
        most = max(len(cell.devices) - 1, 1)
        shades = [view.device_colour(min(place, len(cell.devices) - 1)) for place in range(most + 1)]
        scale = [(place / (most + 1), shade) for at, shade in enumerate(shades) for place in (at, at + 1)]
        src, tgt = (((np.arange(REGION_CELLS) + 0.5) * end / REGION_CELLS).tolist() for end in ends)
        limits = (-0.5, most + 0.5)
        heat = Mark("heat map", src, tgt, values=regions.tolist(), scale=scale, limits=limits, opacity=0.28, hover="")
        sentence = "Shaded: the device that is believed fastest at the mean transfer times, queues left out."
        return [heat], set(np.unique(regions).tolist()), sentence
    low_s, high_s = np.quantile(cell.series.rtt_s, [0.1, 0.9]).tolist()
    mean_s = float(cell.series.mean_s)
    middle, low, high = (_border(cell, transfer_s, *ends) for transfer_s in (mean_s, low_s, high_s))
    if middle is None:
        return [], set(), ""
    marks = [Mark("line", *middle, "equally fast", hover="")]
    sentence = f"Solid line: both devices are believed equally fast at the mean RTT of {1e3 * mean_s:.1f} ms"
    if low is not None and high is not None and low_s < high_s:
        outline = ([*low[0], *reversed(high[0])], [*low[1], *reversed(high[1])])
        marks.insert(0, Mark("area", *outline, colour="rtt", opacity=0.22, hover=""))
        sentence += f"; band: from the 10th to the 90th percentile, {1e3 * low_s:.1f} to {1e3 * high_s:.1f} ms"
    return marks, {0, 1}, f"{sentence}."


def _assumption(view: CellView[Cell], policy: str, tgt_end: float, bordered: bool) -> tuple[list[Mark], str]:
    """Return the target lengths that a policy assumes, where its choice turns, and a sentence on both."""
    log = view.cell.logs[policy]
    assumed = _assumed(log)
    if assumed is None:
        return [], f"{policy} goes by no assumed length."
    src, tgt = assumed
    turns = _turns(view.cell, src, tgt)
    look: dict[str, Any] = {"name": "", "hover": "", "dash": "dot", "width": 1.4}
    marks = [view.line(policy, src.tolist(), thinning.numbers(tgt, 4), name="assumed M", dash="dash", width=2.4,
                       hover="N %{x}, M assumed %{y}")]  # fmt: skip
    marks += [view.line(policy, [at, at], [0.0, tgt_end], **look) for at in turns]
    sentence = f"{policy} cannot see M and assumes the dashed curve"
    if turns:
        where = format_list([f"{at:.1f}" for at in turns])
        return marks, f"{sentence}: at the mean transfer time its choice turns at N = {where} (dotted)."
    return marks, f"{sentence}; at the mean transfer time it always chooses alike." if bordered else f"{sentence}."


def misrouted(view: CellView[Cell]) -> Panel | None:
    """Draw a sample of the requests that another device would have answered sooner, as foreseen; None where there are none."""
    cell = view.cell
    wrong = {policy: found for policy, found in cell.misroutes.items() if found.count}
    if not wrong:
        return None
    requests = next(iter(cell.logs.values())).requests
    names = [device.name for device in cell.devices]

    def draw(policy: str) -> Chart:
        misroutes = wrong[policy]
        lost_ms = misroutes.request_regret_s * 1e3
        most = float(np.quantile(lost_ms, 0.98, method="lower"))
        points = Mark(
            "points", misroutes.src_len.tolist(), misroutes.tgt_len.tolist(), symbol="x", opacity=0.55,
            values=thinning.numbers(lost_ms, 3), scale=_LOST, limits=(0.0, most), scale_title="lost, ms",
            text=_losses(misroutes, names), hover="N %{x}, M %{y}: %{text}",
        )  # fmt: skip
        return Chart([points], *_plane_axes(axis_ends(cell)), _describe_misroutes(policy, misroutes, requests))

    estimating = estimating_policy(cell.logs)
    foreseen = any(misroutes.foreseen for misroutes in wrong.values())
    oracle = ", as an oracle foresees it when the decision is made" if foreseen else ""
    return panel(
        "misroutes",
        "Where choices went wrong",
        f"Misrouted requests in the plane of source and target length, coloured by the time that each lost, {view.place}",
        draw,
        [Control("policy", "Policy", [(name, name) for name in wrong], estimating if estimating in wrong else "")],
        caption=f"Requests that another device would have answered sooner{oracle}; a sample of each policy's.",
    )


def _losses(misroutes: Misroutes, names: Sequence[str]) -> list[str]:
    columns = (misroutes.target.tolist(), misroutes.request_regret_s.tolist(), misroutes.best_target.tolist())
    # Of streamed and many devices only the loss may be known, not the best one.
    known = [*map(plain, names)]
    return [
        f"sent to {known[target]}, {_duration(regret_s)} slower than {known[best] if 0 <= best < len(known) else 'the fastest'}"
        for target, regret_s, best in zip(*columns, strict=True)
    ]


def _duration(seconds: float) -> str:
    return f"{significant(1e3 * seconds)}\u202fms" if seconds < 1.0 else f"{significant(seconds)}\u202fs"


def _describe_misroutes(policy: str, misroutes: Misroutes, requests: int) -> str:
    judged = requests if misroutes.judged is None else misroutes.judged
    share, lost = 100 * misroutes.count / judged, _duration(misroutes.regret_s / misroutes.count)
    sample = "judged " if judged < requests else ""
    return (
        f"{policy} misrouted {number(misroutes.count, 0)} of {number(judged, 0)} {sample}requests ({share:.1f} %), which lost "
        f"{lost} each and {_duration(misroutes.regret_s)} in all."
    )


def _axis_end(length: float) -> float:
    return float(np.ceil(1.04 * length + 0.5))


def _believed_s(cell: Cell, src: Any, tgt: Any) -> NDArray[np.float64] | None:
    """Return believed seconds by device at the mean transfer times, shape (devices, ...); None if these are not known."""
    if len(cell.planes) == 2:
        transfers_s = [0.0, float(cell.series.mean_s)]
    elif cell.mean_transfers_s:
        transfers_s = [mean_s - cell.mean_transfers_s[0] for mean_s in cell.mean_transfers_s]
    else:
        return None
    planes = zip(cell.planes, transfers_s, strict=True)
    return np.stack([a * src + b * tgt + c + transfer_s for (a, b, c), transfer_s in planes])


def _regions(cell: Cell, ends: Ends) -> NDArray[np.int64] | None:
    """Return the device believed fastest in the middle of each of the map's cells, shape (target, source lengths)."""
    middle = (np.arange(REGION_CELLS) + 0.5) / REGION_CELLS
    seconds = _believed_s(cell, middle[None, :] * ends[0], middle[:, None] * ends[1])
    return None if seconds is None else seconds.argmin(0)


def _border(cell: Cell, transfer_s: float, src_end: float, tgt_end: float) -> tuple[list[Any], list[Any]] | None:
    """Return two points of the line where both devices are believed equally fast; None where no line divides the plane."""
    gateway, cloud = cell.planes
    per_src, per_tgt, fixed = (a - b for a, b in zip(gateway, cloud, strict=True))
    rest = transfer_s - fixed
    if abs(per_tgt) * tgt_end > 1e-6 * abs(per_src) * src_end:
        src = np.array([0.0, src_end])
        return thinning.numbers(src), thinning.numbers((rest - per_src * src) / per_tgt)
    if per_src != 0:
        return thinning.numbers(np.full(2, rest / per_src)), [0.0, tgt_end]
    return None


def _assumed(log: Log) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Return source lengths and the target length that a policy assumes for each, the same for all requests of a length."""
    predicted, src_len = log["tgt_len_predicted"], log["src_len"]
    known = np.isfinite(predicted)
    if not known.any():
        return None
    src, first = np.unique(src_len[known], return_index=True)
    return src, predicted[known][first]


def _turns(cell: Cell, src: NDArray[Any], tgt: NDArray[Any]) -> list[float]:
    """Return source lengths at which another device becomes the fastest along a curve of assumed target lengths."""
    seconds = _believed_s(cell, src, tgt)
    if seconds is None:
        return []
    best = seconds.argmin(0)
    turn = np.flatnonzero(best[1:] != best[:-1])
    before, after = best[turn], best[turn + 1]
    ahead_s = seconds[after, turn] - seconds[before, turn]
    behind_s = seconds[before, turn + 1] - seconds[after, turn + 1]
    lengths = src[turn] + (src[turn + 1] - src[turn]) * ahead_s / (ahead_s + behind_s)
    return [float(f"{length:.4g}") for length in lengths.tolist()]


def lengths(cell: Cell, fits: Sequence[Row], name: str) -> Panel:
    """Draw the mean target length per source length of the whole corpus, its standard deviation, and the believed line.

    `fits`: those of the workload.
    """
    slope, offset = cell.regression_slope, cell.regression_offset
    means = means_by_source_length(cell.lengths, LengthRegression(slope, offset))
    src, pairs, mean = (np.array([getattr(row, key) for row in means]) for key in ("src_len_from", "pairs", "mean_tgt_len"))
    sd = np.array([np.nan if row.sd_tgt_len is None else row.sd_tgt_len for row in means])
    end = _near_end(src, pairs)
    texts = [
        f"{significant(middle)}{_spread(deviation)} of {number(count, 0)} pair{'s' if count != 1 else ''}"
        for middle, deviation, count in zip(mean.tolist(), sd.tolist(), pairs.tolist(), strict=True)
    ]
    band, points = _means_with_band(src, mean, sd, "policy-4", "mean M", texts, hover="N %{x}: M %{text}")
    # No policy expects less than one token: the line has a bend where it would.
    bend = (1.0 - offset) / slope if slope else 0.0
    along = [0.0, *([bend] if 0.0 < bend < end else []), end]
    line = Mark("line", along, [max(slope * at + offset, 1.0) for at in along], "fitted line", width=1.6, hover="")
    reading = _describe_line(cell, next((fit for fit in fits if "pairs_r2" in fit), None))
    axes = _plane_axes((end, _highest_shown(mean + np.nan_to_num(sd), src <= end)))
    return panel(
        "lengths",
        "Target length over source length",
        f"Mean target length and its standard deviation per source length in tokens, with the fitted line, {name}",
        lambda: Chart([band, points, line], *axes, reading),
        caption=f"Mean target length M of the {number(int(pairs.sum()), 0)} pairs of {cell.lengths.name} per source length N, "
        "and one standard deviation of single pairs about it.",
    )


def _spread(sd: float) -> str:
    return f" \u00b1 {significant(sd, 3)}" if is_number(sd) else ""


def _means_with_band(
    x: NDArray[Any],
    mean: NDArray[Any],
    sd: NDArray[Any],
    colour: str,
    name: str,
    texts: Sequence[str],
    *,
    symbol: str = "circle",
    hover: str = "M %{x}: %{text}",
) -> tuple[Mark, Mark]:
    """Return a band of one standard deviation about means, and the means."""
    at = thinning.numbers(x, 4)
    low, high = thinning.numbers(np.maximum(mean - sd, 0.0)), thinning.numbers(mean + sd)
    band = Mark("band", at, [], colour=colour, opacity=0.18, low=low, high=high, hover="")
    return band, Mark("points", at, thinning.numbers(mean, 4), name, colour, symbol=symbol, size=5.0, text=texts, hover=hover)


def execution(cell: Cell, fits: Sequence[Row], name: str, colour_of: Callable[[int], str]) -> Panel:
    """Draw the mean execution time per target length on each device, its standard deviation, and the believed plane.

    The requests are those of the policy that sent most to the device. The plane is taken at both lengths of the same requests,
    so that it lies on the means where it is right.
    """
    longest_s = max((float(log["t_exe_s"].max(initial=0.0)) for log in cell.logs.values()), default=0.0)
    unit, factor = ("s", 1.0) if longest_s >= 10.0 else ("ms", 1e3)
    drawn = {
        number: _execution_curve(cell, number, fits, colour_of(number), unit, factor) for number in range(len(cell.devices))
    }
    curves = {number: curve for number, curve in drawn.items() if curve is not None}
    together = len(cell.devices) <= 3

    def draw(device: str) -> Chart:
        shown = [curve for number, curve in curves.items() if device in ("all", str(number))]
        ends = [max([curve.ends[place] for curve in shown] or [1e-9]) for place in (0, 1)]
        unused = [
            item.name for number, item in enumerate(cell.devices) if number not in curves and device in ("all", str(number))
        ]
        idle = [f"No request went to {format_list(unused)}."] if unused else []
        x, y = Axis("target length M, tokens", span=(0.0, ends[0])), Axis(f"execution time, {unit}", span=(0.0, ends[1]))
        marks = [mark for curve in shown for mark in curve.marks]
        return Chart(marks, x, y, " ".join([*(curve.reading for curve in shown), *idle]))

    devices = [(str(number), device.name) for number, device in enumerate(cell.devices)]
    first = "all" if together else str(next(iter(curves), 0))
    return panel(
        "execution",
        "Execution time over target length",
        f"Mean execution time per target length, one colour per device, with the believed plane, {name}",
        draw,
        [Control("device", "On", [("all", "all")] * together + devices, first)],
        caption="Mean time on each device per target length M, one standard deviation about it, and the believed plane's time "
        "for the same requests.",
    )


@dataclass(frozen=True, slots=True)
class _Curve:
    """Execution times on one device: the marks, where the axes end, and a sentence."""

    marks: list[Mark]
    ends: Ends
    reading: str


def _execution_curve(cell: Cell, target: int, fits: Sequence[Row], colour: str, unit: str, factor: float) -> _Curve | None:
    """Return the times on one device under the policy that sent most there; None where no policy sent any."""
    sent = {policy: int((log["target"] == target).sum()) for policy, log in cell.logs.items()}
    policy = max(sent, key=sent.__getitem__)
    log = cell.logs[policy]
    here = (log["target"] == target) & were_answered(log["outcome"])
    if not here.any():
        return None
    src_len, tgt_len, time = log["src_len"][here], log["tgt_len"][here], factor * log["t_exe_s"][here]
    width = -(-int(tgt_len.max()) // MOST_MEANS)
    at = np.maximum(tgt_len - 1, 0) // width
    count = np.bincount(at)
    filled = count > 0
    mean_of_all = _means(at, time, count)
    sd = np.sqrt(np.bincount(at, (time - mean_of_all[at]) ** 2) / np.where(count > 1, count - 1, np.nan))[filled]
    mean, middle = mean_of_all[filled], _means(at, tgt_len, count)[filled]
    plane_time = factor * ExecutionPlane(*cell.planes[target]).seconds(src_len, tgt_len)
    believed = _means(at, plane_time, count)[filled]
    texts = [
        f"{significant(at_mean)}{_spread(deviation)} {unit}, plane {significant(by_plane)} {unit}, requests: {number(some, 0)}"
        for at_mean, deviation, by_plane, some in zip(
            mean.tolist(), sd.tolist(), believed.tolist(), count[filled].tolist(), strict=True
        )
    ]
    device = cell.devices[target].name
    band, points = _means_with_band(middle, mean, sd, colour, short(device), texts, symbol=SYMBOLS[target % len(SYMBOLS)])
    line_name = "believed plane" if target == len(cell.devices) - 1 else ""
    line = Mark("line", thinning.numbers(middle, 4), thinning.numbers(believed, 4), line_name, width=1.2, hover="")
    near = _near_end(middle, count[filled])
    ends = (near, _highest_shown(mean + np.nan_to_num(sd), middle <= near))
    fit = next((fit for fit in fits if fit["of"] == f"execution time on the {device}"), None)
    return _Curve([band, line, points], ends, _describe_plane(device, policy, int(here.sum()), here.size, width, fit))


def _means(at: NDArray[Any], values: NDArray[Any], count: NDArray[np.int64]) -> NDArray[np.float64]:
    sums = np.bincount(at, values)
    return np.divide(sums, count, out=np.zeros(count.size), where=count > 0)


def _near_end(lengths: NDArray[Any], count: NDArray[Any]) -> float:
    """Return an axis' end somewhat beyond the length that 99 % do not exceed."""
    longest = lengths[np.searchsorted(np.cumsum(count), 0.99 * count.sum())]
    return float(min(np.ceil(1.2 * longest), np.ceil(1.03 * lengths[-1] + 1)))


def _highest_shown(values: NDArray[np.float64], shown: NDArray[np.bool_]) -> float:
    return float(f"{1.06 * values[shown].max(initial=0.0):.3g}")


def _describe_line(cell: Cell, fit: Row | None) -> str:
    sign = MINUS if cell.regression_offset < 0 else "+"
    line = f"Line: M = {significant(cell.regression_slope)} N {sign} {significant(abs(cell.regression_offset))}"
    if fit is None:
        return f"{line}."
    return (
        f"{line}, fitted on {number(fit['samples'], 0)} of the pairs; about the means of these per N it has R² "
        f"{share_explained(fit['means_r2'])} and a mean squared error of {significant(fit['means_mse'], 3)} tokens², about "
        f"single pairs {share_explained(fit['pairs_r2'])} and {significant(fit['pairs_mse'], 3)}."
    )


def _describe_plane(device: str, policy: str, sent: int, requests: int, width: int, fit: Row | None) -> str:
    which = f"all {number(sent, 0)} requests" if sent == requests else f"the {number(sent, 0)} requests sent there"
    description = f"{device}: {which} under {policy}"
    if width > 1:
        description += f", {width} neighbouring M to a mean"
    if fit is not None and "r2" in fit:
        error = significant(fit["mse_ms2"], 3)
        description += f"; the plane was fitted with R² {share_explained(fit['r2'])} and a mean squared error of {error} ms²"
    elif fit is not None:
        description += "; the plane is the profile's own"
    return f"{description}."
