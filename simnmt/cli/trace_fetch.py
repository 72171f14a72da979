"""`simnmt trace fetch`."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from simnmt.files import refuse_replacing


class ReplyName(str, Enum):
    """What a round of replies may be worth."""

    min = "min"
    mean = "mean"
    first = "first"


Reply = Annotated[ReplyName, typer.Option("--reply", help="What a round of replies is worth.")]


def fetch(
    measurement: Annotated[int, typer.Option("--measurement", metavar="ID", help="Of RIPE Atlas, a ping or a traceroute.")],
    probe: Annotated[int, typer.Option("--probe", metavar="ID", help="Whose results.")],
    start: Annotated[str, typer.Option("--start", metavar="DATE", help="2026-01-01, 2026-01-01T12:30 (UTC), or Unix seconds.")],
    stop: Annotated[str, typer.Option("--stop", metavar="DATE", help="Likewise.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="CSV file to write.")],
    cache: Annotated[
        Path | None, typer.Option("--cache", metavar="DIR", help="Keep the answer here; default: the user's folder for caches.")
    ] = None,
    api_key_file: Annotated[
        Path | None, typer.Option("--api-key-file", metavar="FILE", help="For a measurement that is not public.")
    ] = None,
    base_url: Annotated[str | None, typer.Option("--base-url", metavar="URL", help="Of another site with this API.")] = None,
    reply: Reply = ReplyName.min,
) -> None:
    """Fetch round-trip times from RIPE Atlas, as a series that a scenario reads."""
    from simnmt.network.recording.quantities import moment_s
    from simnmt.network.results_cache import Cache, usual_folder
    from simnmt.network.ripe_atlas_api import BASE_URL, Query, read_key
    from simnmt.network.ripe_atlas_api import fetch as fetch_results
    from simnmt.network.traces.how_to_read import HowToRead
    from simnmt.network.traces.summary import summarised
    from simnmt.network.traces.words import facts, title
    from simnmt.network.traces.writing import write_traces

    query = Query(measurement, probe, moment_s(start, "--start"), moment_s(stop, "--stop"), base_url or BASE_URL)
    refuse_replacing(out, api_key_file)
    key = None if api_key_file is None else read_key(api_key_file)
    kept_in = Cache(cache or usual_folder())
    fetched = fetch_results(query, kept_in, key=key, how=HowToRead(reply=reply.value))
    replaced = os.path.lexists(out)
    write_traces([fetched.trace], out, made="simnmt trace fetch", notes=fetched.notes)
    summary = summarised(fetched.trace)
    said = dict(facts(summary))
    print(f"{'replaced' if replaced else 'wrote'} {out}: {title(summary)}; {said['samples']}; lost: {said['lost']}")
    place = kept_in.files(query.url)[0]
    print(f"  {'from' if fetched.from_cache else 'kept in'} {place}, sha256 {fetched.kept.sha256[:16]}...")
    for note in (*fetched.said, *fetched.trace.said):
        print(f"  note: {note}")
