"""The results of `benchmarks.engines`: figures by name, a table of errors, rankings, and the environment."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from importlib.metadata import version
from typing import Any

import numpy as np

from simnmt.base import VERSION
from simnmt.base.arrays import Floats
from simnmt.base.text_tables import format_table
from simnmt.calibrate.box import BusyWatch
from simnmt.kernels.native_library import processor
from simnmt.live.validation_runs import FIGURES


def named(figures: Floats) -> dict[str, float | None]:
    return {name: None if np.isnan(value) else round(float(value), 6) for name, value in zip(FIGURES, figures, strict=True)}


def environment() -> dict[str, Any]:
    packages = {name: version(name) for name in ("ctranslate2", "torch", "aiohttp", "numpy")}
    return {
        "simnmt": VERSION,
        "cpu": processor(),
        "cpus": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load": os.getloadavg(),
        "others_cpus": BusyWatch.over_span(),
        "began": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        **packages,
    }


def format_result(result: Mapping[str, Any], bars_of: Mapping[float, tuple[float, ...]]) -> str:
    """Return a table of an engine's errors.

    * marks an error above its bar, by load; in brackets stands the error of the prediction at the runs' own speed.
    """
    columns = ("mean_s", "p95_s", "first_token_mean_s", "first_token_p95_s")
    lines = []
    for cell in result["cells"]:
        bars = dict(zip(columns, bars_of.get(cell["load"], ()), strict=False))
        errors = {}
        for column in columns:
            error = cell["predicted"][column]
            mark = "*" if error is not None and column in bars and abs(error) > bars[column] else ""
            at_speed = cell["at_speed"][column]
            beside = "-" if at_speed is None else f"{100 * at_speed:+.1f}"
            errors[column] = "-" if error is None else f"{100 * error:+.1f}{mark} ({beside})"
        structural = None if cell["structural"] is None else cell["structural"]["mean_s"]
        void, live, spread = sum(map(bool, cell["void"])), cell["live"], cell["spread"]
        lines.append(
            [
                result["engine"], cell["cell"], f"{cell['rate_rps']:.2f}", str(cell["requests"]),
                f"{len(cell['void']) - void}/{len(cell['void'])}", f"{1e3 * live['mean_s']:.1f}", f"{1e3 * live['p95_s']:.1f}",
                f"{100 * (spread['mean_s'] or 0.0):.1f}", "-" if structural is None else f"{100 * structural:+.1f}",
                *errors.values(),
            ]
        )  # fmt: skip
    head = ["engine", "cell", "rps", "requests", "counted", "live ms", "p95 ms", "spread %", "structural %"]
    table = format_table([*head, "mean %", "p95 %", "first mean %", "first p95 %"], lines, 2)
    return table + (f"\n{format_ranking(result['cells'])}" if result["engine"] == "policies" else "")


def format_ranking(cells: Sequence[Mapping[str, Any]]) -> str:
    """Return the order of the policies with two runs that count, and the inverted pairs whose live runs do not overlap."""
    means = {}
    for cell in cells:
        kept = [run for run in cell["runs"] if not run["void"]]
        if len(kept) > 1:
            means[cell["cell"]] = [[run[key]["mean_s"] for run in kept] for key in ("live", "predicted")]
    live, predicted = (sorted(means, key=lambda name: float(np.mean(means[name][at]))) for at in (0, 1))
    inverted = [
        f"{better} before {worse}"
        for number, better in enumerate(live)
        for worse in live[number + 1 :]
        if max(means[better][0]) < min(means[worse][0]) and predicted.index(better) > predicted.index(worse)
    ]
    return f"live {' < '.join(live)}; predicted {' < '.join(predicted)}; inverted: {', '.join(inverted) or 'none'}"
