"""`simnmt calibrate` and `simnmt doctor`: measure this box, and report what can be measured on it."""

from __future__ import annotations

import inspect
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
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


Option = tuple[object, object, str | None, str]
"""Type, default (`REQUIRED` for none), metavar and help of an option."""
REQUIRED = inspect.Parameter.empty
OPTIONS: dict[str, dict[str, Option]] = {
    "Model and engine": {
        "model": (str, REQUIRED, "NAME|PATH", "bilstm, gru, gru-512, marian, sharp, sharp-s1 to -s7, a file or a folder."),
        "backend": (Backend, Backend.torch, None, "What computes."),
        "device": (str, "cpu", "cpu|cuda", "Where it computes."),
        "threads": (int | None, None, "T", "CPU threads; default: one for each core."),
        "compute_type": (str | None, None, "TYPE", "float32 (default), bfloat16, float16, float16_weights, int8 or int16."),
        "beam": (int, 1, "B", "Hypotheses kept; 1 is greedy."),
    },
    "What is measured": {
        "quick": (bool, False, None, "Six corner cells, few batch sizes: a minute or two."),
        "paper": (bool, False, None, "As the C-NMT paper: 10,000 single inferences with the lengths of a corpus."),
        "lengths": (str, "@de-en-news", "@NAME|FILE", "Length table for --paper."),
        "inferences": (int, 10_000, "N", "Inferences of --paper."),
        "max_batch": (int | None, None, "N", "Largest batch of steps and encoders; default: 64, with --quick 16."),
        "max_src_len": (int, 100, "N", "Longest source of the grid, tokens."),
        "max_tgt_len": (int, 100, "M", "Longest target of the grid, tokens."),
        "only": (str | None, None, "PARTS", "Of execution,step,decoder,disk,energy,overheads; default: all."),
        "disk_pace": (str | None, None, "RATE", "Read no faster, as a slower flash: 200MB/s; default: as fast as it goes."),
        "seed": (int, 0, "S", "Of order, lengths, tokens and weights."),
    },
    "Text and vocabulary": {
        "text": (str | None, None, "FILE", "Sentences for the beams, --vocabulary and sharp decoders of a trained model."),
        "vocabulary": (list[str] | None, None, "BUNDLE", "Clusters or lists of vocab build, held against all; repeat."),
        "direction": (str | None, None, "NAME", "Which clusters of a bundle with several."),
    },
    "Profile": {
        "out": (Path, REQUIRED, "FILE", "Device profile to write; an older one is replaced."),
        "name": (str | None, None, "NAME", "Name of the profile; default: the file's."),
        "device_name": (str | None, None, "NAME", "Name of the box; default: its processor and the threads."),
        "unit": (str | None, None, "UNIT", "What a token is; default: by the folder's tokeniser, else word or subword."),
        "src_unit": (str | None, None, "UNIT", "As --unit, of the source alone."),
        "tgt_unit": (str | None, None, "UNIT", "As --unit, of the target alone."),
        "plot": (Path | None, None, "PAGE", "HTML page to write; default: beside the profile."),
        "json": (bool, False, None, "Print the profile and the warnings as JSON and nothing else."),
    },
}


def _with_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the signature that `OPTIONS` describes, which typer reads."""
    parameters = []
    for panel, options in OPTIONS.items():
        for name, (kind, default, metavar, text) in options.items():
            least = 0 if name == "seed" else None
            option = typer.Option(f"--{name.replace('_', '-')}", metavar=metavar, help=text, min=least, rich_help_panel=panel)
            annotation = Annotated[kind, option]  # type: ignore[valid-type]
            parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation))
            verb.__annotations__[name] = annotation
    verb.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return verb


@_with_options
def calibrate(**given: Any) -> None:
    """Measure a translation model on this box: its device profile, with fit and held-out error.

    Interrupted, it keeps what it has; the same command goes on from there. Without execution, --only completes the profile OUT.

    Example: simnmt calibrate --model gru --quick --out gateway.json
    """
    if given["quick"] and given["paper"]:
        raise typer.BadParameter("choose one of --quick and --paper", param_hint="--quick")
    from simnmt.calibrate.calibration import calibrate as measure
    from simnmt.calibrate.preconditions import profile_there, refuse_unfit_page
    from simnmt.calibrate.settings import PARTS, Settings, parse_pace, parse_parts

    out: Path = given["out"]
    copied = {field.name: given[field.name] for field in fields(Settings) if field.name in given}
    settings = Settings(
        **copied
        | {
            "backend": given["backend"].value,
            "mode": "quick" if given["quick"] else "paper" if given["paper"] else "full",
            "parts": PARTS if given["only"] is None else parse_parts(given["only"]),
            "src_unit": given["src_unit"] or given["unit"],
            "tgt_unit": given["tgt_unit"] or given["unit"],
            "vocabulary": tuple(given["vocabulary"] or ()),
            "disk_bytes_per_s": None if given["disk_pace"] is None else parse_pace(given["disk_pace"]),
        }
    )
    profile_there(out, settings)
    page = given["plot"] or out.parent / f"{out.stem}.html"
    refuse_unfit_page(page, out, settings)
    with _listener() as listener:
        done = measure(settings, out, name=given["name"], device_name=given["device_name"], listener=listener)
    for warning in done.warnings:
        warn(warning)
    # Before the page: an error of the page would hide the result of hours of measuring.
    if given["json"]:
        print(json.dumps({"profile": done.profile.model_dump(mode="json"), "warnings": done.warnings}, indent=1))
    else:
        print(_format_profile(done))
        print(f"{'replaced' if done.replaced else 'wrote'} {out}")
    _write_page(page, done)
    if not given["json"]:
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
