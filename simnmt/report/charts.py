"""Charts: lines, points, bars and bands as plain plotly data, for a page and for a notebook.

A `Chart` is a list of `Mark`s on two `Axis`. A `Panel` is a chart on a page, with the choices that its reader has: it holds
one chart for each combination of options. Colours are names of the style sheet (`policy-4`, `ink`), so that light mode, dark
mode and print agree; `charts.js` replaces them on a page, and `Chart.figure(PALETTE)` for a notebook.
"""

from __future__ import annotations

import base64
import gzip
import html
import itertools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any, Literal

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

LEVEL = 6
"""Level of gzip. plotly.js: 4.8 MB become 1.47 MB in 0.13 s; level 9 takes 0.04 s more and gains 0.2 %, level 4 costs 74 kB."""
LONG = 16
"""Lists with more values are stored once on a page, however many charts show them."""
POLICY_COLOURS = 12
"""Colours `policy-0` to `policy-11` of the style sheet."""
SERIES_COLOURS = (2, 4, 5, 1, 3, 0)
"""Order of these colours for series that are no policies."""
DASHES = (
    "solid", "solid", "dot", "dash", "solid", "dashdot", "longdash", "longdashdot", "dot", "dash", "dashdot", "longdash",
)  # fmt: skip
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x", "pentagon", "star", "triangle-down", "hexagon", "cross")

Kind = Literal["line", "points", "bars", "band"]
Values = Sequence[Any] | NDArray[Any]


def series_colour(place: int) -> str:
    """Return the colour of the series at `place`, counted from 0."""
    return f"policy-{SERIES_COLOURS[place % len(SERIES_COLOURS)]}"


def beside(place: int, count: int) -> float:
    """Return by how much the marks of one of several series are moved within their row, which is 1 high."""
    return 0.5 * ((place + 0.5) / count - 0.5)


def plain(text: str) -> str:
    """Return a text of the input with escaped tags, because plotly would interpret them."""
    return html.escape(text, quote=False)


def short(text: str, most: int = 24) -> str:
    """Return `plain(text)`, cut to `most` characters."""
    return plain(text if len(text) <= most else text[: most - 1] + "\u2026")


def quantile_shares(count: int) -> NDArray[np.float64]:
    """Return about 500 cumulated shares from 0 to 1, ever denser towards both ends, where a distribution bends most.

    No share is nearer to an end than 1 / `count`, because no request lies between.
    """
    finest = 1.0 / max(count, 1)
    low, high = np.logspace(-6.0, -2.0, 120, endpoint=False), np.logspace(-1.0, -6.0, 200)[1:]
    body = np.linspace(0.01, 0.9, 260)
    return np.concatenate([[0.0], low[low > finest], body, 1.0 - high[high > finest], [1.0]])


