"""`simnmt calibrate`, `doctor` and `profile`: device profiles, measured on this box, listed and compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from simnmt.base.files import is_standard
from simnmt.base.text_tables import format_pairs, format_table, shorten_on_terminal
from simnmt.cli.options import (
    AsJson,
    Force,
    Page,
    Seed,
    argument,
    check_output,
    chosen,
    flag,
    option,
    outlines,
    print_json,
    print_page,
    print_result,
    profile_path,
    refuse_given,
    time_option,
)
from simnmt.cli.terminal import note, progress_bar, warn

if TYPE_CHECKING:
    from simnmt.calibrate.calibration import Calibrated
    from simnmt.profile.device_profile import DeviceProfile

Backend = Literal["torch", "ctranslate2", "sharp"]
PARTS = ("execution", "step", "decoder", "energy", "overheads", "model_memory")
Api = Literal["libretranslate", "openai"]
Kind = Literal["plane", "slots"]
_KIND = "slots: an engine with continuous batching (llama-server, vLLM), with openai. plane: one request at a time."
_MODELS = "bilstm, gru, gru-512, marian, llama, sharp, sharp-s1 to -s7, an architecture file, a model's folder, a Hub id."
_TYPES = "float32, bfloat16, float16, float16_weights, int8 or int16, as doctor shows them. [default: float32]"
_PARTS = f"Measure this part: {', '.join(PARTS)}; repeatable. Without execution, completes OUT. [default: all]"
_TEXT = "Sentences for a trained model, one a line: how a beam ends, and what --vocabulary or sharp decoders change."
_UNIT = "What a token is, or SRC:TGT. [default: the folder's tokeniser; else word (bilstm, gru) or subword]"
_GAP = "Idle so long before each single execution, as the workload lets the box, and keep every repeat. [default: none]"


def calibrate(
    context: typer.Context,
    out: Annotated[Path, option("FILE", "Device profile to write, or to complete.")],
    model: Annotated[str | None, option("NAME|PATH|ID", _MODELS)] = None,
    backend: Annotated[Backend, option(None, "Engine that computes.")] = "torch",
    device: Annotated[str, option("cpu|cuda", "Where the model runs.")] = "cpu",
    threads: Annotated[int | None, option("T", "CPU threads. [default: one for each core]", min=1)] = None,
    compute_type: Annotated[str | None, option("TYPE", _TYPES)] = None,
    beam: Annotated[int, option("B", "Hypotheses kept; 1 is greedy.", min=1)] = 1,
    vocabulary: Annotated[list[str] | None, option("BUNDLE", "Vocabulary bundle to compare with all tokens.")] = None,
    quick: Annotated[bool, flag("--quick", "Six corner cells, few batch sizes: a minute or two.", group="Measurement")] = False,
    part: Annotated[list[str] | None, option("NAME", _PARTS)] = None,
    max_batch: Annotated[int | None, option("N", "Largest batch. [default: 64, with --quick 16]", min=8, max=1024)] = None,
    max_src_len: Annotated[int, option("N", "Longest source of the grid, tokens.", min=8, max=4096)] = 100,
    max_tgt_len: Annotated[int, option("N", "Longest target of the grid, tokens.", min=8, max=4096)] = 100,
    text: Annotated[str | None, option("FILE", _TEXT)] = None,
    src_lang: Annotated[str | None, option("CODE", "Language of --text as the model writes it: deu_Latn (NLLB).")] = None,
    tgt_lang: Annotated[str | None, option("CODE", "Language to translate to, such as eng_Latn.")] = None,
    endpoint: Annotated[str | None, option("URL", "Service to measure instead of a model.", group="Running service")] = None,
    api: Annotated[Api, option(None, "What the service speaks; openai needs --model.")] = "libretranslate",
    workers: Annotated[int | None, option("N", "Requests executed at once. [default: found by loads]", min=1, max=512)] = None,
    kind: Annotated[Kind, option(None, _KIND)] = "plane",
    slots: Annotated[int | None, option("N", "Requests decoded together. [default: as it says]", min=1, max=512)] = None,
    chunk: Annotated[int | None, option("N", "Most tokens of an iteration. [default: 2048]", min=1, max=1 << 20)] = None,
    source: Annotated[str, option("CODE", "Language of --text.")] = "de",
    target: Annotated[str, option("CODE", "Language of the translations.")] = "en",
    timeout: Annotated[float, time_option("Longest time of a request. [default: 60s]")] = 60.0,
    ca_file: Annotated[Path | None, option("FILE", "Authorities that vouch for the service's certificate, PEM.")] = None,
    gap: Annotated[float | None, time_option(_GAP)] = None,
    seed: Seed = 1,
    unit: Annotated[str | None, option("UNIT", _UNIT, group="Names and output")] = None,
    device_name: Annotated[str | None, option("NAME", "Name of the box. [default: its processor and the threads]")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Measure a translation model on this box, or a running service: its device profile, with fit and held-out error.

    Interrupted, it keeps its measurements; the same command goes on from there.

    Example: simnmt calibrate --model gru --quick --out box.json
    """
    if is_standard(out):
        raise typer.BadParameter("measurements are kept beside the profile: name a file", param_hint="--out")
    measure = _of_a_model(context, out) if endpoint is None else _of_an_endpoint(context, out)
    with progress_bar() as bar:
        done = measure(device_name=device_name, listener=bar, replaces_journal=force)
    warn(*done.warnings)
    from simnmt.profile.profile_summary import facts, title
    from simnmt.report.input_pages import render_profiles

    shown = [(label, text) for label, text in facts(done.profile) if label != "warning"]  # these are printed already
    print_result(
        as_json,
        lambda: {"profile": json.loads(out.read_text(encoding="utf-8")), "warnings": done.warnings},
        lambda: f"{out}: {title(done.profile)}\n{format_pairs(shown, '  ')}\nwrote {out}",
    )
    print_page(out.parent / f"{out.stem}.html", as_json, lambda: render_profiles([done.profile]))


