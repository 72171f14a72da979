"""`simnmt profile inspect` and `simnmt profile compare`."""

from __future__ import annotations

from typing import Annotated

import typer

from simnmt.base.text_tables import format_pairs
from simnmt.cli.options import AsJson, Force, Page, argument, check_output, print_json, print_result, profile_path

app = typer.Typer(help="Device profiles: the measured costs of a device that runs a model.", no_args_is_help=True)

Files = Annotated[list[str], argument("FILE...", "Profiles, or @names of shipped ones.")]


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
        from simnmt.report.profile_page import write_profile_page

        write_profile_page(page, profiles)
    if as_json:
        documents = [{"file": file} | profile_summary.as_json(profile) for file, profile in zip(files, profiles, strict=True)]
        print_json({"profiles": documents})
        return
    for file, profile in zip(files, profiles, strict=True):
        print(f"{file}: {profile_summary.title(profile)}")
        print(format_pairs(profile_summary.facts(profile), "  "))
    if page is not None:
        print(f"page: {page}")


@app.command()
def compare(files: Files, as_json: AsJson = False) -> None:
    """Set profiles side by side: coefficients, and the ratio of each one's predicted times to the first one's.

    Example: simnmt profile compare @tx2-gru @titan-xp-gru
    """
    from simnmt.profile.profile_comparison import coefficients, compare_profiles, comparison_text
    from simnmt.profile.profile_file import read_profile

    if len(files) < 2:
        raise typer.BadParameter("two profiles or more are needed", param_hint="FILE...")
    profiles = [read_profile(profile_path(file)) for file in files]
    comparison = {
        "files": files,
        "coefficients": [coefficients(profile) for profile in profiles],
        "against_first": [compare_profiles(profiles[0], other).as_json() for other in profiles[1:]],
    }
    print_result(as_json, lambda: comparison, lambda: comparison_text(files, profiles))
