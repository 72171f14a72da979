"""Figures beside the bars that the project asks of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def print_figures(figures: Mapping[str, Any], bars: Mapping[str, tuple[str, Any]], *, as_json: bool) -> None:
    """One line a figure, or JSON and nothing else."""
    if as_json:
        print(json.dumps(figures, indent=1))
        return
    width = max(map(len, figures), default=0) + 2
    for name, value in figures.items():
        sign, bar = bars.get(name, ("", None))
        shown = f"{value:.4g}" if isinstance(value, float) else str(value)
        print(f"{name:{width}}{shown:>12}" + (f"   asked: {sign} {bar}" if bar is not None else ""))
