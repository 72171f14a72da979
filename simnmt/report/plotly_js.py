"""plotly.js, packed so that it travels inside the page."""

from __future__ import annotations

import base64
import gzip
from importlib.resources import files

LEVEL = 6
"""4.8 MB become 1.47 MB in 0.13 s; level 9 takes 0.04 s more and gains 0.2 %, level 4 costs every page 74 kB."""


def packed() -> str:
    """plotly.js as base64 of gzip, the same text every time.

    Read as a file of the package: nothing of plotly's Python side is imported.
    """
    script = files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()
    return base64.b64encode(gzip.compress(script, LEVEL, mtime=0)).decode("ascii")
