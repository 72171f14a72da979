"""The frame of all pages (sections with texts, tables and figures, in one HTML file), and how numbers are set on them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from simnmt.base import VERSION
from simnmt.report.charts import Panel, pack, packed

if TYPE_CHECKING:
    from simnmt.report.table import Table

_HERE = Path(__file__).resolve().parent
MINUS, THIN, DASH = "\u2212", "\u202f", "\u2013"
_RAISED = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a page: its parts come in the order of these fields."""

    title: str
    id: str = ""
    """For links; figures need it."""
    text: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    panels: Sequence[Panel] = ()
    picture: Markup | None = None
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    """Points of a list."""
    parts: Sequence[Section] = ()
    """Sections within, without figures if the section has some."""
    style: str = ""
    """Class of the style sheet: `verdict`, `doubts`."""
    folded: bool | None = None
    """True to show the title alone until a reader opens it; False for one that can be closed."""
    colour: str = ""
    """Colour of a dot before the first paragraph."""
    strong: str = ""
    """Words of the first paragraph that stand out."""

    @property
    def packed(self) -> Markup:
        """The figures for `charts.js`."""
        return pack(self.panels)


def render_page(eyebrow: str, title: str, sections: Sequence[Section], facts: Sequence[str] = ()) -> str:
    """Return a page of sections that opens from disk without a network, to be written as UTF-8; every name in it is escaped.

    Args:
        eyebrow: the line above the title: the command.
        title: the page's heading.
        sections: in order; empty ones are left out.
        facts: short texts below the heading.
    """
    drawn = any(section.panels or any(part.panels for part in section.parts) for section in sections)
    scripts = ("tables.js", "charts.js") if drawn else ("tables.js",)
    return render_fragment(
        "page.html.j2",
        eyebrow=eyebrow,
        title=title,
        sections=sections,
        facts=facts,
        version=VERSION,
        style=asset("page.css"),
        script=Markup("\n").join(map(asset, scripts)),
        plotly=Markup(packed_plotly() if drawn else ""),
    )


def render_fragment(template: str, **content: Any) -> Markup:
    """Return what a template of this folder makes, a part of a page."""
    return Markup(_environment().get_template(template).render(content))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"typeset": _prose, "significant": significant}
    return environment


def _prose(text: str, strong: str = "") -> Markup:
    """Return text with typeset numbers, text in backticks as code, and some words that stand out."""
    shown = re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(typeset(text))))
    return Markup(shown.replace(escape(strong), f"<strong>{escape(strong)}</strong>", 1) if strong else shown)


def asset(name: str) -> Markup:
    """Return a style sheet or script of this folder, for a page without escaping."""
    return Markup((_HERE / name).read_text(encoding="utf-8"))


@cache
def packed_plotly() -> str:
    """Return plotly.js as base64 of gzip, the same text every time.

    Read as a file of the package: nothing of plotly's Python side is imported. Packing takes 0.15 s, so that it is done once
    for all pages of a process.
    """
    return packed(files("plotly").joinpath("package_data", "plotly.min.js").read_bytes())


def is_number(value: object) -> TypeGuard[float]:
    """Return whether there is a finite number to show."""
    return isinstance(value, (int, float)) and math.isfinite(value)


def number(value: float, decimals: int) -> str:
    """Return a number with fixed decimals as the page sets it; never a negative zero."""
    text = f"{value:,.{decimals}f}"
    return typeset(text if text.strip("-0.,") else text.lstrip("-"))


def significant(value: float, digits: int = 4) -> str:
    """Return a number with at most `digits` significant digits; a power of ten where a value is tiny."""
    value = float(f"{value:.{digits - 1}e}")
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    if exponent < -4:
        mantissa = float(f"{value:e}".partition("e")[0]) if exponent < -300 else value / 10.0**exponent  # 10**-324 is 0
        return f"{significant(mantissa, digits)}\u202f\u00b7\u202f10{str(exponent).translate(_RAISED)}"
    text = number(value, max(digits - 1 - exponent, 0))
    return text.rstrip("0").rstrip(".") if "." in text else text


def typeset(text: str) -> str:
    """Return a text with its numbers set as on the page: thousands by thin spaces, true minus signs, dashes.

    >>> typeset("1,873 of 18,730, moved by -24.5 ms")
    '1\u202f873 of 18\u202f730, moved by \u221224.5 ms'
    """
    if text == "-":
        return DASH
    return re.sub(r"(?<![^\s(\[])-(?=\.?\d)|(?<=\d )-(?= \d)", MINUS, re.sub(r"(?<=\d),(?=\d{3}(?!\d))", THIN, text))
