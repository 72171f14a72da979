"""`simnmt corpus`: length pairs of parallel text, and what a cache of its translations would save."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simnmt.base.suggestions import format_list
from simnmt.base.text_tables import format_pairs
from simnmt.cli.options import (
    AsJson,
    Force,
    Keys,
    Page,
    argument,
    check_output,
    grouped,
    json_keys,
    option,
    print_json,
    print_page,
    print_result,
    time_option,
)
from simnmt.cli.terminal import describe_output, warn

if TYPE_CHECKING:
    from simnmt.workload.length_table import LengthTable

app = typer.Typer(help="Length pairs of parallel text, and its repeats.", no_args_is_help=True)

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

    def read(self, src: Path, tgt: Path | None, **labels: Any) -> tuple[LengthTable, str, dict[str, Any]]:
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
    """Fit target length over source length: the line that C-NMT predicts with, how far pairs lie from it, and repeated lines.

    Example: simnmt corpus fit news.de news.en
    """
    import numpy as np

    from simnmt.results.number_text import percent
    from simnmt.workload.length_regression import fit_lengths, means_by_source_length
    from simnmt.workload.reuse import Reuse

    hashes = array("q")
    table, dropped, figures = counting.read(src, tgt, source_hashes=hashes)
    line, reuse = fit_lengths(table), Reuse.of(np.frombuffer(hashes, np.int64))
    hit_rates = reuse.hit_rates()
    if as_json:
        figures |= {key: getattr(line, key) for key in ("len_slope", "len_offset", "pairs_r2", "means_r2")}
        figures |= {f"{key}_tokens2": getattr(line, key) for key in ("pairs_mse", "means_mse")}
        figures |= {"repeated_share": reuse.repeated_share, "hit_rates": hit_rates}
        print_json(figures | {"by_src_len": means_by_source_length(table, line.regression)})
        return
    pairs_r2, means_r2 = ("not defined" if r2 is None else f"{r2:.5f}" for r2 in (line.pairs_r2, line.means_r2))
    ratio = f"(mean target over mean source tokens: {figures['mean_ratio']:.4f})"
    offset, units = f"{line.len_offset:+.4f}".replace("+", "+ ").replace("-", "- "), f"({table.src_unit} -> {table.tgt_unit})"
    print(f"target length = {line.len_slope:.4f} x source length {offset}  {units}")
    print(f"mean lengths: {table.mean_src_len:.2f} -> {table.mean_tgt_len:.2f} tokens  {ratio}")
    print(f"of the pairs:                   R2 {pairs_r2}, MSE {line.pairs_mse:.4f} tokens^2")
    print(f"of the means per source length: R2 {means_r2}, MSE {line.means_mse:.4f} tokens^2 (weighted by pairs)")
    print(f"{percent(reuse.repeated_share)} of the source lines repeat an earlier one")
    sizes = [row for row in hit_rates if row["entries"] in (100, 1_000, 10_000, 100_000, 1_000_000)]
    if sizes and reuse.repeated_share:
        hits = format_list([f"{percent(row['share'])} with {row['entries']:,} entries" for row in sizes])
        print(f"a least-recently-used cache would answer {hits}")
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


@app.command()
def cache(
    source: Annotated[Path | None, argument("[TEXT|LOG]", "Text, a request a line; or a log with texts or hashes.")] = None,
    rate: Annotated[float | None, option("R", "Mean requests per second. [default: the log's]")] = None,
    ttl: Annotated[float | None, time_option("Lifetime of an entry once stored, such as 1d. [default: for ever]")] = None,
    entries: Annotated[int | None, option("N", "Size to answer for, beside a series of sizes.", min=1)] = None,
    zipf: Annotated[float | None, option("S", "In place of a text: Zipf's law of this exponent, 0 to 20.")] = None,
    over: Annotated[int | None, option("N", "Different texts of Zipf's law.", min=1, max=10_000_000)] = None,
    page: Page = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Show what a cache of translations would save, by its size and the lifetime of its entries.

    Example: simnmt corpus cache news.de --rate 20 --ttl 1d --page cache.html
    """
    from simnmt.report.cache_page import cache_facts, cache_table, render_savings
    from simnmt.workload.cache_savings import cache_savings, draw_requested_texts, read_requested_texts

    if (source is None) == (zipf is None) or (zipf is None) != (over is None):
        raise typer.BadParameter("give a text or a log, or both --zipf and --over", param_hint="TEXT|LOG")
    if zipf is not None and not 0.0 <= zipf <= 20.0:
        raise typer.BadParameter("give an exponent from 0 to 20", param_hint="--zipf")
    if rate is not None and not 0.0 < rate <= 1e9:
        raise typer.BadParameter("give requests per second above 0, 1e9 at most", param_hint="--rate")
    check_output(page, force, source)
    if source is not None:
        texts = read_requested_texts(source)
    else:
        assert zipf is not None and over is not None
        texts = draw_requested_texts(zipf, over)
    savings = cache_savings(texts, rate, ttl)

    def text() -> str:
        return f"{texts.name}:\n{format_pairs(cache_facts(savings, entries), '  ')}\n\n{cache_table(savings).to_text()}"

    print_result(as_json, lambda: savings.document(entries), text)
    print_page(page, as_json, lambda: render_savings(savings, entries))
