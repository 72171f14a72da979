"""`simnmt trace synth`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simnmt.errors import InputError
from simnmt.files import refuse_replacing

if TYPE_CHECKING:
    from simnmt.network.synthesis.judgement import Judged

_DRAWS = range(1, 21)
_DECIMALS_MS = 6


def synth(
    like: Annotated[
        Path | None,
        typer.Option("--like", metavar="FILE", help="Fit a process to this measured RTT, in any form that import reads."),
    ] = None,
    params: Annotated[
        Path | None, typer.Option("--params", metavar="FILE", help="Take a process that was fitted before.")
    ] = None,
    hours: Annotated[
        float | None, typer.Option("--hours", metavar="H", help="Length to draw; default: that of the fit.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="CSV file to write what was drawn.")] = None,
    params_out: Annotated[
        Path | None, typer.Option("--params-out", metavar="FILE", help="JSON file to keep the process.")
    ] = None,
    unseen: Annotated[
        Path | None, typer.Option("--judge", metavar="FILE", help="Judge it by this series, not by halves.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="S", min=0, help="Same seed, same bytes.")] = 1,
    column: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="ROLE=NAME[:UNIT]", help="As for import, of the files read. May be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the judgement as JSON and nothing else.")] = False,
) -> None:
    """Draw a synthetic RTT series like a measured one, and say how like it is."""
    from simnmt.network.rtt_csv import rtt_csv_text
    from simnmt.network.synthesis.fit import fit
    from simnmt.network.synthesis.judgement import judge
    from simnmt.network.synthesis.process import check_duration, draw, process_text, read_process
    from simnmt.network.synthesis.words import title
    from simnmt.network.text_files import write_texts
    from simnmt.network.traces.how_to_read import HowToRead, column_choices
    from simnmt.network.traces.trace_file import read_rtt

    if (like is None) == (params is None):
        raise InputError("give either a series with --like or a process with --params")
    for written in (out, params_out):
        refuse_replacing(written, like, params, unseen)
    if out and params_out and os.path.realpath(out) == os.path.realpath(params_out):
        raise InputError("--out and --params-out name the same file", remedy="write to two")
    how = HowToRead(columns=column_choices(column or ()))
    seen = read_rtt(like, how) if like else None
    process = fit(seen) if seen else read_process(params or "")
    duration_s = process.lap_s if hours is None else hours * 3600
    check_duration(process, duration_s)
    judgement = judge(process, _DRAWS, seen, read_rtt(unseen, how) if unseen else None)
    said, texts = [], {}
    if params_out:
        said.append(f"{_verb(params_out)} {params_out}: the parameters of the process")
        texts[params_out] = process_text(process)
    if out:
        series = draw(process, duration_s, seed, out.stem)
        said.append(
            f"{_verb(out)} {out}: {len(series.rtt_s):,} samples, {series.duration_s / 3600:g} h, seed {seed}, none lost"
        )
        texts[out] = rtt_csv_text(series, decimals=_DECIMALS_MS)
    write_texts(texts)
    if as_json:
        found = {"process": process.model_dump(exclude_none=True), "judgement": [each.as_json() for each in judgement]}
        print(json.dumps(found, indent=1))
        return
    print("\n".join([title(process), *said]))
    if judgement:
        print(_table(judgement))


def _verb(path: Path) -> str:
    return "replaced" if os.path.lexists(path) else "wrote"


def _table(judgement: list[Judged]) -> str:
    from simnmt.cli.tables import aligned
    from simnmt.network.synthesis.judgement import LAG_1_TOLERANCE, QUANTILE_TOLERANCE

    rows = [
        [
            each.label,
            *(f"{1e3 * value:.2f}" for value in each.figures.quantiles_s),
            f"{each.figures.lag_1:.3f}",
            f"{each.held} of {each.draws}" if each.draws else "",
        ]
        for each in judgement
    ]
    within = f"quantiles within {QUANTILE_TOLERANCE:.0%} and lag-1 autocorrelation within {LAG_1_TOLERANCE:g}"
    meaning = f"alike: {within}, all at once, lost samples held at the value before"
    return f"\n{aligned(['', 'p50 ms', 'p95 ms', 'p99 ms', 'lag-1', 'alike'], rows, 1)}\n{meaning}; of draws the medians"
