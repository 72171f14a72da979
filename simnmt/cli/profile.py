"""`simnmt profile list`, `simnmt profile inspect` and `simnmt profile compare`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from simnmt.base.files import is_standard
from simnmt.base.text_tables import format_pairs, format_table, shorten_on_terminal
from simnmt.cli.options import AsJson, Force, Page, argument, check_output, outlines, print_json, print_result, profile_path
from simnmt.cli.terminal import note

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
    from simnmt.results.number_text import digits

    profiles, left_out = outlines(["calibration"], folder, lambda path: [outline(read_profile(path))])
    if as_json:
        print_json({"profiles": profiles, "left_out": left_out})
        return
    rows = [
        [
            profile["name"],
            shorten_on_terminal(profile["device"], 30),
            profile["engine"] or "-",
            _format_kinds(profile["kinds"]),
            shorten_on_terminal(" / ".join(dict.fromkeys((profile["src_unit"], profile["tgt_unit"]))), 30),
            _format_batches(profile),
            profile["date"],
            digits(1e3 * profile["execution_s_of_20_tokens"]),
            str(profile["samples"]),
            str(profile["warnings"] or "-"),
        ]
        for profile in profiles
    ]
    header = ["profile", "device", "engine", "kinds", "lengths in", "batches", "date", "ms", "samples", "warnings"]
    print(format_table(header, rows, 7))
    print("\nms: one sentence of 20 source and 20 target tokens, by itself; batches: whether a batching server can use it")
    for fault in left_out:
        note(f"left out {fault}")


def _format_batches(profile: Mapping[str, Any]) -> str:
    """Return whether a profile has the costs of batches, and those of refilling them."""
    return ("yes, refills" if profile["knows_refills"] else "yes") if profile["batches"] else "-"


def _format_kinds(kinds: dict[str, str]) -> str:
    """Return the kind of the executions, and the cost models of another kind with theirs."""
    usual = kinds["execution"]
    others = (f"{name.replace('_', ' ')} {kind}" for name, kind in kinds.items() if kind != usual)
    return ", ".join([usual, *others])


@app.command()
def inspect(files: Files, as_json: AsJson = False, page: Page = None, force: Force = False) -> None:
    """Show a profile: device, conditions, and each cost model with its kind, its range and its held-out error.

    Example: simnmt profile inspect @tx2-gru
    """
    from simnmt.profile import profile_summary
    from simnmt.profile.profile_file import read_profile

    paths = [profile_path(file) for file in files]
    check_output(page, force, *paths)
    profiles = [read_profile(path) for path in paths]
    if page is not None:
        from simnmt.report.input_pages import render_profiles
        from simnmt.report.page_template import write_page

        write_page(page, render_profiles(profiles))
    if as_json:
        documents = [{"file": file} | profile_summary.as_json(profile) for file, profile in zip(files, profiles, strict=True)]
        print_json({"profiles": documents})
        return
    for file, profile in zip(files, profiles, strict=True):
        print(f"{file}: {profile_summary.title(profile)}")
        print(format_pairs(profile_summary.facts(profile), "  "))
    if page is not None and not is_standard(page):
        print(f"page: {page}")


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
