"""Frozen figures of seven shipped scenarios and of the six reproductions, which a change of form must not change.

`python -m tests.goldens.frozen [NAME]...` writes them anew, for a change that is meant to change figures. They are taken
through the command line, so that names within the package matter little. Relative tolerance: 1e-9.

Of a scenario: the numbers of each policy (means, percentiles, shares, energy, with the intervals of its own means), fits, gaps,
batches and pipelines, and sums of the columns of requests. Not frozen: recommendations, verdicts and comparisons of policies
with their intervals of relative changes and regrets, and empty values. Both engines must give the same figures.

Of a reproduction: the verdict, the basis and the numbers of each claim, and sums of the tables' columns. `sharp` measures this
processor, so its claims are judged on the times that the paper prints. Small sizes leave claims about speed undecided;
`NAME-full` holds the verdicts of the full size, which `make check-deep` compares.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

FOLDER = Path(__file__).parent
SCENARIOS: dict[str, tuple[str, ...]] = {
    "quickstart": (),
    "table1": (),
    "batched-cloud": (),
    "llama-slots": ("devices.cloud.slots={slots: 4, chunk: 64, context: 150, cached_prefix: 10}",),
    "sti-gateway": (),
    "tiers": (),
    "open-loop": (
        "networks.cp2.joules_per_byte=0.00001",
        "networks.cp2.price_per_gb=0.08",
        "devices.gateway.power={idle_w: 3, busy_w: 9}",
        "devices.cloud.power={idle_w: 60, busy_w: 180}",
        "devices.cloud.price_per_hour=0.9",
    ),
}
"""Shipped scenarios with the keys that are set: FIFO boxes, batches, slots, streams, tiers, queues with energy."""
REQUESTS, REPLICATIONS = 150, 2
KEYS = ["workload", "network", "policy"]
"""Columns that name a cell of the request log."""
SECTIONS = ("fits", "gaps", "batches", "plans", "streams")
"""Parts of the summary that are frozen beside the rows of the policies."""

REPRODUCTIONS: dict[str, tuple[str, ...]] = {
    "cnmt": ("--jobs", "1", "--requests", "50"),
    "topup": ("--profile", "@cpu1-gru"),
    "fused": (),
    "vocab": (),
    "sti": (),
}
FULL_REPRODUCTIONS: dict[str, tuple[str, ...]] = {"cnmt-full": ()}

Figures = dict[str, Any]


@cache
def scenario_figures(name: str, engine: str) -> Figures:
    """Return the numbers of each policy and of other parts of the summary, and sums of the columns of requests by cell."""
    settings = [part for setting in SCENARIOS[name] for part in ("--set", setting)]
    with tempfile.TemporaryDirectory() as parent:
        out = Path(parent, "run")
        sizes = ("--requests", str(REQUESTS), "--replications", str(REPLICATIONS), "--jobs", "1")
        _simnmt("run", f"@{name}", *settings, *sizes, "--engine", engine, "--out", str(out))
        summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
        requests = pd.read_parquet(out / "requests.parquet").drop(columns="site")
    policies = {"/".join(row[key] for key in KEYS): _policy_numbers(row) for row in summary["rows"]}
    sections = {section: dict(_numbers(summary[section])) for section in SECTIONS if summary.get(section)}
    return {"policies": policies, "sections": sections, "requests": column_figures(requests)}


def _policy_numbers(row: Mapping[str, Any]) -> dict[str, float]:
    return {
        column: value for column, value in row.items() if isinstance(value, (int, float)) and not column.startswith("regret_s_")
    }


def column_figures(requests: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return by cell and column: rows counted by value, or of floats their sum and their sum weighted by the row's number."""
    figures: dict[str, dict[str, Any]] = {}
    for cell, rows in requests.groupby(KEYS, sort=True, observed=True):
        columns = {str(name): _column(rows[name]) for name in rows.columns if name not in KEYS}
        figures["/".join(map(str, cell))] = {name: column for name, column in columns.items() if column}
    return figures