_OF_A_MODEL = (
    *("backend", "device", "threads", "compute_type", "beam", "vocabulary", "part"),
    *("max_batch", "max_src_len", "max_tgt_len", "gap", "src_lang", "tgt_lang"),
)
"""Options that say how a model is measured on this box."""
_OF_AN_ENDPOINT = ("api", "workers", "kind", "slots", "chunk", "source", "target", "timeout", "ca_file")
"""Options that say how a running service is measured."""


def _of_a_model(context: typer.Context, out: Path) -> Callable[..., Calibrated]:
    """Return what measures a model on this box, after all options and outputs are checked."""
    given = context.params
    parts = given["part"]
    if given["model"] is None:
        raise typer.BadParameter("give a model, or --endpoint URL", param_hint="--model")
    refuse_given(context, _OF_AN_ENDPOINT, "holds for a running service: give --endpoint")
    if unknown := [name for name in parts or () if name not in PARTS]:
        raise typer.BadParameter(f"unknown part {unknown[0]}; known: {', '.join(PARTS)}", param_hint="--part")
    from simnmt.calibrate.calibration import calibrate as measure
    from simnmt.calibrate.settings import Settings

    settings = chosen(
        context,
        Settings,
        backend=given["backend"],
        mode="quick" if given["quick"] else "full",
        parts=[part for part in PARTS if part in (parts or ())],
        gap_s=given["gap"],
        **_units(given["unit"]),
    )
    # Without execution, the profile at --out is completed.
    _check_outputs(out, given["force"] or not settings.whole, settings.model, settings.text, *settings.vocabulary)
    return partial(measure, settings, out)


def _of_an_endpoint(context: typer.Context, out: Path) -> Callable[..., Calibrated]:
    """Return what measures a running service, after all options and outputs are checked."""
    given = context.params
    refuse_given(context, _OF_A_MODEL, "holds for a model on this box, not for --endpoint")
    if given["text"] is None:
        raise typer.BadParameter("--endpoint needs sentences to send", param_hint="--text")
    if given["kind"] == "slots":
        refuse_given(context, ("workers",), "holds for a plane: leave out --kind slots")
    else:
        refuse_given(context, ("slots", "chunk"), "holds for an engine with slots: give --kind slots")
    from simnmt.calibrate.endpoint import EndpointSettings, SingleRequests, calibrate_endpoint
    from simnmt.calibrate.slot_ladder import SlotLadder

    connection = {"url": given["endpoint"].rstrip("/"), "api": given["api"], "timeout_s": given["timeout"]}
    settings = chosen(context, EndpointSettings, **connection, **_units(given["unit"]))
    _check_outputs(out, given["force"], settings.text)
    return partial(calibrate_endpoint, settings, out, SlotLadder if settings.kind == "slots" else SingleRequests)


def _units(unit: str | None) -> dict[str, str]:
    """Return the units of both sides by the names of the settings; none by default."""
    from simnmt.workload.length_units import source_and_target

    return {} if unit is None else dict(zip(("src_unit", "tgt_unit"), source_and_target(unit), strict=True))


