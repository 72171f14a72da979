"""`simnmt live stream-server`: a model behind LibreTranslate's API that is streamed from a shard store by its plan."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Annotated

import typer

from simnmt.base.errors import InputError
from simnmt.base.packages import named_if_missing
from simnmt.cli import live_serve
from simnmt.cli.options import (
    AllowCode,
    AsJson,
    Overrides,
    argument,
    flag,
    given,
    option,
    parse_bytes,
    parse_duration,
    parse_rate,
)
from simnmt.cli.terminal import note, warn

PLANNING = (
    "profile",
    "deadline_s",
    "preload_bytes",
    "cache_bytes",
    "length",
    "pace",
    "fill",
    "engagement_gap",
    "reclaimed_after",
)
"""Options of the plan, which a scenario states itself."""


def stream_server(
    context: typer.Context,
    store: Annotated[Path, argument("STORE", "Folder that simnmt sti shard wrote.")],
    scenario: Annotated[
        str | None, argument("[SCENARIO|RUN_DIR]", "Stream as a device of it does; in place of the options of the plan.")
    ] = None,
    device: Annotated[str | None, option("NAME", "Device of the scenario. [default: the last]")] = None,
    profile: Annotated[
        str | None, option("FILE|@NAME", "Profile that simnmt sti profile wrote.", "--profile", group="Plan")
    ] = None,
    deadline_s: Annotated[
        float | None, option("TIME", "Deadline of the plan, such as 200ms.", "--deadline", parser=parse_duration)
    ] = None,
    preload_bytes: Annotated[
        int | None, option("SIZE", "Memory for shards between engagements, such as 1MB.", "--preload", parser=parse_bytes)
    ] = None,
    cache_bytes: Annotated[
        int | None,
        option("SIZE", "Memory for shards within an engagement. [default: as --preload]", "--cache", parser=parse_bytes),
    ] = None,
    length: Annotated[int | None, option("L", "Padded tokens of the plan. [default: the profile's greatest]", min=1)] = None,
    pace: Annotated[
        float | None,
        option("RATE", "Must be that of the profile's reads. [default: as the profile's reads]", parser=parse_rate),
    ] = None,
    fill: Annotated[bool, flag("--fill", "Beyond the paper: let the pipeline wait as long as the deadline allows.")] = False,
    engagement_gap: Annotated[
        float, option("TIME", "Idle time that ends an engagement.", parser=parse_duration, show_default=False)
    ] = 30.0,
    reclaimed_after: Annotated[
        float, option("TIME", "Idle time after which all memory is freed.", parser=parse_duration, show_default=False)
    ] = 300.0,
    threads: live_serve.EngineThreads = None,
    cpus: live_serve.Cpus = None,
    source: live_serve.Source = "de",
    target: live_serve.TargetLanguage = "en",
    listen: live_serve.Listen = "127.0.0.1:5001",
    token_file: live_serve.TokenFile = None,
    tls_cert: live_serve.TlsCert = None,
    tls_key: live_serve.TlsKey = None,
    behind_proxy: live_serve.BehindProxy = False,
    allow_origin: live_serve.AllowOrigin = "",
    max_waiting: live_serve.MaxWaiting = 256,
    max_texts: live_serve.MaxTexts = 100,
    max_body: live_serve.MaxBody = 1_000_000,
    answer_within: Annotated[
        float, option("TIME", "Longest time of a request (504).", "--answer-within", parser=parse_duration, show_default=False)
    ] = 30.0,
    connections: live_serve.Connections = 512,
    drain: live_serve.Drain = 30.0,
    log: live_serve.Log = None,
    overrides: Overrides = None,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Serve a classifier that is streamed from its store, one request after another, until Ctrl-C or SIGTERM.

    Example: simnmt live stream-server store --profile box.json --deadline 200ms --preload 1MB
    """
    with named_if_missing("live"):
        from simnmt.live.deployment import settings_of, streamed_engine, target_of
        from simnmt.live.server import LiveServer, ServerSettings
        from simnmt.live.streamed_settings import streamed_settings

    params = context.params | {"deadline": answer_within, "forced_lengths": True}
    front, access, limits = live_serve.service_settings(params)
    if scenario is not None:
        if given(context, PLANNING):
            raise InputError("a scenario, and options of the plan", remedy="give one of them, or --set KEY=VALUE")
        unit = live_serve.scenario_unit(scenario, overrides or (), allow_code=allow_code)
        streamed = settings_of(target_of(unit, device or unit.case.targets[-1].device))
    else:
        if given(context, ("device", "overrides", "allow_code")):
            what = "--device, --set or --allow-code without a scenario"
            raise InputError(what, remedy="name the scenario after the store")
        if profile is None or deadline_s is None or preload_bytes is None:
            remedy = "give --profile, --deadline and --preload, or a scenario"
            raise InputError("nothing to plan the streaming with", remedy=remedy)
        if cache_bytes is not None and cache_bytes < preload_bytes:
            what = f"--cache of {cache_bytes:,} bytes: less than --preload of {preload_bytes:,}"
            raise InputError(what, remedy="give as much or more")
        from simnmt.cli.sti_costs import check_pace, read_costs

        costs = read_costs(profile)
        check_pace(costs, pace)
        for warning in costs.warnings:
            warn(warning)
        streamed = streamed_settings(
            costs.cost,
            engagement_gap_s=engagement_gap,
            reclaimed_after_s=reclaimed_after or inf,
            length=length,
            deadline_s=deadline_s,
            preload_bytes=preload_bytes,
            cache_bytes=cache_bytes,
            pace_bytes_per_s=costs.pace_bytes_per_s,
            fills_deadline=fill,
            fingerprint=costs.fingerprint,
        )
    engine = streamed_engine(store, streamed, threads=threads, cpus=tuple(cpus or ()))
    with live_serve.log_file(log) as file:
        settings = ServerSettings(engine, front, access, limits)
        live_serve.serve(lambda: LiveServer(settings, file, note), as_json)
