"""`simnmt corpus fit` and `simnmt corpus table`."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from simnmt.workload.length_means import LengthMean
    from simnmt.workload.pair_error import PairErrorGrowth

app = typer.Typer(help="Length pairs of parallel text.", no_args_is_help=True)

Source = Annotated[
    Path,
    typer.Argument(metavar="SRC", help="Source text, a sentence a line; or, alone, a file of two columns or of JSON Lines."),
]
Target = Annotated[Path | None, typer.Argument(metavar="[TGT]", help="Target text; line i translates line i.")]
Keys = Annotated[
    str | None,
    typer.Option("--keys", metavar="SRC:TGT", help="The file is JSON Lines: keys of its source and target texts, e.g. de:en."),
]
Filter = Annotated[
    str,
    typer.Option(
        "--filter",
        metavar="NAME",
        help="Which pairs are dropped: cnmt, none, ratio, paracrawl; ratio:max_ratio=2,max_len=200,tgt_per_src=1.",
    ),
]
Unit = Annotated[
    str,
    typer.Option(
        "--unit",
        metavar="UNIT",
        help="What counts as a token: word, mixed (Han by character), char, sentencepiece:MODEL; SRC:TGT where they differ.",
    ),
]
ExpectSlope = Annotated[
    float | None,
    typer.Option(
        "--expect-slope",
        metavar="G",
        min=0.001,
        max=1000.0,
        help="Target per source tokens; warns where it looks the other way.",
    ),
]


@app.command()
def fit(
    src: Source,
    tgt: Target = None,
    keys: Keys = None,
    filter_name: Filter = "cnmt",
    unit: Unit = "word",
    expect_slope: ExpectSlope = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Fit target length over source length: the line that C-NMT predicts with, and how far pairs lie from it."""
    from simnmt.workload.corpus import read_corpus
    from simnmt.workload.counting import source_and_target
    from simnmt.workload.length_means import binned_means, means_by_source_length
    from simnmt.workload.length_regression import fit_lengths
    from simnmt.workload.pair_error import fit_pair_error

    src_unit, tgt_unit = source_and_target(unit)
    table, dropped = read_corpus(src, tgt, keys=_keys(keys), src_unit=src_unit, tgt_unit=tgt_unit, filter=filter_name)
    _warn(table, expect_slope)
    line = fit_lengths(table)
    growth = fit_pair_error(table, line.regression)
    if as_json:
        means = means_by_source_length(table, line.regression)
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
            "filter": dropped.filter,
            "src_unit": table.src_unit,
            "tgt_unit": table.tgt_unit,
            "by_src_len": [_by_source_length(mean) for mean in means],
            "pair_error": None if growth is None else asdict(growth),
        }
        print(json.dumps(found, indent=1, allow_nan=False))
        return
    units = f"{table.src_unit} -> {table.tgt_unit}"
    print(f"target length = {line.len_slope:.4f} x source length + {line.len_offset:.4f}  ({units})")
    print(f"of the pairs:                   R2 {_known(line.pairs_r2)}, MSE {line.pairs_mse:.4f} tokens^2")
    print(f"of the means per source length: R2 {_known(line.means_r2)}, MSE {line.means_mse:.4f} tokens^2 (weighted by pairs)")
    print(f"pairs: {dropped}")
    if line.remark:
        print(f"note: {line.remark}")
    print(f"\n{_figure(binned_means(table, line.regression))}\n\n{_growth(growth)}")


@app.command()
def table(
    src: Source,
    tgt: Target = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="CSV file to write.")] = Path("lengths.csv"),
    keys: Keys = None,
    filter_name: Filter = "cnmt",
    unit: Unit = "word",
    name: Annotated[str | None, typer.Option("--name", help="Name of the table; default: the files' names.")] = None,
    origin: Annotated[str | None, typer.Option("--origin", help="Where the text comes from and its licence.")] = None,
    expect_slope: ExpectSlope = None,
) -> None:
    """Count how often each pair of lengths occurs: all of a corpus that a scenario needs."""
    from simnmt.workload.corpus import read_corpus
    from simnmt.workload.counting import source_and_target
    from simnmt.workload.length_table import write_table

    src_unit, tgt_unit = source_and_target(unit)
    counts, dropped = read_corpus(
        src, tgt, keys=_keys(keys), src_unit=src_unit, tgt_unit=tgt_unit, filter=filter_name, name=name, origin=origin
    )
    _warn(counts, expect_slope)
    verb = "replaced" if os.path.lexists(out) else "wrote"
    write_table(out, counts)
    print(f"{verb} {out}: {len(counts.count):,} distinct pairs of lengths\npairs: {dropped}")


def _keys(keys: str | None) -> tuple[str, str] | None:
    if keys is None:
        return None
    src, colon, tgt = keys.partition(":")
    if not (src and colon and tgt):
        raise typer.BadParameter("give two keys with a colon between, e.g. de:en", param_hint="--keys")
    return src, tgt


def _warn(counts: Any, expect_slope: float | None) -> None:
    from simnmt.workload.language_order import order_warning

    warning = order_warning(counts, expect_slope)
    if warning:
        print(f"simnmt: warning: {warning}", file=sys.stderr)


def _by_source_length(mean: LengthMean) -> dict[str, float | None]:
    return {"src_len": mean.src_len_from} | {
        key: getattr(mean, key) for key in ("pairs", "mean_tgt_len", "sd_tgt_len", "line_tgt_len", "rmse_tgt_len")
    }


def _figure(means: list[LengthMean]) -> str:
    """Figure 3 of the paper as a table."""
    from simnmt.cli.tables import aligned

    rows = [
        [
            f"{mean.src_len_from}" + (f" to {mean.src_len_to}" if mean.src_len_to > mean.src_len_from else ""),
            f"{mean.pairs:,}",
            f"{mean.mean_tgt_len:.2f}",
            "-" if mean.sd_tgt_len is None else f"{mean.sd_tgt_len:.2f}",
            f"{mean.line_tgt_len:.2f}",
            f"{mean.rmse_tgt_len:.2f}",
        ]
        for mean in means
    ]
    return aligned(["source length", "pairs", "mean target", "deviation", "line", "error about it"], rows, 1)


def _growth(growth: PairErrorGrowth | None) -> str:
    """How the pair error grows, in words."""
    if growth is None:
        return "growth of the pair error with the source length N: not defined"
    slope = growth.linear_sd_per_src_token
    forms = {
        "linear": f"{growth.linear_sd_at_0:.2f} {'+-'[slope < 0]} {abs(slope):.4f} N",
        "power": f"{growth.power_sd_at_1:.2f} N^{growth.power_exponent:.2f}",
    }
    better = forms.pop(growth.better)
    (other,) = forms.values()
    told = f"deviation of a pair from the line: {better} tokens (next best: {other}), N being the source length"
    grows = "" if growth.log_likelihood_gain > 2.0 else "; no more likely than one deviation for all"
    return f"{told}; from {growth.pairs:,} pairs of {growth.src_lengths:,} source lengths{grows}"


def _known(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.5f}"
