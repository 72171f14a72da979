"""The fused output layer reproduced (`simnmt reproduce fused`): stages and speeds on each device, verdicts and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simnmt.base.errors import InputError
from simnmt.papers.fni import simulation
from simnmt.papers.fni.devices import BEAMS, FusedDecoder, doubtful_profiles, fused_decoders, named_profiles, shipped_profiles
from simnmt.papers.fni.fused_claims import (
    DEVICE_CLAIMS,
    NO_DECODER,
    PRINTED_CLAIMS,
    REAL_CLAIMS,
    Layers,
    RealDecoder,
    predicted_speed_up,
)
from simnmt.papers.fni.published import FUSED, GAINS, OUTPUT_LAYER, SETS, case_name, derived
from simnmt.papers.fni.simulation import STRATEGIES
from simnmt.papers.kit.claims import Printed, end_to_end, judge
from simnmt.papers.kit.figures import Figure, bars, figure_of, grouped
from simnmt.papers.kit.rendering import Report, derived_table, record
from simnmt.report.charts import Chart
from simnmt.report.table import Column, Table
from simnmt.report.typography import signed

if TYPE_CHECKING:
    from simnmt.calibrate.decoder_speeds import RealSpeed

Row = Mapping[str, Any]
TIMED = ("mini", "half-empty", "maxi", "maxi half-empty")
"""The paper's baseline, its choice of top-up (half-empty), and both on top of maxi-batching."""
PRINTED_GAINS = {
    ("mini", True): "fused",
    ("half-empty", False): "topped up",
    ("half-empty", True): "both",
    ("maxi half-empty", True): "both with maxi",
}
"""Rows of the printed gains by strategy and kernel."""


def reproduce(
    *,
    profile: Annotated[
        list[str] | None, typer.Option(metavar="FILE|@NAME", help="Use this instead of the shipped ones; repeatable.")
    ] = None,
    requests: Annotated[int | None, typer.Option(metavar="N", help="Sentences timed at most, of each set.")] = None,
    measure: Annotated[
        int | None, typer.Option(metavar="N", help="A real decoder as well, on N sentences of each mix; minutes.", min=1)
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME|PATH", help="Model for --measure. [default: gru-512, random weights]")
    ] = None,
    progress: simulation.Progress = lambda done, tasks: None,
) -> Report:
    """Time the paper's output layer on profiles, by default all shipped ones that measured decoder variants.

    Profiles without a fused variant are passed over. With few `requests` a set has fewer than `simulation.LEAST_BATCHES`
    batches, which decide no verdict on speeds. Raises `InputError` for too few requests, and for a `model` without `measure`.
    """
    if model is not None and measure is None:
        raise InputError(f"--model {model} without --measure: no sentence to decode", remedy="give --measure N as well")
    simulation.check_requests(requests)
    known, left_out = fused_decoders(named_profiles(profile) if profile else shipped_profiles())
    real: list[RealSpeed] = []
    if measure is not None:
        # Imported here, so that a reproduction from profiles needs no torch. The real decoder runs first, so that an unreadable
        # model is refused before the simulation.
        from simnmt.calibrate.decoder_speeds import fused_speeds

        real = fused_speeds(model or FUSED["model"], measure, BEAMS, progress=progress)
    devices = []
    for done, decoders in enumerate(groups := list(grouped(known, "device").values())):
        progress(done, len(groups))
        frames = [
            simulation.speeds(variant, key, [strategy], requests, fused=variant is decoder.fused)
            for decoder in decoders
            for key in SETS
            for strategy in TIMED
            for variant in (decoder.plain, decoder.fused)
        ]
        stages = {(decoder.beam, key): simulation.stages(decoder, key, requests) for decoder in decoders for key in SETS}
        plain = [decoder.plain for decoder in decoders]
        devices.append(Layers(plain, simulation.by_key(frames), requests, stages=stages))
    return report_of(known, devices, real, left_out)


