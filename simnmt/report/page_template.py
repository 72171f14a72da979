"""Fill the template of a page with styles, scripts, figures and plotly.js, so that it opens without a network."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from simnmt.base import VERSION
from simnmt.base.errors import InputError
from simnmt.base.files import written_whole
from simnmt.report.charts import packed
from simnmt.report.typography import typeset

_HERE = Path(__file__).resolve().parent

Record = Mapping[str, Any]


def render_template(template: str, scripts: Sequence[str], **content: Any) -> str:
    """Return a page that opens from disk without a network, as text to be written as UTF-8; every name in it is escaped.

    Args:
        template: file name of a template of this folder.
        scripts: file names of our own scripts, in order.
        content: what the template names besides `version`, `style`, `script` and `plotly`.
    """
    return (
        _environment()
        .get_template(template)
        .render(
            version=VERSION,
            style=asset("page.css"),
            script=Markup("\n").join(map(asset, scripts)),
            plotly=Markup(packed_plotly() if "charts.js" in scripts else ""),
            **content,
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["typeset"] = _prose
    return environment


def render_fragment(template: str) -> Markup:
    """Return a template of this folder that is a part of a page and has no variables."""
    return Markup(_environment().get_template(template).render())


def _prose(text: str) -> Markup:
    """Return text with typeset numbers, and with text in backticks as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(typeset(text)))))


def asset(name: str) -> Markup:
    """Return a style sheet or script of this folder, for a page without escaping."""
    return Markup((_HERE / name).read_text(encoding="utf-8"))


def write_page(path: str | os.PathLike[str], text: str) -> None:
    """Write a page whole or not at all. Raises `InputError` if the file cannot be written."""
    try:
        with written_whole(path) as partial:
            partial.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=path, remedy="choose another folder") from None


@cache
def packed_plotly() -> str:
    """Return plotly.js as base64 of gzip, the same text every time.

    Read as a file of the package: nothing of plotly's Python side is imported. Packing takes 0.15 s, so that it is done once
    for all pages of a process.
    """
    return packed(files("plotly").joinpath("package_data", "plotly.min.js").read_bytes())
