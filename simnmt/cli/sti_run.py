"""`simnmt sti run`: a plan executed for real, turn after turn."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from simnmt.cli.terminal import warn


def run(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Folder that simnmt sti shard wrote.")],
    deadline_ms: Annotated[float, typer.Option("--deadline-ms", metavar="T", help="Within which a turn is to be done.")],
    preload_mb: Annotated[
        float, typer.Option("--preload-mb", metavar="S", help="What may be kept in memory between engagements; 0 for nothing.")
    ],
    cache_mb: Annotated[
        float | None, typer.Option("--cache-mb", metavar="S", help="What may be kept within the engagement [as --preload-mb].")
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option("--profile", metavar="FILE", help="What simnmt sti profile measured [measured now, briefly]."),
    ] = None,
    length: Annotated[
        int | None, typer.Option("--length", metavar="L", min=1, help="Padded tokens [the profile's greatest; without it, 16].")
    ] = None,
    pace_mb: Annotated[
        float | None, typer.Option("--pace-mb", metavar="MB/S", help="Hold reads to a slower storage [as the profile's were].")
    ] = None,
    turns: Annotated[int, typer.Option("--turns", metavar="K", min=1, max=1000, help="Of the engagement [3].")] = 3,
    cold: Annotated[
        bool, typer.Option("--cold", help="The first turn finds an empty buffer: the system took the memory.")
    ] = False,
    fill: Annotated[
        bool, typer.Option("--fill", help="Beyond the paper: let the pipeline wait as long as the deadline allows.")
    ] = False,
    text: Annotated[
        list[str] | None, typer.Option("--text", metavar="TEXT", help="To classify; once for each turn, the last one repeats.")
    ] = None,
    task: Annotated[Path | None, typer.Option("--task", metavar="FILE.tsv", help="Its first texts are the turns'.")] = None,
    threads: Annotated[
        int, typer.Option("--threads", metavar="T", min=1, help="That compute, beside the one that reads [1].")
    ] = 1,
    compare: Annotated[
        bool, typer.Option("--compare", help="Then run Load&Exec, StdPL and PreloadModel too, each once.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in SI units and nothing else.")] = False,
) -> None:
    """Stream a model from its store: plan each turn of an engagement, execute it, and set what it took beside the plan.

    Reads find the store's file out of this system's memory. Without a text, tokens are drawn.
    """
    from simnmt.cli.amounts import in_bytes, in_seconds
    from simnmt.errors import InputError
    from simnmt.nmt.errors import need

    deadline_s, preload_bytes = in_seconds("--deadline-ms", deadline_ms), in_bytes("--preload-mb", preload_mb)
    cache_bytes = None if cache_mb is None else in_bytes("--cache-mb", cache_mb)
    if cache_bytes is not None and cache_bytes < preload_bytes:
        raise InputError(f"--cache-mb {cache_mb:g}: less than --preload-mb {preload_mb:g}", remedy="give as much or more")
    if threads > (os.cpu_count() or 1):
        raise InputError(f"--threads {threads}: this box has {os.cpu_count() or 1} CPUs", remedy="give no more")
    need("torch")
    from simnmt.calibrate import conditions
    from simnmt.calibrate.box import describe
    from simnmt.cli.sti_run_source import costs, texts_of
    from simnmt.cli.sti_run_told import document, told
    from simnmt.elastic.elastic_encoder import ElasticEncoder
    from simnmt.elastic.pipeline.comparing import rivals
    from simnmt.elastic.pipeline.inputs import inputs_of
    from simnmt.elastic.pipeline.turns import Engaged, engage
    from simnmt.elastic.store import ShardStore

    texts = texts_of(text, task, turns)
    box = describe(libraries=False)
    before = conditions.state(box)
    with ShardStore.open(store) as opened:
        encoder = ElasticEncoder(opened.configuration, opened.resident())
        source = costs(opened, encoder, profile, length, None if pace_mb is None else 1e6 * pace_mb, threads)
        inputs = inputs_of(opened, texts, source.length, turns)
        engaged = Engaged(
            deadline_s=deadline_s,
            preload_bytes=preload_bytes,
            cache_bytes=cache_bytes,
            length=source.length,
            cold=cold,
            pace_bytes_per_s=source.pace_bytes_per_s,
            threads=threads,
            fills_deadline=fill,
        )
        done = list(engage(opened, encoder, source.cost, engaged, inputs))
        others = list(rivals(opened, encoder, source.cost, engaged, *inputs[0])) if compare else []
        warnings = [*source.warnings, *conditions.busy_warnings([before, conditions.state(box)], "the run")]
        for warning in warnings:
            warn(warning)
        print(
            json.dumps(document(opened, source, engaged, done, others) | {"warnings": warnings}, indent=1, allow_nan=False)
            if as_json
            else told(opened, source, engaged, done, others)
        )
