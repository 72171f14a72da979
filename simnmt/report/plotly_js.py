"""plotly.js, packed so that it travels inside the page."""

from __future__ import annotations

from importlib.resources import files

from simnmt.report import packing


def packed() -> str:
    """plotly.js as base64 of gzip, the same text every time.

    Read as a file of the package: nothing of plotly's Python side is imported.
    """
    return packing.packed(files("plotly").joinpath("package_data", "plotly.min.js").read_bytes())