def report_of(
    decoders: Sequence[FusedDecoder], devices: Sequence[Layers], real: Sequence[RealSpeed], left_out: Sequence[str]
) -> Report:
    """Return the paper's claims on fusing and our results; `left_out`: messages about the profiles that were passed over."""
    stages = [vars(row) for device in devices for row in device.stages.values()]
    speeds, layers = _speed_rows(decoders, devices), [vars(row) for row in OUTPUT_LAYER] + stages
    notes = ["No profile at hand has a fused output layer: `simnmt calibrate --part decoder` measures it."]
    measured = judge(REAL_CLAIMS, [RealDecoder(real)] if real else [], NO_DECODER)
    tables = [
        _layer_table(layers),
        derived_table([*derived().values()]),
        _speed_table(speeds),
        FUSED.shown_table("amdahl", _amdahl_rows(devices, real), case=_case),
        _real_table(real),
        _device_table(decoders),
    ]
    return Report(
        FUSED,
        [*judge(PRINTED_CLAIMS, [Printed()]), *measured, *judge(DEVICE_CLAIMS, devices)],
        tables,
        _figures(stages, speeds),
        [*left_out, *(() if decoders else notes)],
        values={"seeds": len(simulation.SPEED_SEEDS)},
        rows={"table-2-3": layers, "speeds": speeds},
        more={"doubts": doubtful_profiles(decoder.fused for decoder in decoders)},
    )


def _amdahl_rows(devices: Sequence[Layers], real: Sequence[RealSpeed]) -> list[Row]:
    """Return Amdahl's prediction of each speed-up beside the simulated or measured one (XP-07)."""
    columns = "source set beam output_share layer_ratio predicted predicted_product_left_alone"
    rows: list[Row] = [
        {"kind": "simulated", "end_to_end": 1.0 + device.over(beam, key, "maxi").mean} | record(row, columns)
        for device in devices
        for (beam, key), row in device.stages.items()
    ]
    rows += [
        {"source": RealDecoder.device, "kind": "measured", "set": speed.test_set, "beam": speed.beam}
        | {"output_share": speed.layer_share, "layer_ratio": speed.layer_s / speed.fused_layer_s}
        | {"predicted": predicted_speed_up(speed), "end_to_end": speed.ratio}
        | {"predicted_product_left_alone": end_to_end(speed.three_share, speed.three_s / speed.stages_s["fused"])}
        for speed in real
    ]
    return rows


def _speed_rows(decoders: Sequence[FusedDecoder], devices: Sequence[Layers]) -> list[Row]:
    names = {"half-empty": "topped up", "maxi half-empty": "maxi, topped up"}
    choices = {
        (decoder.device, decoder.beam, fused): decoder.fused_choice if fused else decoder.plain_choice
        for decoder in decoders
        for fused in (False, True)
    }
    rows: list[Row] = []
    for device in devices:
        for row in simulation.speed_rows(device.timed, device.decoders, simulation.plain_baseline):
            strategy, fused = row["strategy"], row["fused"]
            choice, what = choices[row["device"], row["beam"], fused], PRINTED_GAINS.get((strategy, fused))
            name = names.get(strategy, strategy) + (", fused" if fused else "")
            theirs = None if what is None else GAINS.row(what)[row["set"]]
            origin = {"how": choice.how, "fidelity": choice.fidelity, "against": STRATEGIES[strategy].baseline}
            rows.append(row | {"name": name, "published": theirs} | origin)
    return rows


def _case(row: Row) -> str:
    return case_name(row["beam"], row["set"])


def _layer_table(rows: Sequence[Row]) -> Table:
    def three_parts(row: Row) -> str:
        return " + ".join(f"{row[part]:.2f}" for part in ("bias_s", "softmax_s", "search_s")) if "bias_s" in row else ""

    def printed(key: str) -> Callable[[Row], str]:
        def small(row: Row) -> str:
            theirs = row.get(f"printed_{key}")
            return f"printed {signed(theirs, 1)}" if theirs is not None and abs(theirs - row[key]) > 0.06 else ""

        return small

    order = list(SETS)
    return FUSED.shown_table(
        "table-2-3",
        sorted(rows, key=lambda row: (order.index(row["set"]), row["beam"])),
        case=_case,
        three_parts=three_parts,
        printed_product=printed("product_percent"),
        printed_fused=printed("fused_percent"),
    )


