"""Top-up batching reproduced (`simnmt reproduce topup`): occupancies, speeds, verdicts and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from simnmt.papers.fni import simulation
from simnmt.papers.fni.cases import DeviceFacts
from simnmt.papers.fni.devices import Decoder, decoders, doubtful_profiles, named_profiles, shipped_profiles
from simnmt.papers.fni.published import SETS, TOPUP
from simnmt.papers.fni.simulation import MEASURES, STRATEGIES
from simnmt.papers.fni.topup_claims import LENGTH_CLAIMS, PRINTED, SPEED_CLAIMS, WITH_FIGURE, Lengths
from simnmt.papers.kit.claims import judge
from simnmt.papers.kit.figures import Figure, figure_of, grouped, line_series
from simnmt.papers.kit.rendering import Report, record
from simnmt.report.charts import Axis, Chart, Mark
from simnmt.report.table import Column, Table

Row = Mapping[str, Any]
SHOWN = {
    "full_share": ("full, %", 100.0, 1),
    "below_8_share": ("below 8, %", 100.0, 1),
    "mean_active": ("mean active", 1.0, 1),
    "steps": ("steps", 1.0, 0),
}
"""Measures of an occupancy: name with unit, scale and decimals."""


def reproduce(
    *,
    profile: Annotated[
        list[str] | None, typer.Option(metavar="FILE|@NAME", help="Use this instead of the shipped ones; repeatable.")
    ] = None,
    requests: Annotated[int | None, typer.Option(metavar="N", help="Sentences timed at most, of each set.")] = None,
    progress: simulation.Progress = lambda done, tasks: None,
) -> Report:
    """Simulate the paper's batches and time them on profiles, by default all shipped ones.

    Profiles without batched step costs are skipped. With few `requests` a set has fewer than `LEAST_BATCHES` batches, which
    decide no verdict; occupancies always cover the paper's whole sets. Raises `InputError` for too few requests.
    """
    simulation.check_requests(requests)
    known = decoders(named_profiles(profile) if profile else shipped_profiles())
    moments = [simulation.drawn_moments(key, simulation.SEEDS) for key in SETS]
    occupancies = [simulation.step_occupancy(key, strategy, simulation.SEEDS) for key in SETS for strategy in STRATEGIES]
    devices = []
    for done, device in enumerate(groups := list(grouped(known, "device").values())):
        progress(done, len(groups))
        frames = [simulation.speeds(decoder, key, list(STRATEGIES), requests) for decoder in device for key in SETS]
        devices.append(DeviceFacts(device, simulation.by_key(frames), requests))
    return report_of(Lengths(pd.concat(occupancies), moments), devices)


def report_of(lengths: Lengths, devices: Sequence[DeviceFacts]) -> Report:
    """Return the paper's claims on batching and our results for JSON, terminal and page."""
    known = [decoder for device in devices for decoder in device.decoders]
    speeds = [
        row
        for device in devices
        for row in simulation.speed_rows(device.timed, device.decoders, lambda key: (*key[:3], "mini", False))
    ]
    tables = [
        _moment_table(lengths),
        _occupancy_table(lengths),
        TOPUP.shown_table("active", _active_rows(lengths)),
        _speed_table(speeds),
        _device_table(known),
    ]
    return Report(
        TOPUP,
        [*judge(LENGTH_CLAIMS, [lengths]), *judge(SPEED_CLAIMS, devices)],
        tables,
        [*_speed_figures(speeds), *_occupancy_figures(lengths)],
        [] if known else ["No device profile at hand has costs of decode steps and of the encoder: no speeds are known."],
        values={"seeds": len(simulation.SEEDS), "least_batches": simulation.LEAST_BATCHES},
        rows={"speeds": speeds},
        more={"doubts": doubtful_profiles(known)},
    )


def _moment_table(lengths: Lengths) -> Table:
    return TOPUP.shown_table(
        "table-1",
        lengths.moments,
        published_moments=lambda row: f"{row['published_mean']:.1f} ± {row['published_sd']:.1f}",
        drawn_moments=lambda row: f"{row['mean']:.2f} ± {row['sd']:.2f}",
    )


def _cells(lengths: Lengths) -> dict[tuple[str, str], pd.DataFrame]:
    groups: Any = lengths.occupancies.groupby(["set", "strategy"], sort=False)
    return dict(iter(groups))


def _occupancy_table(lengths: Lengths) -> Table:
    printed = {(row["set"], row["strategy"], row["measure"]): row for row in PRINTED.rows}
    rows = []
    for (key, strategy), frame in _cells(lengths).items():
        for measure in MEASURES:
            beside, values = printed.get((key, strategy, measure), {}), frame[measure]
            names = {"set": key, "strategy": strategy, "measure": measure}
            theirs = {"published": beside.get("published"), "stated": beside.get("stated")}
            spread = {"ours": float(values.mean()), "least": float(values.min()), "greatest": float(values.max())}
            rows.append(names | theirs | spread)

    def text(row: Row, key: str) -> str:
        _, scale, decimals = SHOWN[row["measure"]]
        return "" if row[key] is None else f"{scale * row[key]:,.{decimals}f}"

    return TOPUP.shown_table(
        "occupancies",
        rows,
        name=lambda row: f"{SETS[row['set']].name} {row['strategy']}, {SHOWN[row['measure']][0]}",
        published_text=lambda row: text(row, "published"),
        stated_text=lambda row: text(row, "stated"),
        ours_text=lambda row: text(row, "ours"),
        spread=lambda row: f"[{text(row, 'least')}, {text(row, 'greatest')}]",
    )


