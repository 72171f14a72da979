"""A run that never took place but might have: two networks, five policies, names that try to break out of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from simnmt.report.figures import CellView
from simnmt.results import Cell, Run
from simnmt.results.places import ALL, CellName, Place
from simnmt.results.requests import RequestLog
from simnmt.results.summary import PARTS, Device
from simnmt.workload.length_table import LengthTable
from tests.browser import open_file


@dataclass(frozen=True, slots=True)
class OneVisit:
    """A browser that opens all pages in one context: a page in a context of its own takes half as long again."""

    visit: Any

    @contextmanager
    def new_context(self, *, offline: bool, viewport: dict[str, int], color_scheme: str = "light") -> Iterator[Any]:
        """What has one new page, and closes it at the end."""
        assert offline, "the shared context is"
        page = self.visit.new_page()
        page.set_viewport_size(viewport)
        page.emulate_media(color_scheme=color_scheme)
        try:
            yield SimpleNamespace(new_page=lambda: page)
        finally:
            page.close()


@pytest.fixture(scope="session")
def open_page(chromium: Any) -> Iterator[Callable[..., Any]]:
    """`with open_page(path, viewport=..., color_scheme=...) as opened:` as in tests/browser.py."""
    with chromium.new_context(offline=True) as visit:
        yield lambda path, **settings: open_file(OneVisit(visit), path, **settings)


HOSTILE = "<script>alert(1)</script>"
WORKLOAD = '"&amp;<img src=x onerror=alert(2)>'
NETWORKS = (HOSTILE, "cp2")
POLICIES = ("edge", "cloud", "oracle", "naive", "cnmt")
DEVICES = (Device("gateway", 1, 1), Device("cloud", 1, 1))
GATEWAY, CLOUD = (0.0012, 0.009, 0.020), (0.0002, 0.0031, 0.012)
SLOPE, OFFSET = 0.92, 1.4

FITS: tuple[dict[str, Any], ...] = (
    {"of": "target length over source length", "kind": "measured", "samples": 12_345, "pairs_r2": 0.71234, "pairs_mse": 31.5},
    {"of": "execution time on the cloud", "kind": "inferred", "samples": 0},
    {"of": "execution time on the gateway", "kind": "inferred", "samples": 99, "r2": 0.9, "mse_ms2": 4.2},
)


def make_result(
    requests: int = 20_000,
    networks: tuple[str, ...] = NETWORKS,
    workloads: tuple[str, ...] = (WORKLOAD,),
    replications: int = 5,
    name: str = HOSTILE,
) -> Any:
    """A Run in all its fields, with plausible numbers."""
    cells = [make_cell(w, n, requests, 10 * i + j) for i, w in enumerate(workloads) for j, n in enumerate(networks)]
    rows = [row for cell in cells for row in make_rows(cell, replications)]
    return Run(
        name=name,
        seed=1,
        fits=[{"workload": w, **fit} for fit in FITS for w in workloads],
        summary_rows=rows,
        comparisons=[entry for cell in cells for entry in make_comparisons(cell, rows, replications)],
        recommendations=[make_recommendation(cell, rows, replications) for cell in cells],
        cells=cells,
        notes=["Target lengths are those of the <b>reference</b> translations.", "The profiles are inferred from Table I."],
    )


def make_mix(sites: tuple[str, ...] = ("berlin", HOSTILE), **keys: Any) -> Any:
    """A run of one network whose rows are those of all requests, of each site and of two workloads."""
    result = make_result(networks=("n",), workloads=(ALL,), **keys)
    groups = [(ALL, ALL), *((site, ALL) for site in sites), (ALL, "news"), (ALL, WORKLOAD)]
    rows = [row | {"site": site, "workload": workload} for site, workload in groups for row in result.summary_rows]
    parts = [{**Place.of(row)._asdict(), "slo_met": row["site"] != HOSTILE} for row in rows[len(POLICIES) :]]
    sources = tuple(
        replace(result.cells[0], site=site, workload=name, logs={}) for site in sites for name in ("news", WORKLOAD)
    )
    cells, recommendations = [replace(result.cells[0], sources=sources)], [result.recommendations[0] | {"parts": parts}]
    return replace(result, summary_rows=rows, recommendations=recommendations, cells=cells)


class MadeUpLog(RequestLog):
    """The columns of a log, all in memory."""

    def first(self, requests: int) -> MadeUpLog:
        """The first requests alone."""
        return MadeUpLog({name: values[:requests] for name, values in self.items()})


def make_cell(workload: str, network: str, requests: int, seed: int) -> Any:
    draw = np.random.default_rng(seed)
    src_len = np.clip(draw.gamma(2.6, 9.0, requests).astype(np.int32) + 1, 1, 200)
    tgt_len = np.clip(np.rint(SLOPE * src_len + OFFSET + draw.normal(0, 1.2 + 0.12 * src_len)), 1, 240).astype(np.int32)
    time_s = np.arange(2_400) * 6.0
    walk = np.cumsum(draw.normal(0, 1, 2_400))
    rtt_s = 0.110 + 0.35 * (seed % 2) + 0.03 * np.sin(time_s / 3000) + 0.0006 * walk + draw.gamma(1.2, 0.006, 2_400)
    rtt_s[draw.integers(0, 2_400, 25)] += draw.gamma(2.0, 0.08, 25)
    series = SimpleNamespace(
        name=f"{network} trace", kind="synthetic", source="drawn for a test", time_s=time_s, rtt_s=rtt_s, lost=3,
        duration_s=14_400.0, mean_s=float(rtt_s.mean()),
    )  # fmt: skip
    rtt_time_s = np.arange(requests) * (series.duration_s / requests)
    request_rtt_s = rtt_s[(rtt_time_s // 6.0).astype(int)]
    noise = np.exp(draw.normal(0, 0.06, (2, requests)))
    seconds = [(a * src_len + b * tgt_len + c) * noise[k] for k, (a, b, c) in enumerate((GATEWAY, CLOUD))]
    predicted = {"naive": np.full(requests, tgt_len.mean()), "cnmt": np.maximum(SLOPE * src_len + OFFSET, 1.0)}
    estimate_s = np.maximum.accumulate(np.where(draw.random(requests) < 0.02, np.arange(requests), 0))
    believed_s = request_rtt_s[np.maximum(estimate_s - 1, 0)]
    gain = [a - b for a, b in zip(GATEWAY, CLOUD, strict=True)]
    targets = {
        "edge": np.zeros(requests, bool),
        "cloud": np.ones(requests, bool),
        "oracle": seconds[0] > seconds[1] + request_rtt_s,
        **{k: gain[0] * src_len + gain[1] * m + gain[2] > believed_s for k, m in predicted.items()},
    }
    logs = {}
    for policy in POLICIES:
        away = targets[policy]
        t_tx_s, t_exe_s = np.where(away, request_rtt_s, 0.0), np.where(away, seconds[1], seconds[0])
        columns = {
            "request_id": np.arange(requests, dtype=np.int32), "node": np.zeros(requests, np.int32),
            "arrival_s": np.zeros(requests), "src_len": src_len, "tgt_len": tgt_len,
            "tgt_len_predicted": predicted.get(policy, np.full(requests, np.nan)), "target": away.astype(np.int8),
            "server": np.zeros(requests, np.int32),
            "t_queue_s": np.zeros(requests), "t_exe_s": t_exe_s, "t_tx_s": t_tx_s, "latency_s": t_exe_s + t_tx_s,
            "rtt_estimate_s": believed_s, "rtt_estimate_age_s": np.zeros(requests),
            "outcome": np.zeros(requests, np.int8), "rtt_time_s": rtt_time_s,
        }  # fmt: skip
        logs[policy] = MadeUpLog(columns)
    return Cell(
        site=ALL, workload=workload, network=network, series=series, regression_slope=SLOPE, regression_offset=OFFSET,
        lengths=LengthTable.of_pairs("de-en-news", "news text <i>of a test</i>", "word", "word", src_len, tgt_len),
        planes=(GATEWAY, CLOUD), profile_kinds=("inferred", "measured"), profile_names=("tx2-<b>", "titan-xp"), logs=logs,
        devices=DEVICES,
    )  # fmt: skip


def make_rows(cell: Any, replications: int) -> list[dict[str, Any]]:
    best = cell.logs["oracle"]
    rows = []
    for policy, log in cell.logs.items():
        latency_s = log["latency_s"]
        total_s = float(latency_s.sum())
        quantile = {p: float(np.quantile(latency_s, q)) for p, q in (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99))}
        rows.append(
            {
                **cell.name._asdict(), "policy": policy, "replications": replications,
                "requests": latency_s.size, "total_latency_s": total_s,
                "total_latency_s_low": total_s * 0.996 if replications > 1 else None,
                "total_latency_s_high": total_s * 1.004 if replications > 1 else None,
                "mean_latency_s_low": latency_s.mean() * 0.996 if replications > 1 else None,
                "mean_latency_s_high": latency_s.mean() * 1.004 if replications > 1 else None,
                "p95_latency_s_low": quantile["p95"] * 0.99 if replications > 1 else None,
                "p95_latency_s_high": quantile["p95"] * 1.01 if replications > 1 else None,
                "mean_latency_s": float(latency_s.mean()), **{f"{p}_latency_s": value for p, value in quantile.items()},
                "p999_latency_s": float(np.quantile(latency_s, 0.999)), "offloaded_share": float(log["target"].mean()),
                "misrouted_share": float((log["target"] != best["target"]).mean()),
                "regret_s": total_s - float(best["latency_s"].sum()), "mean_estimate_age_s": 0.1, "offered_rps": None,
                **make_parts(log, quantile), "unstable": None, "backlog_growth": None,
                **{f"{device.name}_share": float((log["target"] == k).mean()) for k, device in enumerate(DEVICES)},
                **{f"{device.name}{load}": None for device in DEVICES for load in ("_load", "_busiest_load")},
            }
        )  # fmt: skip
    return rows


def make_parts(log: Any, quantile: dict[str, float]) -> dict[str, float]:
    slowest = {"mean": 0.0, "beyond_p95": quantile["p95"]}
    return {
        f"{name}_{part}_s": float(log[column][log["latency_s"] >= least_s].mean())
        for name, least_s in slowest.items()
        for part, column in PARTS.items()
    }


def make_recommendation(cell: Any, rows: list[dict[str, Any]], replications: int) -> dict[str, Any]:
    """cnmt before naive, from which it is not distinguishable; cloud is as good."""
    mean_s = {row["policy"]: row["mean_latency_s"] for row in rows if row["network"] == cell.network}
    margin = mean_s["cnmt"] / mean_s["naive"] - 1
    return {
        **cell.name._asdict(), "objective": "mean", "policy": "cnmt", "runner_up": "naive",
        "margin": margin, "margin_low": margin - 0.01 if replications > 1 else None,
        "margin_high": margin + 0.01 if replications > 1 else None, "indistinguishable": ["naive", "cloud"],
        "as_good": ["cloud"], "lost_shares": {}, "objective_value": mean_s["cnmt"],
        "objective_value_low": 0.996 * mean_s["cnmt"] if replications > 1 else None,
        "objective_value_high": 1.004 * mean_s["cnmt"] if replications > 1 else None,
        "unstable": None, "slo": [], "slo_met": None, "slo_missed_by": [], "slo_uncertain": [], "slo_assessments": [],
        "deployable": [policy for policy in POLICIES if policy != "oracle"], "oracle": "oracle", "above_oracle": 0.007,
        "above_oracle_low": 0.005, "above_oracle_high": 0.009, "gap_left": 0.04, "best_fixed": "cloud", "worst": "edge",
        "spread": 0.02, "spread_low": 0.01, "spread_high": 0.03, "trivial": cell.network != NETWORKS[0],
        "fixed_suffices": False, "against": [],
        "caution": "" if len(cell.logs["edge"]["src_len"]) >= 400 else "The change is not <reliable>.",
        "reason": {"transfer_s": 0.133, "kept": {"cnmt": "up to 17 words"}, "best_offloaded_share": 0.6, "queues": False,
                   "devices": ["gateway", "cloud"]},
    }  # fmt: skip


def make_comparisons(cell: Any, rows: list[dict[str, Any]], replications: int) -> list[dict[str, Any]]:
    here = [row for row in rows if CellName.of(row) == cell.name]
    total_s = {row["policy"]: row["total_latency_s"] for row in here}
    found = []
    for policy in POLICIES:
        for baseline in ("edge", "cloud", "oracle", "naive"):
            if policy == baseline:
                continue
            change = 100 * (total_s[policy] / total_s[baseline] - 1)
            known = replications > 1
            effect = "not distinguishable" if abs(change) < 1 else "faster" if change < 0 else "slower"
            found.append(
                {
                    **cell.name._asdict(), "policy": policy, "baseline": baseline,
                    "change_percent": change, "low_percent": change - 1 if known else None,
                    "high_percent": change + 1 if known else None, "effect": effect if known else "one replication",
                }
            )  # fmt: skip
    return found


@pytest.fixture(scope="session")
def result() -> Any:
    return make_result()


@pytest.fixture(scope="session", name="make_result")
def _make_result() -> Any:
    """`make_result(requests=..., networks=..., workloads=..., replications=..., name=...)`."""
    return make_result


def view_of(cell: Any, rows: Any = ()) -> CellView:
    """A cell as its figures see it, with a colour for each policy."""
    here = [row for row in rows if CellName.of(row) == cell.name]
    return CellView(cell, here, {policy: place for place, policy in enumerate(cell.logs)})


def with_log(cell: Any, **columns: Any) -> Any:
    """The same cell with columns of every log replaced."""
    return replace(cell, logs={name: MadeUpLog({**log, **columns}) for name, log in cell.logs.items()})