def quantiles(values: NDArray[Any], at: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return quantiles by one sort, interpolated linearly; empty for no values."""
    ordered = np.sort(values)
    return np.interp(at * (ordered.size - 1), np.arange(ordered.size), ordered) if values.size else np.empty(0)


def extremes(values: NDArray[Any], most: int) -> NDArray[np.int64]:
    """Return indices of at most `most` points that keep every peak and trough a picture of that width can show.

    The series is cut into equal buckets, of which each keeps its least and its greatest value; first and last always stay.
    """
    if values.size <= most:
        return np.arange(values.size)
    buckets = max((most - 2) // 2, 1)
    starts = np.linspace(0, values.size, buckets + 1).astype(np.int64)
    kept = [0, values.size - 1]
    for start, end in itertools.pairwise(starts.tolist()):
        piece = values[start:end]
        kept += [start + int(np.argmin(piece)), start + int(np.argmax(piece))]
    return np.unique(np.array(kept, dtype=np.int64))


def numbers(values: NDArray[Any], digits: int = 5) -> list[float | None]:
    """Return plain floats with `digits` significant digits, which are short in JSON; None for values that are not finite."""
    shortened = f".{digits}g"
    return [float(format(value, shortened)) if math.isfinite(value) else None for value in values.tolist()]


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: its title with the unit, its scale and its range."""

    title: str = ""
    log: bool = False
    span: tuple[float, float] | None = None
    """Least and greatest value shown; None: as the marks need."""
    from_zero: bool = False
    ticks: Mapping[float, str] | None = None
    """Labels by position, for names instead of numbers."""
    tick_format: str = ""
    """d3 format of the labels."""
    zero_line: bool = False
    hidden: bool = False

    def layout(self) -> dict[str, Any]:
        """Return the axis as plotly lays it out."""
        layout: dict[str, Any] = {"title": {"text": self.title}}
        if self.log:
            layout |= {"type": "log", "tickformat": ",~g", "nticks": 5}
        elif self.from_zero:
            layout["rangemode"] = "tozero"
        if self.span is not None:
            layout["range"] = np.log10(self.span).tolist() if self.log else list(self.span)
        if self.ticks is not None:
            hidden_grid = {"ticks": "", "gridcolor": "rgba(0,0,0,0)"}
            layout |= {"tickmode": "array", "tickvals": [*self.ticks], "ticktext": [*self.ticks.values()], **hidden_grid}
        if self.tick_format:
            layout["tickformat"] = self.tick_format
        if self.zero_line:
            layout |= {"zeroline": True, "zerolinecolor": _token("ink")}
        return layout | {"visible": False} if self.hidden else layout


@dataclass(frozen=True, slots=True)
class Mark:
    """One set of marks of a chart.

    `low` and `high` are the ends of intervals: the whiskers of a line, of points and of bars, the edges of a band.
    """

    kind: Kind
    x: Values
    y: Values
    name: str = ""
    """Name in the legend, without escaping, so names of the input must be `plain`; empty: no entry."""
    colour: str | Sequence[str] = "ink"
    dash: str = "solid"
    width: float = 2.0
    symbol: str | Sequence[str] = ""
    size: float = 6.0
    opacity: float = 1.0
    step: bool = False
    low: Values | None = None
    high: Values | None = None
    across: tuple[Values, Values] | None = None
    """Low and high of intervals of `x` beside those of `y`."""
    text: Sequence[str] | None = None
    """Text of each value, `%{text}` in `hover`."""
    hover: str = "%{y:,.4~g} at %{x:,.4~g}"
    """plotly's template, without the name; empty: no hover text."""
    level: bool = False
    """Horizontal bars and whiskers: `x` is the value."""

    def trace(self) -> dict[str, Any]:
        """Return the marks as one plotly trace."""
        trace = {"x": _listed(self.x), "y": _listed(self.y), "opacity": self.opacity, "showlegend": bool(self.name)}
        trace |= {"name": self.name} if self.name else {}
        trace |= {"text": self.text} if self.text is not None else {}
        if self.hover:
            name = "%{fullData.name}" if self.name else ""
            trace["hovertemplate"] = f"{self.hover}<extra>{name}</extra>"
        else:
            trace["hoverinfo"] = "skip"
        if self.kind == "band":
            look = {"mode": "lines", "fill": "toself", "fillcolor": _token(self.colour), "line": {"width": 0}}
            return trace | self._outline() | {"type": "scatter", **look}
        if self.low is not None and self.high is not None:
            axis, middle = ("error_x", self.x) if self.level else ("error_y", self.y)
            trace[axis] = self._whiskers(middle, self.low, self.high)
        if self.across is not None:
            trace["error_x"] = self._whiskers(self.x, *self.across)
        if self.kind == "bars":
            bars: dict[str, Any] = {
                "orientation": "h" if self.level else "v",
                "marker": {"color": _token(self.colour)},
                "cliponaxis": False,
            }
            return trace | {"type": "bar"} | bars
        marker: dict[str, Any] = {"size": self.size, "line": {"width": 0}, "color": _token(self.colour)}
        marker |= {"symbol": self.symbol} if self.symbol else {}
        line = {"color": marker["color"], "dash": self.dash, "width": self.width} | ({"shape": "hv"} if self.step else {})
        if self.kind == "points":
            return trace | {"type": "scatter", "mode": "markers", "marker": marker}
        return trace | {"type": "scatter", "mode": "lines+markers" if self.symbol else "lines", "line": line, "marker": marker}

    def _whiskers(self, middle: Values, low: Values, high: Values) -> dict[str, Any]:
        up = [0.0 if value is None or end is None else end - value for value, end in zip(middle, high, strict=True)]
        down = [0.0 if value is None or end is None else value - end for value, end in zip(middle, low, strict=True)]
        bounds = {"array": up, "arrayminus": down}
        look = {"color": _token("ink" if self.kind == "bars" else self.colour), "thickness": 1.2, "width": 4}
        return {"type": "data", "symmetric": False, **bounds, **look}

    def _outline(self) -> dict[str, list[float | None]]:
        """Return one closed outline for each run of values whose ends are known."""
        x: list[float | None] = []
        y: list[float | None] = []
        places = range(len(self.x))
        low, high = self.low or (), self.high or ()
        for known, run in itertools.groupby(places, lambda place: low[place] is not None and high[place] is not None):
            there = [*run]
            if known and len(there) > 1:
                x += [*(float(self.x[place]) for place in (*there, *reversed(there))), None]
                y += [*(float(high[place]) for place in there), *(float(low[place]) for place in reversed(there)), None]
        return {"x": x, "y": y}


@dataclass(frozen=True, slots=True)
class Chart:
    """Marks on two axes, and the sentence below them."""

    marks: Sequence[Mark]
    x: Axis = Axis()
    y: Axis = Axis()
    reading: str = ""
    stacked: bool = False
    message: str = ""

    def figure(self, palette: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return `{"data", "layout"}` for plotly; `palette`: replaces the style sheet's names of colours."""
        layout: dict[str, Any] = {"xaxis": self.x.layout(), "yaxis": self.y.layout()}
        if any(mark.kind == "bars" for mark in self.marks):
            layout |= {"barmode": "stack" if self.stacked else "group", "bargap": 0.3 if self.marks[0].level else 0.18}
        if self.message:
            middle = {"x": 0.5, "y": 0.5, "xref": "paper", "yref": "paper", "showarrow": False, "font": {"size": 15}}
            layout["annotations"] = [{"text": self.message, **middle}]
        figure = {"data": [mark.trace() for mark in self.marks], "layout": layout}
        if palette is None:
            return figure
        text = re.sub(r"var\(--([\w-]+)\)", lambda name: palette[name[1]], json.dumps(figure | {"template": TEMPLATE}))
        coloured: dict[str, Any] = json.loads(text)
        coloured["layout"]["template"] = coloured.pop("template")
        return coloured


@dataclass(frozen=True, slots=True)
class Control:
    """A choice of the reader: options with labels, and the option shown first."""

    name: str
    label: str
    options: Sequence[tuple[str, str]]
    chosen: str = ""

    @property
    def shown(self) -> str:
        """The option shown first."""
        return self.chosen or self.options[0][0]


@dataclass(frozen=True)
class Panel:
    """A figure of a page: heading, caption, and a chart for each combination of options."""

    name: str
    heading: str
    alt: str
    draw: Callable[..., Chart]
    """Takes an option of each control."""
    controls: Sequence[Control] = ()
    caption: str = ""
    """May be Markup."""
    across: bool = False
    """True for a panel as wide as the page."""

    @cached_property
    def charts(self) -> Mapping[tuple[str, ...], Chart]:
        """All charts by the options of the controls."""
        combinations = itertools.product(*([value for value, _ in control.options] for control in self.controls))
        return {options: self.draw(*options) for options in combinations}

    @property
    def chart(self) -> Chart:
        """The chart that is shown first."""
        return self.draw(*(control.shown for control in self.controls))


def pack(panels: Sequence[Panel]) -> Markup:
    """Return the charts of panels for a page: gzip of JSON in base64, with long lists stored once."""
    pool: dict[str, int] = {}
    charts = [
        {
            "|".join(options): _pooled(chart.figure() | {"reading": chart.reading}, pool)
            for options, chart in drawn.charts.items()
        }
        for drawn in panels
    ]
    text = f'{{"pool":[{",".join(pool)}],"charts":{_json(charts)},"template":{_json(TEMPLATE)}}}'
    return Markup(packed(text.encode()))


def packed(content: bytes) -> str:
    """Return base64 of gzip: the same text every time, without characters that HTML interprets."""
    return base64.b64encode(gzip.compress(content, LEVEL, mtime=0)).decode("ascii")


def light_palette() -> dict[str, str]:
    """Return the colours of light mode by name, as the style sheet has them."""
    light = files("simnmt.report").joinpath("page.css").read_text(encoding="utf-8").partition("@media")[0]
    return dict(re.findall(r"--([\w-]+): (#\w+|rgb\([^)]*\));", light))


def _pooled(value: Any, pool: dict[str, int]) -> Any:
    if isinstance(value, dict):
        return {key: _pooled(entry, pool) for key, entry in value.items()}
    if not isinstance(value, (list, tuple)):
        return value
    if len(value) > LONG and not isinstance(value[0], (dict, list)):
        return {"pool": pool.setdefault(_json(value), len(pool))}
    return [_pooled(entry, pool) for entry in value]


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _listed(values: Values) -> Sequence[Any]:
    return numbers(values, 6) if isinstance(values, np.ndarray) else values


def _token(colour: str | Sequence[str]) -> str | list[str]:
    return f"var(--{colour})" if isinstance(colour, str) else [f"var(--{name})" for name in colour]


_AXIS = {
    "title": {"standoff": 10},
    "gridcolor": _token("line"),
    "linecolor": _token("line"),
    "tickcolor": _token("line"),
    "zeroline": False,
    "automargin": True,
}
TEMPLATE = {
    "layout": {
        "font": {"size": 12, "color": _token("soft")},
        "separators": ".\u202f",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 48, "r": 8, "t": 8, "b": 40},
        "hovermode": "closest",
        "legend": {
            "orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom", "traceorder": "normal",
            "font": {"color": _token("ink")},
        },
        "hoverlabel": {"bgcolor": _token("panel"), "bordercolor": _token("line"), "font": {"color": _token("ink")}},
        "xaxis": _AXIS,
        "yaxis": _AXIS,
    }
}  # fmt: skip
"""Layout that all charts share, `layout.template` of plotly."""
