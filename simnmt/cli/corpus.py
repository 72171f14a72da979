"""`simnmt corpus fit` and `simnmt corpus table`: length pairs of parallel text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simnmt.cli.options import AsJson, Force, Keys, argument, check_output, grouped, json_keys, option, print_json, print_result
from simnmt.cli.terminal import describe_output, warn

if TYPE_CHECKING:
    from simnmt.workload.length_table import LengthTable

app = typer.Typer(help="Length pairs of parallel text.", no_args_is_help=True)

_UNIT = "word, mixed (Han by character), char, sentencepiece:MODEL, tokenizers:FILE; SRC:TGT where they differ."
_FILTER = "Which pairs are dropped: cnmt, none, ratio; ratio:max_ratio=2,max_len=200,tgt_per_src=1."
Source = Annotated[Path, argument("SRC", "Source text, a sentence a line; or, alone, a file of two columns or of JSON Lines.")]
Target = Annotated[Path | None, argument("[TGT]", "Target text; line i translates line i.")]


@dataclass(frozen=True, slots=True)
class Counting:
    """How a text is counted."""

    keys: Keys = None
    filter_name: Annotated[str, option("NAME", _FILTER, "--filter")] = "cnmt"
    unit: Annotated[str, option("UNIT", f"What counts as a token: {_UNIT}")] = "word"

    def read(self, src: Path, tgt: Path | None, **labels: str | None) -> tuple[LengthTable, str, dict[str, Any]]:
        """Return the table, the dropped pairs in words, and the figures about both; warn if many pairs were dropped."""
        from simnmt.workload.corpus import dropped_warning, read_corpus
        from simnmt.workload.length_units import source_and_target

        src_unit, tgt_unit = source_and_target(self.unit)
        counting: dict[str, Any] = {"keys": json_keys(self.keys), "filter": self.filter_name, **labels}
        table, dropped = read_corpus(src, tgt, src_unit=src_unit, tgt_unit=tgt_unit, **counting)
        if warning := dropped_warning(table.filtered):
            warn(warning)
        figures = {key: getattr(table, key) for key in ("mean_src_len", "mean_tgt_len", "src_unit", "tgt_unit")}
        figures |= {"mean_ratio": table.mean_tgt_len / table.mean_src_len, **dropped.as_json()}
        return table, f"filter {dropped}", figures


@app.command()
@grouped
def fit(src: Source, *, tgt: Target = None, counting: Counting, as_json: AsJson = False) -> None:
    """Fit target length over source length: the line that C-NMT predicts with, and how far pairs lie from it.

    Example: simnmt corpus fit news.de news.en
    """
    from simnmt.workload.length_regression import fit_lengths, means_by_source_length

    table, dropped, figures = counting.read(src, tgt)
    line = fit_lengths(table)
    if as_json:
        figures |= {key: getattr(line, key) for key in ("len_slope", "len_offset", "pairs_r2", "means_r2")}
        figures |= {f"{key}_tokens2": getattr(line, key) for key in ("pairs_mse", "means_mse")}
        print_json(figures | {"by_src_len": means_by_source_length(table, line.regression)})
        return
    pairs_r2, means_r2 = ("not defined" if r2 is None else f"{r2:.5f}" for r2 in (line.pairs_r2, line.means_r2))
    ratio = f"(mean target over mean source tokens: {figures['mean_ratio']:.4f})"
    offset, units = f"{line.len_offset:+.4f}".replace("+", "+ ").replace("-", "- "), f"({table.src_unit} -> {table.tgt_unit})"
    print(f"target length = {line.len_slope:.4f} x source length {offset}  {units}")
    print(f"mean lengths: {table.mean_src_len:.2f} -> {table.mean_tgt_len:.2f} tokens  {ratio}")
    print(f"of the pairs:                   R2 {pairs_r2}, MSE {line.pairs_mse:.4f} tokens^2")
    print(f"of the means per source length: R2 {means_r2}, MSE {line.means_mse:.4f} tokens^2 (weighted by pairs)")
    print(dropped)


@app.command()
@grouped
def table(
    src: Source,
    *,
    tgt: Target = None,
    out: Annotated[Path, option("FILE", "CSV file to write.")] = Path("lengths.csv"),
    counting: Counting,
    name: Annotated[str | None, option("NAME", "Name of the table. [default: the files' names]")] = None,
    origin: Annotated[str | None, option("TEXT", "Where the text comes from and its licence.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Count how often each pair of lengths occurs: all of a corpus that a scenario needs.

    Example: simnmt corpus table news.de news.en --out lengths.csv
    """
    from simnmt.workload.length_table import write_table

    check_output(out, force, src, tgt)
    lengths, dropped, figures = counting.read(src, tgt, name=name, origin=origin)
    written = f"{describe_output(out)}: {len(lengths.count):,} distinct pairs of lengths\n{dropped}"
    write_table(out, lengths)
    print_result(as_json, lambda: {"file": str(out), "distinct": len(lengths.count), **figures}, lambda: written)
