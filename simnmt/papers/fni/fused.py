"""The fused output layer reproduced (`simnmt reproduce fused`): stages and speeds on each device, verdicts and figures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Annotated, Any

import typer

from simnmt.base.errors import InputError
from simnmt.papers.fni import fused_claims as layer
from simnmt.papers.fni import simulation
from simnmt.papers.fni.fused_claims import OUTPUT_LAYER, Layers, RealDecoder
from simnmt.papers.fni.simulation import (
    BEAMS,
    FUSED,
    SETS,
    Decoder,
    Row,
    case_name,
    chosen_profiles,
    doubtful_profiles,
    fused_decoders,
)
from simnmt.papers.kit.claims import Printed, judge
from simnmt.papers.kit.rendering import Report, derived_table, grouped, record

TIMED = ("mini", "half-empty", "maxi", "maxi half-empty")
"""The paper's baseline, its choice of top-up (half-empty), and both on top of maxi-batching."""
PRINTED_GAINS = {
    "mini, fused": "fused",
    "topped up": "topped up",
    "topped up, fused": "both",
    "maxi, topped up, fused": "both with maxi",
}
"""Rows of the printed gains by run."""


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
    known, left_out = fused_decoders(chosen_profiles(profile))
    real: list[dict[str, Any]] = []
    if measure is not None:
        # Imported here, so that a reproduction from profiles needs no torch. The real decoder runs first, so that an unreadable
        # model is refused before the simulation.
        from simnmt.papers.fni.real_decoder import fused_speeds

        real = fused_speeds(model or FUSED["model"], measure, BEAMS, progress=progress)
    devices = []
    for done, decoders in enumerate(groups := list(grouped(known, "device").values())):
        progress(done, len(groups))
        pairs = grouped(decoders, "beam").values()
        places = product(pairs, SETS)
        stages = {
            (plain.beam, key): [layer.stages(plain, fused, key, requests, seed) for seed in simulation.SEEDS]
            for (plain, fused), key in places
        }
        devices.append(Layers(decoders, simulation.speeds(decoders, TIMED, requests), requests, stages=stages))
    return report_of(devices, real, left_out)


def report_of(devices: Sequence[Layers], real: Sequence[Row], left_out: Sequence[str]) -> Report:
    """Return the paper's claims on fusing and our results; `left_out`: messages about the profiles that were passed over."""
    ours = [row for device in devices for row in device.stages.values()]
    layers = sorted([*OUTPUT_LAYER, *ours], key=lambda row: ([*SETS].index(row["set"]), row["beam"]))
    speeds = _speed_rows(devices)
    pairs = [pair for device in devices for pair in grouped(device.decoders, "beam").values()]
    notes = ["No profile at hand has a fused output layer: `simnmt calibrate --part decoder` measures it."]
    title = "Speed, fused and topped up (figures 3, 4, 9, 10)"
    return Report(
        FUSED,
        [
            *judge(layer.PRINTED_CLAIMS, [Printed()]),
            *judge(layer.REAL_CLAIMS, [RealDecoder(real)] if real else [], layer.NO_DECODER),
            *judge(layer.DEVICE_CLAIMS, devices),
        ],
        [
            FUSED.shown_table("table-2-3", layers, case=_case),
            derived_table([*layer.derived().values()]),
            simulation.speed_table(title, speeds, "it, with maxi-batching over that"),
            FUSED.shown_table("amdahl", _amdahl_rows(devices, real), case=_case),
            FUSED.shown_table("real", real, case=_case),
            FUSED.shown_table("devices", [_device_row(*pair) for pair in pairs]),
        ],
        [],
        [*left_out, *(() if devices else notes)],
        values={"seeds": len(simulation.SPEED_SEEDS)},
        rows={"table-2-3": [*OUTPUT_LAYER, *ours], "speeds": speeds},
        more={"doubts": doubtful_profiles(fused for _, fused in pairs)},
    )


def _case(row: Row) -> str:
    return case_name(row["beam"], row["set"])


def _amdahl_rows(devices: Sequence[Layers], real: Sequence[Row]) -> list[Row]:
    """Return Amdahl's prediction of each speed-up beside the simulated or measured one (XP-07)."""
    columns = "set beam output_share layer_ratio predicted predicted_product_left_alone"
    rows: list[Row] = [
        {"source": device.device, "kind": "simulated", "end_to_end": 1.0 + device.gain(beam, key, "maxi, fused", "maxi").mean}
        | record(row, columns)
        for device in devices
        for (beam, key), row in device.stages.items()
    ]
    measured = {"source": RealDecoder.device, "kind": "measured"}
    return rows + [measured | {"end_to_end": row["ratio"]} | record(row, columns) for row in real]


def _speed_rows(devices: Sequence[Layers]) -> list[Row]:
    choices = {
        (decoder.device, decoder.beam, decoder.fused): record(decoder, "how=choice.how fidelity=choice.fidelity")
        for device in devices
        for decoder in device.decoders
    }
    rows: list[Row] = []
    for row in simulation.speed_rows(devices, lambda run: "maxi" if run.startswith("maxi") else "mini"):
        what = PRINTED_GAINS.get(row["name"])
        theirs = None if what is None else layer.GAINS.row(what)[row["set"]]
        rows.append(row | {"published": theirs} | choices[row["device"], row["beam"], row["fused"]])
    return rows


def _device_row(plain: Decoder, fused: Decoder) -> Row:
    keys = "device box=profile.device.name model=profile.model.name vocab=profile.model.vocab beam batch kind=shown_kind"
    return record(fused, f"{keys} fused=choice.short exact=choice.exact") | record(plain, "plain=choice.short")
