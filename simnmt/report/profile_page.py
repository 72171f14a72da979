"""The page of device profiles: what `simnmt profile inspect` says, and plots, in one HTML file that needs nothing else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from simnmt import __version__
from simnmt.costs import DeviceProfile
from simnmt.costs.profile_summary import facts, title
from simnmt.errors import InputError
from simnmt.files import written_whole
from simnmt.report.figures import embedded
from simnmt.report.plotly_js import packed
from simnmt.report.profile_plots import drawn

_HERE = Path(__file__).resolve().parent


def write_profile_page(path: str | os.PathLike[str], profiles: Sequence[DeviceProfile]) -> None:
    """Write the page whole or not at all. Raises `InputError` where the file cannot be written."""
    try:
        with written_whole(path) as partial:
            partial.write_text(render_profiles(profiles), encoding="utf-8", newline="\n")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=path, remedy="choose another folder") from None


def render_profiles(profiles: Sequence[DeviceProfile]) -> str:
    """The page as text; the same profiles give the same text, and every name that came with the input is escaped."""
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    plots = [drawn(profile) for profile in profiles]
    return environment.get_template("profile_page.html.j2").render(
        name=", ".join(profile.name for profile in profiles),
        version=__version__,
        sections=[
            {
                "index": index,
                "name": profile.name,
                "title": title(profile),
                "facts": facts(profile),
                "plots": [{"at": at, "title": plot["title"], "caption": plot["caption"]} for at, plot in enumerate(own)],
            }
            for index, (profile, own) in enumerate(zip(profiles, plots, strict=True))
        ],
        content=Markup(embedded({"profiles": plots})),
        style=_asset("page.css"),
        script=_asset("plain_plots.js") + _asset("profile_page.js"),
        plotly=Markup(packed()),
    )


def _asset(file: str) -> Markup:
    return Markup((_HERE / file).read_text(encoding="utf-8"))
