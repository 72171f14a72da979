"""`simnmt calibrate` and `simnmt doctor`: measure this box, and report what can be measured on it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simnmt.cli.terminal import warn

if TYPE_CHECKING:
    from simnmt.calibrate.calibration import Calibrated
    from simnmt.calibrate.measurement import Listener

LOG_INTERVAL_S = 15.0
"""Between two lines of progress where there is no terminal."""


class Backend(str, Enum):
    """What computes."""

    torch = "torch"
    ctranslate2 = "ctranslate2"
    sharp = "sharp"


def calibrate(
    model: Annotated[
        str,
        typer.Option(
            "--model",
            metavar="NAME|PATH",
            help="bilstm, gru, gru-512, marian, sharp, sharp-s1 to -s7, an architecture file, or a model's folder.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Device profile to write; an older one is replaced.")],
    backend: Annotated[Backend, typer.Option("--backend", help="What computes.")] = Backend.torch,
    device: Annotated[str, typer.Option("--device", metavar="cpu|cuda", help="Where it computes.")] = "cpu",
    threads: Annotated[
        int | None, typer.Option("--threads", metavar="T", help="CPU threads; default: one for each core.")
    ] = None,
    compute_type: Annotated[
        str | None,
        typer.Option(
            "--compute-type",
            metavar="TYPE",
            help="float32, bfloat16, float16, float16_weights, int8 or int16, as doctor shows them; default: float32.",
        ),
    ] = None,
    beam: Annotated[int, typer.Option("--beam", metavar="B", help="Hypotheses kept; 1 is greedy.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Six corner cells, few batch sizes: a minute or two.")] = False,
    paper: Annotated[
        bool, typer.Option("--paper", help="As the C-NMT paper: 10,000 single inferences with the lengths of a corpus.")
    ] = False,
    lengths: Annotated[str, typer.Option("--lengths", metavar="@NAME|FILE", help="Length table for --paper.")] = "@de-en-news",
    inferences: Annotated[int, typer.Option("--inferences", metavar="N", help="Inferences of --paper.")] = 10_000,
    max_batch: Annotated[
        int | None,
        typer.Option("--max-batch", metavar="N", help="Largest batch of steps and encoders; default: 64, with --quick 16."),
    ] = None,
    max_src_len: Annotated[int, typer.Option("--max-src-len", metavar="N", help="Longest source of the grid, tokens.")] = 100,
    max_tgt_len: Annotated[int, typer.Option("--max-tgt-len", metavar="M", help="Longest target of the grid, tokens.")] = 100,
    only: Annotated[
        str | None,
        typer.Option(
            "--only", metavar="PARTS", help="Of execution,step,decoder,disk,energy,overheads; without execution, completes OUT."
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            "--text",
            metavar="FILE",
            help="Sentences, one a line: of a trained model, how far a beam runs on, what --vocabulary or sharp decoders say.",
        ),
    ] = None,
    vocabulary: Annotated[
        list[str] | None,
        typer.Option(
            "--vocabulary",
            metavar="BUNDLE",
            help="Clusters or candidate lists of simnmt vocab build, held against all; repeat.",
        ),
    ] = None,
    direction: Annotated[
        str | None, typer.Option("--direction", metavar="NAME", help="Which clusters of a bundle with several.")
    ] = None,
    disk_pace: Annotated[
        str | None,
        typer.Option(
            "--disk-pace", metavar="RATE", help="Read no faster, as a slower flash: 200MB/s; default: as fast as it goes."
        ),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            "--unit",
            metavar="UNIT",
            help="What a token is; default: the folder's tokeniser; else word (bilstm, gru) or subword.",
        ),
    ] = None,
    src_unit: Annotated[str | None, typer.Option("--src-unit", metavar="UNIT", help="As --unit, of the source alone.")] = None,
    tgt_unit: Annotated[str | None, typer.Option("--tgt-unit", metavar="UNIT", help="As --unit, of the target alone.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the profile; default: the file's.")] = None,
    device_name: Annotated[
        str | None, typer.Option("--device-name", help="Name of the box; default: its processor and the threads.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="S", min=0, help="Of order, lengths, tokens and weights.")] = 0,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="PAGE", help="HTML page to write; default: beside the profile.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the profile and the warnings as JSON and nothing else.")
    ] = False,
) -> None:
    """Measure a translation model on this box: its device profile, with fit and held-out error.

    Interrupted, it keeps what it has; the same command goes on from there.
    """
    if quick and paper:
        raise typer.BadParameter("choose one of --quick and --paper", param_hint="--quick")
    from simnmt.calibrate.calibration import calibrate as measure
    from simnmt.calibrate.preconditions import profile_there, refuse_unfit_page
    from simnmt.calibrate.settings import PARTS, Settings, parse_pace, parse_parts

    settings = Settings(
        model=model,
        backend=backend.value,
        device=device,
        threads=threads,
        compute_type=compute_type,
        beam=beam,
        mode="quick" if quick else "paper" if paper else "full",
        parts=PARTS if only is None else parse_parts(only),
        max_batch=max_batch,
        max_src_len=max_src_len,
        max_tgt_len=max_tgt_len,
        lengths=lengths,
        inferences=inferences,
        src_unit=src_unit or unit,
        tgt_unit=tgt_unit or unit,
        text=text,
        vocabulary=tuple(vocabulary or ()),
        direction=direction,
        disk_bytes_per_s=None if disk_pace is None else parse_pace(disk_pace),
        seed=seed,
    )
    profile_there(out, settings)
    page = plot or out.parent / f"{out.stem}.html"
    refuse_unfit_page(page, out, settings)
    with _listener() as listener:
        done = measure(settings, out, name=name, device_name=device_name, listener=listener)
    for warning in done.warnings:
        warn(warning)
    # Before the page: what went wrong with it would hide what hours of measuring came to.
    if as_json:
        print(json.dumps({"profile": done.profile.model_dump(mode="json"), "warnings": done.warnings}, indent=1))
    else:
        print(_format_profile(done))
        print(f"{'replaced' if done.replaced else 'wrote'} {out}")
    _write_page(page, done)
    if not as_json:
        print(f"page: {page}")


@contextmanager
def _listener() -> Iterator[Listener]:
    """A bar with the time left on a terminal, lines now and then elsewhere; both on standard error."""
    if not sys.stderr.isatty():
        yield _LogLines()
        return
    from simnmt.cli.progress import time_bar

    with time_bar() as listener:
        yield listener


class _LogLines:
    """Progress for a log."""

    def __init__(self) -> None:
        self._said_s = time.monotonic()

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def measured(self, part: str, done_s: float, left_s: float) -> None:
        if time.monotonic() - self._said_s >= LOG_INTERVAL_S:
            self._said_s = time.monotonic()
            self.say(f"{part}: measured {done_s:.0f} s, about {left_s:.0f} s left")


def _write_page(page: Path, done: Calibrated) -> None:
    from simnmt.report.profile_page import write_profile_page

    write_profile_page(page, [done.profile])


def _format_profile(done: Calibrated) -> str:
    """Return the main figures of the profile as text, in milliseconds and percent."""
    profile = done.profile
    plane, quality = profile.plane, profile.execution.fit
    engine = profile.engine
    assert engine is not None
    weights = "random weights" if engine.weights == "random" else "a checkpoint's weights"
    lines = [
        f"{profile.name}: {profile.model.name} on {profile.device.name}, {engine.backend} {engine.compute_type}, {weights}",
        f"execution, {profile.execution.kind}: {1e3 * plane.s_per_src_token:.3f} ms per source token, "
        f"{1e3 * plane.s_per_tgt_token:.3f} ms per target token, {1e3 * plane.s_fixed:.2f} ms fixed",
        f"  R2 {_format_number(quality.r2)}, of the means per target length {_format_number(quality.r2_of_means_per_tgt_len)}; "
        f"held-out error {_format_percent(quality.heldout_error)}"
        + (f" ({quality.heldout_how})" if quality.heldout_how else "")
        + f"; residual {100 * profile.execution.residual_relative_sd:.1f} %",
    ]
    six = profile.execution.fit.heldout_error_six_cells
    if six is not None:
        lines.append(f"  six corner cells alone, judged on all others: {_format_percent(six)}")
    for name, block in (("decode step", profile.step), ("encoder", profile.encoder)):
        if block is not None:
            batches = f"batch {block.batch[0]} to {block.batch[-1]}"
            lines.append(f"{name}, {batches}: {block.form}, held-out error {_format_percent(block.heldout_error)}")
    if profile.decoder is not None:
        measured = [settings.describe() for settings in profile.decoder.measured]
        variants = f"{len(measured)} variants" if len(measured) > 4 else "; ".join(measured)
        batches = ", ".join(map(str, profile.decoder.batches))
        lines.append(f"decoder, batch {batches}: {variants} (simnmt profile inspect tells what each takes)")
    lines += _format_other_blocks(profile)
    return "\n".join(lines)


def _format_other_blocks(profile: Any) -> list[str]:
    lines = []
    decision = profile.overheads.decision_s if profile.overheads else None
    if decision is not None and decision.value is not None:
        share = decision.value / float(profile.plane.seconds(20, 20))
        decision_cost = f"{1e6 * decision.value:.1f} us, {share:.1e} of a sentence of 20 + 20 tokens"
        lines.append(f"a decision of the gateway: {decision_cost}")
    if profile.disk is not None:
        disk = profile.disk
        disk_cost = f"disk, {disk.form}: {1e3 * disk.s_fixed:.2f} ms + bytes at {disk.bytes_per_s / 1e6:,.0f} MB/s"
        lines.append(f"{disk_cost}, held-out error {_format_percent(disk.heldout_error)}")
    if profile.energy is not None and profile.energy.active_w is not None:
        lines.append(f"energy, {profile.energy.source}: {profile.energy.active_w:.1f} W at work")
    return lines


def _format_percent(share: float | None) -> str:
    return "not known" if share is None else f"{100 * share:.2f} %"


def _format_number(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.4f}"


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    folder: Annotated[Path, typer.Option("--disk", metavar="FOLDER", help="Where disk reads would be measured.")] = Path(),
) -> None:
    """Say what this box can measure, what it cannot, and why."""
    from simnmt.calibrate.doctor import examine

    examination = examine(folder=folder)
    if as_json:
        print(json.dumps(examination.as_json(), indent=1, allow_nan=False))
        return
    for finding in examination.findings:
        print(finding)
