"""`simnmt corpus fit` and `simnmt corpus table`: length pairs of parallel text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simnmt.cli.options import AsJson, Force, Keys, argument, check_output, json_keys, option, print_json, print_result
from simnmt.cli.terminal import describe_output, warn

if TYPE_CHECKING:
    from simnmt.workload.corpus import Dropped
    from simnmt.workload.length_table import LengthTable

app = typer.Typer(help="Length pairs of parallel text.", no_args_is_help=True)

_SOURCE = "Source text, a sentence a line; or, alone, a file of two columns or of JSON Lines."
_FILTER = "Which pairs are dropped: cnmt, none, ratio; ratio:max_ratio=2,max_len=200,tgt_per_src=1."
_UNIT = (
    "What counts as a token: word, mixed (Han by character), char, sentencepiece:MODEL, tokenizers:FILE; SRC:TGT where "
    "they differ."
)
Source = Annotated[Path, argument("SRC", _SOURCE)]
Target = Annotated[Path | None, argument("[TGT]", "Target text; line i translates line i.")]
Filter = Annotated[str, option("NAME", _FILTER, "--filter")]
Unit = Annotated[str, option("UNIT", _UNIT, "--unit")]


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
    from simnmt.base.text_tables import format_table
    from simnmt.workload.length_regression import UPPER_EDGES, fit_lengths, means_by_source_length

    table, dropped = _counted(src, tgt, keys, filter_name, unit)
    line = fit_lengths(table)
    facts = _facts(table, dropped)
    if as_json:
        figures = {key: getattr(line, key) for key in ("len_slope", "len_offset", "pairs_r2", "means_r2")}
        errors = {"pairs_mse_tokens2": line.pairs_mse, "means_mse_tokens2": line.means_mse}
        by_src_len = means_by_source_length(table, line.regression)
        for row in by_src_len:
            del row["src_len_to"]
        print_json(figures | errors | facts | {"by_src_len": by_src_len})
        return
    units = f"{table.src_unit} -> {table.tgt_unit}"
    pairs_r2, means_r2 = ("not defined" if r2 is None else f"{r2:.5f}" for r2 in (line.pairs_r2, line.means_r2))
    ratio = f"(mean target over mean source tokens: {facts['mean_ratio']:.4f})"
    print(f"target length = {line.len_slope:.4f} x source length + {line.len_offset:.4f}  ({units})")
    print(f"mean lengths: {table.mean_src_len:.2f} -> {table.mean_tgt_len:.2f} tokens  {ratio}")
    print(f"of the pairs:                   R2 {pairs_r2}, MSE {line.pairs_mse:.4f} tokens^2")
    print(f"of the means per source length: R2 {means_r2}, MSE {line.means_mse:.4f} tokens^2 (weighted by pairs)")
    print(f"pairs: {dropped}")
    if line.remark:
        print(f"note: {line.remark}")
    rows = [
        [
            f"{row['src_len']}" + (f" to {row['src_len_to']}" if row["src_len_to"] > row["src_len"] else ""),
            f"{row['pairs']:,}",
            *("-" if (value := row[f"{key}_tgt_len"]) is None else f"{value:.2f}" for key in ("mean", "sd", "line", "rmse")),
        ]
        for row in means_by_source_length(table, line.regression, UPPER_EDGES)
    ]
    header = ["source length", "pairs", "mean target", "deviation", "line", "error about it"]
    print(f"\n{format_table(header, rows, 1)}")


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
    from simnmt.workload.length_table import write_table
    from simnmt.workload.length_units import model_files, source_and_target

    check_output(out, force, src, tgt, *model_files(*source_and_target(unit)))
    counts, dropped = _counted(src, tgt, keys, filter_name, unit, name=name, origin=origin)
    written = f"{describe_output(out)}: {len(counts.count):,} distinct pairs of lengths\npairs: {dropped}"
    write_table(out, counts)
    facts = {"file": str(out), "distinct": len(counts.count), **_facts(counts, dropped)}
    print_result(as_json, lambda: facts, lambda: written)


def _counted(
    src: Path, tgt: Path | None, keys: str | None, filter_name: str, unit: str, **labels: str | None
) -> tuple[LengthTable, Dropped]:
    from simnmt.workload.corpus import dropped_warning, read_corpus
    from simnmt.workload.length_units import source_and_target

    src_unit, tgt_unit = source_and_target(unit)
    counts, dropped = read_corpus(
        src, tgt, keys=json_keys(keys), src_unit=src_unit, tgt_unit=tgt_unit, filter=filter_name, **labels
    )
    if warning := dropped_warning(counts.filtered):
        warn(warning)
    return counts, dropped


def _facts(counts: LengthTable, dropped: Dropped) -> dict[str, Any]:
    facts = {key: getattr(counts, key) for key in ("mean_src_len", "mean_tgt_len", "src_unit", "tgt_unit")}
    return {**facts, "mean_ratio": counts.mean_tgt_len / counts.mean_src_len, **dropped.as_json()}
