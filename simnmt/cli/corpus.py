"""`simnmt corpus fit` and `simnmt corpus table`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Length pairs of parallel text.", no_args_is_help=True)

Source = Annotated[
    Path, typer.Argument(metavar="SRC", help="Source text, a sentence a line; or, alone, a file of two tab-separated columns.")
]
Target = Annotated[Path | None, typer.Argument(metavar="[TGT]", help="Target text; line i translates line i.")]
Filter = Annotated[str, typer.Option("--filter", metavar="NAME", help="Which pairs are dropped: cnmt, none.")]
Unit = Annotated[
    str,
    typer.Option(
        "--unit",
        metavar="UNIT",
        help="What counts as a token: word, mixed (Han by character), char; SRC:TGT where they differ.",
    ),
]


@app.command()
def fit(
    src: Source,
    tgt: Target = None,
    filter_name: Filter = "cnmt",
    unit: Unit = "word",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Fit target length over source length: the line that C-NMT predicts with."""
    from simnmt.workload.corpus import read_corpus
    from simnmt.workload.length_regression import fit_lengths

    src_unit, tgt_unit = _units(unit)
    table, dropped = read_corpus(src, tgt, src_unit=src_unit, tgt_unit=tgt_unit, filter=filter_name)
    line = fit_lengths(table)
    found = {
        "len_slope": line.len_slope,
        "len_offset": line.len_offset,
        "pairs_r2": line.pairs_r2,
        "pairs_mse_tokens2": line.pairs_mse,
        "means_r2": line.means_r2,
        "means_mse_tokens2": line.means_mse,
        "means_r2_unweighted": line.means_r2_unweighted,
        "means_mse_unweighted_tokens2": line.means_mse_unweighted,
        "mean_src_len": table.mean_src_len,
        "mean_tgt_len": table.mean_tgt_len,
        "pairs_read": dropped.pairs_read,
        "pairs_dropped": dropped.pairs_dropped,
        "pairs_dropped_by": dict(dropped.rejects),
        "pairs_kept": dropped.pairs_kept,
        "filter": filter_name,
        "src_unit": src_unit,
        "tgt_unit": tgt_unit,
    }
    if as_json:
        print(json.dumps(found, indent=1))
        return
    print(f"target length = {line.len_slope:.4f} x source length + {line.len_offset:.4f}  ({src_unit} -> {tgt_unit})")
    print(f"of the pairs:                   R2 {_known(line.pairs_r2)}, MSE {line.pairs_mse:.4f} tokens^2")
    print(f"of the means per source length: R2 {_known(line.means_r2)}, MSE {line.means_mse:.4f} tokens^2 (weighted by pairs)")
    print(f"pairs: {dropped}")
    if line.remark:
        print(f"note: {line.remark}")
    if 2 * dropped.pairs_dropped > dropped.pairs_read:
        print("note: most pairs were dropped; does --unit fit both languages (Chinese: word:mixed), and do lines pair up?")


@app.command()
def table(
    src: Source,
    tgt: Target = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="CSV file to write.")] = Path("lengths.csv"),
    filter_name: Filter = "cnmt",
    unit: Unit = "word",
    name: Annotated[str | None, typer.Option("--name", help="Name of the table; default: the files' names.")] = None,
    origin: Annotated[str | None, typer.Option("--origin", help="Where the text comes from and its licence.")] = None,
) -> None:
    """Count how often each pair of lengths occurs: all of a corpus that a scenario needs."""
    from simnmt.workload.corpus import read_corpus
    from simnmt.workload.length_table import write_table

    src_unit, tgt_unit = _units(unit)
    counts, dropped = read_corpus(src, tgt, src_unit=src_unit, tgt_unit=tgt_unit, filter=filter_name, name=name, origin=origin)
    verb = "replaced" if os.path.lexists(out) else "wrote"
    write_table(out, counts)
    print(f"{verb} {out}: {len(counts.count):,} distinct pairs of lengths\npairs: {dropped}")


def _units(unit: str) -> tuple[str, str]:
    src, _, tgt = unit.partition(":")
    return src, tgt or src


def _known(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.5f}"
