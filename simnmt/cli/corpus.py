"""`simnmt corpus fit` and `simnmt corpus table`: length pairs of parallel text."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simnmt.cli.options import AsJson, Force, Keys, argument, check_output, json_keys, option, print_json, print_result
from simnmt.cli.terminal import describe_output, warn

if TYPE_CHECKING:
    from simnmt.workload.length_diagnostics import LengthMean
    from simnmt.workload.length_table import LengthTable

app = typer.Typer(help="Length pairs of parallel text.", no_args_is_help=True)

Source = Annotated[
    Path,
    argument(
        "SRC",
        "Source text, a sentence a line; or, alone, a file of two columns or of JSON Lines.",
    ),
]
Target = Annotated[Path | None, argument("[TGT]", "Target text; line i translates line i.")]
Filter = Annotated[
    str,
    option(
        "NAME",
        "Which pairs are dropped: cnmt, none, ratio; ratio:max_ratio=2,max_len=200,tgt_per_src=1.",
        "--filter",
    ),
]
Unit = Annotated[
    str,
    option(
        "UNIT",
        "What counts as a token: word, mixed (Han by character), char, sentencepiece:MODEL, tokenizers:FILE; SRC:TGT where "
        "they differ.",
        "--unit",
    ),
]


@app.command()
def fit(
    src: Source,
    tgt: Target = None,
    keys: Keys = None,
    filter_name: Filter = "cnmt",
    unit: Unit = "word",
    as_json: AsJson = False,
) -> None:
    """Fit target length over source length: the line that C-NMT predicts with, and how far pairs lie from it.

    Example: simnmt corpus fit news.de news.en
    """
    from simnmt.workload.corpus import read_corpus
    from simnmt.workload.length_diagnostics import binned_means, fit_pair_error, means_by_source_length
    from simnmt.workload.length_regression import fit_lengths
    from simnmt.workload.length_units import source_and_target

    src_unit, tgt_unit = source_and_target(unit)
    table, dropped = read_corpus(src, tgt, keys=json_keys(keys), src_unit=src_unit, tgt_unit=tgt_unit, filter=filter_name)
    _warn_of_pairs(table)
    line = fit_lengths(table)
    growth = fit_pair_error(table, line.regression)
    if as_json:
        figures = line.as_json() | table.facts() | dropped.as_json()
        figures["by_src_len"] = [mean.as_json() for mean in means_by_source_length(table, line.regression)]
        figures["pair_error"] = None if growth is None else asdict(growth)
        print_json(figures)
        return
    units = f"{table.src_unit} -> {table.tgt_unit}"
    print(f"target length = {line.len_slope:.4f} x source length + {line.len_offset:.4f}  ({units})")
    mean_lengths = f"{table.mean_src_len:.2f} -> {table.mean_tgt_len:.2f} tokens"
    print(f"mean lengths: {mean_lengths}  (mean target over mean source tokens: {table.mean_ratio:.4f})")
    print(f"of the pairs:                   R2 {_format_known(line.pairs_r2)}, MSE {line.pairs_mse:.4f} tokens^2")
    r2 = _format_known(line.means_r2)
    print(f"of the means per source length: R2 {r2}, MSE {line.means_mse:.4f} tokens^2 (weighted by pairs)")
    print(f"pairs: {dropped}")
    if line.remark:
        print(f"note: {line.remark}")
    print(f"\n{_format_means(binned_means(table, line.regression))}\n")
    print(growth or "growth of the pair error with the source length N: not defined")


@app.command()
def table(
    src: Source,
    tgt: Target = None,
    out: Annotated[Path, option("FILE", "CSV file to write.")] = Path("lengths.csv"),
    keys: Keys = None,
    filter_name: Filter = "cnmt",
    unit: Unit = "word",
    name: Annotated[str | None, option("NAME", "Name of the table. [default: the files' names]")] = None,
    origin: Annotated[str | None, option("TEXT", "Where the text comes from and its licence.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Count how often each pair of lengths occurs: all of a corpus that a scenario needs.

    Example: simnmt corpus table news.de news.en --out lengths.csv
    """
    from simnmt.workload.corpus import read_corpus
    from simnmt.workload.length_table import write_table
    from simnmt.workload.length_units import model_files, source_and_target

    src_unit, tgt_unit = source_and_target(unit)
    check_output(out, force, src, tgt, *model_files(src_unit, tgt_unit))
    counts, dropped = read_corpus(
        src, tgt, keys=json_keys(keys), src_unit=src_unit, tgt_unit=tgt_unit, filter=filter_name, name=name, origin=origin
    )
    _warn_of_pairs(counts)
    written = f"{describe_output(out)}: {len(counts.count):,} distinct pairs of lengths\npairs: {dropped}"
    write_table(out, counts)
    facts = {"file": str(out), "distinct": len(counts.count)} | counts.facts() | dropped.as_json()
    print_result(as_json, lambda: facts, lambda: written)


def _warn_of_pairs(counts: LengthTable) -> None:
    from simnmt.workload.filters import dropped_warning

    if warning := dropped_warning(counts.filtered):
        warn(warning)


def _format_means(means: list[LengthMean]) -> str:
    """Format figure 3 of the paper as a table."""
    from simnmt.base.text_tables import format_table

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
    return format_table(["source length", "pairs", "mean target", "deviation", "line", "error about it"], rows, 1)


def _format_known(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.5f}"