def _check_outputs(out: Path, replaces: bool, *inputs: str | None) -> None:
    """Refuse, before the work, a profile or a page that would replace an input, or a file without --force."""
    for path in (out, out.parent / f"{out.stem}.html"):
        check_output(path, replaces, *inputs)


def doctor(as_json: AsJson = False) -> None:
    """Show what this box can measure, what it cannot, and why.

    Example: simnmt doctor --json
    """
    from simnmt.calibrate.doctor import examine

    box, findings = examine()
    print_result(
        as_json,
        lambda: {"box": box.as_json(), "findings": [asdict(finding) for finding in findings]},
        lambda: "\n".join(map(str, findings)),
    )


app = typer.Typer(help="Device profiles: the measured costs of a device that runs a model.", no_args_is_help=True)

Files = Annotated[list[str], argument("FILE...", "Profiles, or @names of shipped ones.")]


@app.command("list")
def list_(
    folder: Annotated[Path | None, argument("[DIR]", "Folder with profiles of yours. [default: calibration/]")] = None,
    as_json: AsJson = False,
) -> None:
    """List device profiles, shipped ones and yours.

    Example: simnmt profile list
    """
    from simnmt.profile.device_profile import read_profile
    from simnmt.profile.profile_summary import outline

    profiles, left_out = outlines(["calibration"], folder, lambda path: [outline(read_profile(path))])
    if as_json:
        print_json({"profiles": profiles, "left_out": left_out})
        return
    header = ["profile", "device", "engine", "kinds", "lengths in", "batches", "date", "ms", "samples", "warnings"]
    print(format_table(header, map(_listed, profiles), 7))
    print("\nms: one sentence of 20 source and 20 target tokens, by itself; batches: whether a batching server can use it")
    for fault in left_out:
        note(f"left out {fault}")


def _listed(profile: Mapping[str, Any]) -> list[str]:
    from simnmt.results.number_text import digits

    usual = profile["kinds"]["execution"]
    others = (f"{name.replace('_', ' ')} {kind}" for name, kind in profile["kinds"].items() if kind != usual)
    return [
        profile["name"],
        shorten_on_terminal(profile["device"], 30),
        profile["engine"] or "-",
        ", ".join([usual, *others]),
        shorten_on_terminal(" / ".join(dict.fromkeys((profile["src_unit"], profile["tgt_unit"]))), 30),
        "yes, refills" if profile["knows_refills"] else "yes" if profile["batches"] else "-",
        profile["date"],
        digits(1e3 * profile["execution_s_of_20_tokens"]),
        str(profile["samples"]),
        str(profile["warnings"] or "-"),
    ]


@app.command()
def inspect(files: Files, as_json: AsJson = False, page: Page = None, force: Force = False) -> None:
    """Show a profile: device, conditions, and each cost model with its kind, its range and its held-out error.

    Example: simnmt profile inspect @tx2-gru
    """
    from simnmt.profile import profile_summary
    from simnmt.profile.device_profile import read_profile
    from simnmt.report.input_pages import render_profiles

    paths = [profile_path(file) for file in files]
    check_output(page, force, *paths)
    profiles = {file: read_profile(path) for file, path in zip(files, paths, strict=True)}

    def text(file: str, profile: DeviceProfile) -> str:
        return f"{file}: {profile_summary.title(profile)}\n{format_pairs(profile_summary.facts(profile), '  ')}"

    print_result(
        as_json,
        lambda: {"profiles": [{"file": file} | profile_summary.as_json(known) for file, known in profiles.items()]},
        lambda: "\n".join(text(file, known) for file, known in profiles.items()),
    )
    print_page(page, as_json, lambda: render_profiles(list(profiles.values())))


@app.command()
def compare(files: Files, as_json: AsJson = False) -> None:
    """Set profiles side by side: box, model and engine, predicted times, and every cost by its key.

    Example: simnmt profile compare @tx2-gru @titan-xp-gru
    """
    from simnmt.profile.device_profile import read_profile
    from simnmt.profile.profile_summary import comparison_text, numbers

    if len(files) < 2:
        raise typer.BadParameter("two profiles or more are needed", param_hint="FILE...")
    profiles = [read_profile(profile_path(file)) for file in files]
    print_result(
        as_json,
        lambda: {"files": files, "profiles": [numbers(profile) for profile in profiles]},
        lambda: comparison_text(files, profiles),
    )
