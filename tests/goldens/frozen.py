"""Frozen figures of three shipped scenarios, which a change of form must not change.

`python -m tests.goldens.frozen` writes them anew, for a change that is meant to change figures. They are taken through the
command line, so that no name within the package matters.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

FOLDER = Path(__file__).parent
SCENARIOS = ("quickstart", "batched-cloud", "sti-gateway")
"""Shipped scenarios: servers that take one request after the other, that batch, and that stream their model."""
REQUESTS, REPLICATIONS = 150, 2
KEYS = ["workload", "network", "policy"]
"""Columns that name a cell of the request log."""

Figures = dict[str, Any]


@cache
def scenario_figures(name: str) -> Figures:
    """Return the summary's numbers by their place, and of each column of requests its sums or counts by cell."""
    with tempfile.TemporaryDirectory() as parent:
        out = Path(parent, "run")
        _simnmt("run", f"@{name}", "--requests", str(REQUESTS), "--replications", str(REPLICATIONS), "--out", str(out))
        summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
        return {"summary": dict(_numbers(summary)), "requests": column_figures(pd.read_parquet(out / "requests.parquet"))}


def column_figures(requests: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return by cell and column: rows counted by value, or of floats their sum and their sum weighted by the row's number."""
    figures: dict[str, dict[str, Any]] = {}
    for cell, rows in requests.groupby(KEYS, sort=True, observed=True):
        figures["/".join(map(str, cell))] = {str(name): _column(rows[name]) for name in rows.columns if name not in KEYS}
    return figures


def differences(frozen: Any, now: Any, place: str = "") -> Iterator[str]:
    """Name every place where figures differ: numbers relatively by more than 1e-9, all else at all."""
    if isinstance(frozen, dict) and isinstance(now, dict):
        for key in sorted(frozen.keys() | now.keys()):
            if key not in now or key not in frozen:
                yield f"{place}/{key}: only {'before' if key in frozen else 'now'}"
            else:
                yield from differences(frozen[key], now[key], f"{place}/{key}")
    elif isinstance(frozen, float) and isinstance(now, (int, float)):
        if not math.isclose(frozen, now, rel_tol=1e-9, abs_tol=1e-12):
            yield f"{place}: {frozen!r} before, {now!r} now"
    elif frozen != now:
        yield f"{place}: {frozen!r} before, {now!r} now"


def _column(values: pd.Series) -> Any:
    if values.dtype.kind == "f":
        numbers = values.to_numpy(np.float64)
        held = np.where(np.isfinite(numbers), numbers, 0.0)
        return {
            "sum": float(held.sum()),
            "weighted": float(held @ np.arange(1.0, len(held) + 1.0)),
            "finite": int(np.isfinite(numbers).sum()),
        }
    counts = values.astype(str).value_counts()
    if len(counts) > 50:
        codes = values.to_numpy()
        return {"sum": int(codes.sum()), "weighted": int(codes @ np.arange(1, len(codes) + 1))}
    return {str(value): int(count) for value, count in sorted(counts.items())}


def _numbers(document: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(document, dict):
        for key, value in document.items():
            yield from _numbers(value, f"{place}/{key}")
    elif isinstance(document, list):
        for index, value in enumerate(document):
            yield from _numbers(value, f"{place}/{index}")
    elif isinstance(document, (bool, int, float)) or place.endswith(("/verdict", "/policy", "/runner_up")):
        yield place, document


def _simnmt(*arguments: str) -> str:
    from simnmt.cli import main

    printed, argv = io.StringIO(), sys.argv
    sys.argv = ["simnmt", *arguments]
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()) as complaints:
            main()
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"simnmt {' '.join(arguments)}: {complaints.getvalue()}") from end
    finally:
        sys.argv = argv
    return printed.getvalue()


def path_of(name: str) -> Path:
    """Return the file that holds the frozen figures of a scenario."""
    return FOLDER / f"{name}.json"


def main() -> None:
    """Freeze everything that is named, or all."""
    for name in sys.argv[1:] or SCENARIOS:
        figures = scenario_figures(name)
        path_of(name).write_text(json.dumps(figures, separators=(",", ":"), sort_keys=True) + "\n", encoding="utf-8")
        print(f"{name}: {path_of(name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
