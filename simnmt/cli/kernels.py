"""`simnmt kernels` and `simnmt kernels bench`: list the kernels, and measure them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simnmt.base.errors import InputError
from simnmt.cli.options import AsJson, option, print_result
from simnmt.cli.terminal import format_record

if TYPE_CHECKING:
    from simnmt.kernels.registry import Kernel

app = typer.Typer(
    help="The kernels of the decoder: which are compiled here, and how fast they are.", invoke_without_command=True
)
LEAST_S = 0.1
"""Least time for which each run is timed; a short one gets more rounds than requested."""


@app.callback()
def kernels(context: typer.Context, as_json: AsJson = False) -> None:
    """List the kernels, and which vectors they are compiled for."""
    if context.invoked_subcommand is not None:
        return
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
    """Measure the kernels on this box against named baselines; about two minutes.

    Leave the box alone meanwhile: contestants take turns, so their ratios bear some noise, but their times do not.

    Example: simnmt kernels bench --rounds 5
    """
    from simnmt.kernels.native_library import processor
    from simnmt.kernels.registry import kernel, registered
    from simnmt.nmt.devices import library_threads

    if threads > (cpus := os.cpu_count() or 1):
        raise InputError(f"{threads} threads: this box has {cpus} CPUs", remedy="give no more threads than CPUs")
    chosen = [kernel(part)] if part else registered().values()
    with library_threads(threads):
        rows = [row for one in chosen for row in _timed(one, rounds, threads)]
    done = {"processor": processor(), "threads": threads, "results": rows}
    print_result(as_json, lambda: done, lambda: format_record(done))


def _timed(kernel: Kernel, n: int, threads: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each case and baseline: our median time, and the median of the ratios of the rounds."""
    import numpy as np

    from simnmt.calibrate.harness import Case, by_round, ratio, rounds

    for case in kernel.cases(threads):
        ours, *baselines = case.runs
        frame = rounds(
            {name: Case(run, case.before.get(name), warm=True) for name, run in case.runs.items()}, n, least_s=LEAST_S
        )
        us = 1e6 * float(np.median(by_round(frame)[ours]))
        for baseline in baselines:
            speed_up = ratio(frame, baseline, ours)
            yield {"kernel": kernel.name, "case": case.text, "baseline": baseline, "us": us, "ratio": speed_up}