@cache
def reproduction_figures(name: str) -> Figures:
    """Return verdict, basis and numbers by claim, and sums of each table's columns; of a full reproduction only verdicts."""
    if name == "sharp":
        document = _sharp_document()
    else:
        with tempfile.TemporaryDirectory() as parent:
            options = FULL_REPRODUCTIONS[name] if name in FULL_REPRODUCTIONS else REPRODUCTIONS[name]
            paper = name.removesuffix("-full")
            document = json.loads(_simnmt("reproduce", paper, *options, "--json", "--out", str(Path(parent, "out"))))
    verdicts = {claim["id"]: claim["verdict"] for claim in document["claims"]}
    if name in FULL_REPRODUCTIONS:
        return {"verdicts": verdicts}
    return {
        "verdicts": verdicts,
        "bases": {claim["id"]: claim["basis"] for claim in document["claims"]},
        "numbers": {claim["id"]: [float(number) for number in _NUMBER.findall(claim["ours"])] for claim in document["claims"]},
        "tables": {table["id"]: _table_figures(table["rows"]) for table in document["tables"] if table["rows"]},
    }


_NUMBER = re.compile(r"(?<![\w.-])[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.-])")


def _sharp_document() -> dict[str, Any]:
    from simnmt.papers.sharp.reproduction import report
    from tests.papers.sharp_stand_ins import as_published

    return json.loads(json.dumps(report(as_published(table={"activations": 360.0})).document()))


def _table_figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    figures: dict[str, Any] = {"rows": len(rows)}
    for column in dict.fromkeys(column for row in rows for column in row):
        values = [row.get(column) for row in rows]
        if any(isinstance(value, float) for value in values):
            figures[column] = _column(pd.Series([value if isinstance(value, (int, float)) else math.nan for value in values]))
    return figures


def differences(frozen: Any, now: Any, place: str = "") -> Iterator[str]:
    """Name every place where figures differ: numbers relatively by more than 1e-9, all else at all."""
    if isinstance(frozen, dict) and isinstance(now, dict):
        for key in sorted(frozen.keys() | now.keys()):
            if key not in now or key not in frozen:
                yield f"{place}/{key}: only {'before' if key in frozen else 'now'}"
            else:
                yield from differences(frozen[key], now[key], f"{place}/{key}")
    elif isinstance(frozen, list) and isinstance(now, list) and len(frozen) == len(now):
        for index, (one, other) in enumerate(zip(frozen, now, strict=True)):
            yield from differences(one, other, f"{place}/{index}")
    elif isinstance(frozen, float) and isinstance(now, (int, float)):
        if not math.isclose(frozen, now, rel_tol=1e-9, abs_tol=1e-12):
            yield f"{place}: {frozen!r} before, {now!r} now"
    elif frozen != now:
        yield f"{place}: {frozen!r} before, {now!r} now"


def _column(values: pd.Series) -> Any:
    if values.dtype.kind == "f":
        numbers = values.to_numpy(np.float64)
        finite = np.isfinite(numbers)
        if not finite.any():
            return {}
        held = np.where(finite, numbers, 0.0)
        weighted = float(held @ np.arange(1.0, len(held) + 1.0))
        return {"sum": float(held.sum()), "weighted": weighted, "finite": int(finite.sum())}
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
    elif isinstance(document, (bool, int, float)) and not place.endswith(("/low_percent", "/high_percent")):
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
    """Return the file that holds the frozen figures of a scenario or of a reproduction."""
    return FOLDER / f"{name}.json"


def main() -> None:
    """Freeze everything that is named, or all."""
    for name in sys.argv[1:] or [*SCENARIOS, *REPRODUCTIONS, "sharp", *FULL_REPRODUCTIONS]:
        figures = scenario_figures(name, "compiled") if name in SCENARIOS else reproduction_figures(name)
        path_of(name).write_text(json.dumps(figures, separators=(",", ":"), sort_keys=True) + "\n", encoding="utf-8")
        print(f"{name}: {path_of(name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