def _active_rows(lengths: Lengths) -> list[Row]:
    return [
        {
            "set": key,
            "strategy": strategy,
            "name": STRATEGIES[strategy].name,
            "share_by_active": np.mean([*rows.share_by_active], axis=0).tolist(),
        }
        for (key, strategy), rows in _cells(lengths).items()
    ]


def _speed_table(rows: Sequence[Row]) -> Table:
    columns = [
        Column(key, f"{key}.relative", 3, interval=(f"{key}.relative_least", f"{key}.relative_greatest"))
        for key in STRATEGIES
        if key != "mini"
    ]
    note = "Sentences a second with mini-batching, and the speed of the others over it; square brackets hold the least and the "
    note += "greatest over seeds."
    return simulation.speed_table("Speed with all sentences at hand (figures 6, 7)", rows, columns, note, "strategy")


def _device_table(known: Sequence[Decoder]) -> Table:
    keys = "device box=profile.device.name model=profile.model.name beam profile=profile.name batch kind=shown_kind remarks"
    rows = [record(decoder, keys) for decoder in known]
    return TOPUP.shown_table("devices", rows, all_remarks=lambda row: "; ".join(row["remarks"]))


def _speed_figures(rows: Sequence[Row]) -> list[Figure]:
    charts = {}
    for (test_set, device), group in grouped(rows, "set", "device").items():
        rates = [f"{row['sentences_per_s']:.4g} with beam {row['beam']}" for row in group if row["strategy"] == "mini"]
        reading = f"Mini-batching: sentences a second {', '.join(rates)}."
        charts[f"{SETS[test_set].name}, {device}"] = simulation.speed_chart(group, "speed over mini-batching", reading)
    note = "All sentences at hand, simulated on each device's step costs; the devices' table has their origin. The paper's "
    note += "curves are not in its text; its statements are among the claims."
    title, heading = "Figures 6 and 7: speed with top-up batching", "Speed over mini-batching by beam"
    return [figure_of("figures-6-7", title, heading, charts, note=note, before="speeds")] if charts else []


def _occupancy_figures(lengths: Lengths) -> list[Figure]:
    printed = {
        (row["set"], row["strategy"], row["measure"]): f" (published: {100 * row['published']:.0f} %)" for row in WITH_FIGURE
    }
    active = _active_rows(lengths)

    def histogram(row: Row) -> Chart:
        percents = [100 * share for share in row["share_by_active"]]
        hover = "%{x} active: %{y:.2f} % of the steps"
        mark = Mark("bars", list(range(1, len(percents) + 1)), percents, colour="policy-1", hover=hover)
        reading = f"Full in {percents[-1]:.3g} % of the steps{printed.get((row['set'], row['strategy'], 'full_share'), '')}."
        return Chart([mark], Axis("active sentences"), Axis("share of the decode steps, %", from_zero=True), reading)

    def cumulative(test_set: str) -> Chart:
        lines, readings = [], []
        for place, row in enumerate(row for row in active if row["set"] == test_set):
            up_to = [100 * share for share in accumulate(row["share_by_active"])]
            line = line_series(row["name"], list(range(1, len(up_to) + 1)), up_to, place, mode="lines")
            lines.append(replace(line, step=True))
            few = 100 * lengths.mean(test_set, row["strategy"], "below_8_share")
            readings.append(f"{row['name']} {few:.3g} %{printed.get((test_set, row['strategy'], 'below_8_share'), '')}")
        border = Mark("line", [7, 7], [0, 100], "fewer than 8", dash="dot", hover="")
        reading = f"{SETS[test_set].name}, fewer than 8 active: {', '.join(readings)}."
        y = Axis("share of the decode steps, %", span=(0.0, 101.0))
        return Chart([*lines, border], Axis("active sentences"), y, reading)

    shares = {row["name"]: histogram(row) for row in active if row["set"] == "europarl"}
    few = {SETS[key].name: cumulative(key) for key in SETS}
    note = "Batches of 128, all sentences at hand. No device is needed: only lengths, which are drawn."
    title, title_8 = (
        "Figure 2: share of the steps by active sentences, Europarl",
        "Figure 8: cumulative share of the steps by active sentences",
    )
    return [
        figure_of("figure-2", title, "Share of the steps", shares, note=note, before="occupancies", chosen="maxi"),
        figure_of("figure-8", title_8, "Share of the steps, cumulative", few, note=note, before="occupancies"),
    ]
