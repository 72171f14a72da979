"""`simnmt profile list`, `simnmt profile inspect` and `simnmt profile compare`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simnmt.base.text_tables import format_pairs, format_table, shorten_on_terminal
from simnmt.cli.options import (
    AsJson,
    Force,
    Page,
    argument,
    check_output,
    outlines,
    print_json,
    print_page,
    print_result,
    profile_path,
)
from simnmt.cli.terminal import note

if TYPE_CHECKING:
    from simnmt.profile.device_profile import DeviceProfile

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
    from simnmt.profile.profile_file import read_profile
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
    """Return the row of a profile in the list."""
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
    from simnmt.profile.profile_file import read_profile
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
    from simnmt.profile.profile_file import read_profile
    from simnmt.profile.profile_summary import comparison_text, numbers

    if len(files) < 2:
        raise typer.BadParameter("two profiles or more are needed", param_hint="FILE...")
    profiles = [read_profile(profile_path(file)) for file in files]
    print_result(
        as_json,
        lambda: {"files": files, "profiles": [numbers(profile) for profile in profiles]},
        lambda: comparison_text(files, profiles),
    )