def _speed_table(rows: Sequence[Row]) -> Table:
    def column(name: str) -> Column:
        def small(line: Mapping[str, Row]) -> str:
            row = line[name]
            theirs = "" if row["published"] is None else f", published up to {1 + row['published']:.2f}"
            return f"{row['sentences_per_s']:.4g} a second{theirs}"

        ends = f"{name}.relative_least", f"{name}.relative_greatest"
        return Column(name, f"{name}.relative", 3, interval=ends, small=small)

    names = ("mini, fused", "topped up", "topped up, fused", "maxi, fused", "maxi, topped up", "maxi, topped up, fused")
    note = "All sentences at hand: sentences a second with mini-batching, and speeds over it, with maxi-batching over that. "
    note += "Square brackets hold the least and the greatest over seeds."
    title = "Speed, fused and topped up (figures 3, 4, 9, 10)"
    return simulation.speed_table(title, rows, [*map(column, names)], note, "name")


def _real_table(speeds: Sequence[RealSpeed]) -> Table:
    stages = ("body", "product", "bias", "softmax", "search", "fused_product", "fused")
    keys = "set=test_set beam model vocab batch sentences plain_s ratio weights equal near_ties disagreements shares "
    rows = [record(speed, keys + " ".join(f"{stage}_s=stages_s.{stage}" for stage in stages)) for speed in speeds]
    return FUSED.shown_table(
        "real",
        rows,
        case=_case,
        decoder=lambda row: f"{row['model']}, {row['weights']} weights, {row['vocab']:,} words",
    )


def _device_table(decoders: Sequence[FusedDecoder]) -> Table:
    keys = "device box=profile.device.name model=profile.model.name vocab=profile.model.vocab beam batch=plain.batch "
    keys += "plain=plain_choice.short fused=fused_choice.short kind=fused.shown_kind exact=fused_choice.exact remarks"
    return FUSED.shown_table(
        "devices",
        [record(decoder, keys) for decoder in decoders],
        device_and_beam=lambda row: f"{row['device']}, beam {row['beam']}",
        model_and_vocab=lambda row: f"{row['model']}, {row['vocab']:,} words",
        all_remarks=lambda row: "; ".join(row["remarks"]),
    )


def _figures(stages: Sequence[Row], speeds: Sequence[Row]) -> list[Figure]:
    if not speeds:
        return []
    title, note = "Figures 1 and 5: shares of the time", "Without the fused kernel, maxi-batching."
    shares = {device: _share_chart(device, rows) for (device,), rows in grouped(stages, "source").items()}
    figures = [figure_of("figures-1-5", title, "Share of the time by part", shares, note=note)]
    by_set = grouped(speeds, "device", "set")
    for identifier, title, strategies in (
        ("figures-3-4", "Figures 3 and 4: speed with the fused kernel", ("mini",)),
        ("figures-9-10", "Figures 9 and 10: cumulative results", ("mini", "half-empty")),
    ):
        charts = {f"{SETS[key].name}, {device}": _speed_chart(rows, strategies) for (device, key), rows in by_set.items()}
        note = (
            f"All sentences at hand, over {strategies[0]}-batching without the fused kernel; whiskers hold the least and the "
        )
        note += "greatest over seeds. The paper's curves are not in its text."
        figures.append(figure_of(identifier, title, "Speed by beam", charts, note=note, before="speeds"))
    return figures


def _share_chart(device: str, rows: Sequence[Row]) -> Chart:
    names = [case_name(row["beam"], row["set"]) for row in rows]
    shares = ", ".join(f"{name} {100 * row['output_share']:.0f} %" for name, row in zip(names, rows, strict=True))
    reading = f"Output layer on {device}: {shares} (published: nearly 70 % of Europarl, more of OpenSubtitles)."
    series = {name: [100 * row[part] / row["total_s"] for row in rows] for part, name in simulation.PARTS.items()}
    return bars(names, "% of the time", reading, series, stacked=True)


def _speed_chart(rows: Sequence[Row], strategies: Sequence[str]) -> Chart:
    shown = [row for row in rows if row["strategy"] in strategies]
    gains = {row["name"]: row["published"] for row in shown if row["published"] is not None}
    theirs = ", ".join(f"{name} up to {1 + gained:.2f}" for name, gained in gains.items())
    reading = f"{SETS[rows[0]['set']].name}, {rows[0]['device']}."
    reading += f" Published: {theirs}." if theirs else ""
    return simulation.speed_chart(shown, f"speed over {strategies[0]}-batching", reading)
