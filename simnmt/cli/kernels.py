"""`simnmt kernels` and `simnmt kernels bench`: list the kernels, and measure them."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from simnmt.base.packages import named_if_missing
from simnmt.base.text_tables import format_table
from simnmt.cli.options import AsJson, option, print_result
from simnmt.cli.terminal import say

if TYPE_CHECKING:
    from simnmt.calibrate.kernel_bench import BenchReport, Result

app = typer.Typer(
    help="The kernels of the decoder: which are compiled here, and how fast they are.", invoke_without_command=True
)


@app.callback()
def kernels(context: typer.Context, as_json: AsJson = False) -> None:
    """List the kernels, and which vectors they are compiled for."""
    if context.invoked_subcommand is not None:
        if as_json:
            raise typer.BadParameter(f"give it after {context.invoked_subcommand}", param_hint="--json")
        return
    with named_if_missing("models"):
        from simnmt.kernels.registry import format_listing, listing

    kernel_list = listing()
    print_result(as_json, lambda: kernel_list, lambda: format_listing(kernel_list))


@app.command()
def bench(
    part: Annotated[str | None, option("NAME", "Measure one kernel; simnmt kernels lists them.")] = None,
    rounds: Annotated[int, option("N", "Rounds in which the contestants take turns, at least.", min=1)] = 15,
    threads: Annotated[int, option("T", "Threads of the output layer and of the baselines.", min=1)] = 1,
    as_json: AsJson = False,
) -> None:
    """Measure the kernels on this box, against what it can do at best and against named baselines; about two minutes.

    Leave the box alone meanwhile: contestants take turns, so their ratios bear some noise, but their times do not.

    Example: simnmt kernels bench --rounds 5
    """
    with named_if_missing("models"):
        from simnmt.calibrate.kernel_bench import bench as measure

    done = measure(part, rounds, threads, say=_print_on_terminal)
    print_result(as_json, lambda: asdict(done), lambda: _format_bench(done))


def _print_on_terminal(text: str) -> None:
    if sys.stderr.isatty():
        say(text)


def _format_bench(done: BenchReport) -> str:
    roofline = done.roofline
    lines = [
        f"kernels: {done.processor}, {done.threads} thread{'s' if done.threads > 1 else ''}",
        f"this box: copies {roofline.copy_bytes_per_s / 1e9:.1f} GB/s beyond its cache of {roofline.cache_bytes >> 20} MiB",
    ]
    header = ["kernel", "case", "baseline", "memory", "us", "times as fast", "asked", "of the roofline"]
    lines += ["", format_table(header, [_result_row(result) for result in done.results], 4)]
    judged = [result for result in done.results if result.reached is not None]
    if judged:
        missed = sum(not result.reached for result in judged)
        lines += ["", f"{len(judged) - missed} of {len(judged)} targets reached" + (": * marks the others" if missed else "")]
    for result in done.results:
        if result.error > result.error_bound:
            lines += [f"{result.kernel}, {result.case}: off by {result.error:.3g}, beyond its bound {result.error_bound:.3g}"]
    return "\n".join(lines)


def _result_row(result: Result) -> list[str]:
    asked = "" if result.target is None else f">= {result.target:g}{'' if result.reached else ' *'}"
    baseline = result.baseline if result.baseline_run == result.baseline else f"{result.baseline} ({result.baseline_run})"
    return [
        result.kernel, result.case, baseline, result.memory, f"{result.median_us:,.1f}", f"{result.ratio:.2f}",
        asked, f"{100 * result.roofline_share:.0f} %",
    ]  # fmt: skip
