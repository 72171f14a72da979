"""What the command line prints of a run: no mean where there is none to be known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simnmt.cli.run_text import format_result
from simnmt.results import Run


def row(policy: str, unstable: str | None = None, replications: int = 3) -> dict[str, Any]:
    return {
        "workload": "w", "network": "n", "policy": policy, "replications": replications, "requests": 1_000,
        "total_latency_s": 12_345.6, **{f"{name}_latency_s": 0.1234 for name in ("mean", "p50", "p95", "p99")},
        "offloaded_share": 0.5, "misrouted_share": 0.1, "unstable": unstable, "unstable_device": unstable and "cloud",
        "unstable_replications": unstable and 3, "backlog_growth": unstable and 0.3,
    }  # fmt: skip


def printed(rows: list[dict[str, Any]], **parts: Any) -> str:
    comparisons = [
        {
            "workload": "w", "network": "n", "policy": mine["policy"], "baseline": "edge", "change_percent": -9.0,
            "low_percent": -10.0, "high_percent": -8.0, "effect": "faster", "unstable": "policy" if mine["unstable"] else None,
        }
        for mine in rows
        if mine["policy"] != "edge"
    ]  # fmt: skip
    parts.setdefault("recommendations", [recommendation()])
    return format_result(Run("r", 1, rows, comparisons, **parts))


def recommendation(**changed: Any) -> dict[str, Any]:
    return {
        "workload": "w", "network": "n", "objective": "p95", "policy": "cnmt", "runner_up": "edge", "margin": -0.08,
        "margin_low": -0.1, "margin_high": -0.06, "indistinguishable": ["naive"], "as_good": [], "objective_value": 0.1234,
        "objective_value_low": 0.1198, "objective_value_high": 0.1267, "above_oracle": 0.02, "above_oracle_low": 0.01,
        "above_oracle_high": 0.035, "unstable": None, "slo": [], "slo_met": None, "slo_missed_by": [], "slo_assessments": [],
        "lost_shares": {}, "against": [], "deployable": [], "oracle": None, "gap_left": None, "best_fixed": None,
        "trivial": False, "fixed_suffices": False, "caution": "",
        "reason": {"transfer_s": 0.1, "kept": {}, "best_offloaded_share": 0.5, "queues": False, "devices": ["gateway"]},
    } | changed  # fmt: skip


def cells_of(text: str, policy: str) -> list[str]:
    """The cells of a policy's row in the table of all policies."""
    return next(line for line in text.splitlines() if line.split()[:3] == ["w", "n", policy]).split()


def test_an_unstable_policy_is_called_that_in_place_of_its_mean_and_quantiles() -> None:
    text = printed([row("edge"), row("cnmt", "cloud: load 1.30")])
    assert cells_of(text, "edge")[3:8] == ["12,346", "123", "123", "123", "123"]
    assert cells_of(text, "cnmt")[3:9] == ["<", "12,346*", "unstable", "-", "-", "-"]
    assert cells_of(text, "cnmt")[-1] == "-9.0*"
    assert "*" not in printed([row("edge"), row("cnmt")])


def test_the_goodput_and_another_objective_have_columns() -> None:
    rows = [row(name) | {"goodput_rps": 7.5, "good_within_s": 0.25, "p90_latency_s": 0.0987} for name in ("edge", "cnmt")]
    text = printed(rows, recommendations=[recommendation(objective="p90")])
    assert cells_of(text, "edge")[7:12] == ["123", "98.7", "50.0", "10.0", "7.5"]
    assert "goodput" not in printed([one | {"good_within_s": None} for one in rows])


def test_the_recommendation_is_printed_before_the_table_and_marked_in_it() -> None:
    text = printed([row("edge"), row("cnmt")])
    assert text.index("deploy cnmt") < text.index("workload  network")
    assert cells_of(text, "cnmt")[3] == "<" and cells_of(text, "edge")[3] != "<"


def test_many_cells_are_printed_as_one_table_of_recommendations() -> None:
    many = [recommendation(network=f"n{number}") for number in range(5)]
    many[1] |= {"policy": "edge", "runner_up": None, "margin": None, "margin_low": None, "margin_high": None, "slo_met": False}
    lines = [line.split() for line in printed([row("edge"), row("cnmt")], recommendations=many).splitlines()]
    first = ["w", "n0", "cnmt", "naive", "-", "123.4", "ms", "-8.0", "[-10.0,", "-6.0]", "edge"]
    assert first in lines
    assert any(line[:3] == ["w", "n1", "edge!"] for line in lines)


def test_totals_and_latencies_have_the_digits_of_their_intervals() -> None:
    values_s = {"total": (7_850.46, 7_830.1, 7_865.5), "mean": (0.06842, 0.0669, 0.07), "p50": (0.071149, 0.071102, 0.071188),
                "p95": (0.13398, 0.11918, 0.15191)}  # fmt: skip
    ends = {
        f"{name}_latency_s{end}": value
        for name, values in values_s.items()
        for end, value in zip(("", "_low", "_high"), values, strict=True)
    }
    text = printed([row("edge") | ends | {"p99_latency_s": 0.19876}], recommendations=[])
    assert cells_of(text, "edge")[3:8] == ["7,850", "68.4", "71.15", "134", "199"], "p99 has no interval, so three digits"


def test_no_share_is_printed_of_a_gap_that_may_be_chance() -> None:
    change = {"workload": "w", "network": "n", "policy": "cnmt", "total_latency_s": 99.0, "replications": 2}
    sources = (("nothing", 0.0, 0.0), ("stale transfer time", -2.0, 50.0), ("everything", -4.0, 100.0))
    texts = []
    for width in (1, 9):
        gaps = [
            {**change, "removed": removed, "change_percent": percent, "low_percent": percent - width,
             "high_percent": percent + width, "share_of_gap_percent": share}
            for removed, percent, share in sources
        ]  # fmt: skip
        text = printed([row("cnmt")], gaps=gaps, recommendations=[])
        texts.append(next(line for line in text.splitlines() if line.startswith("stale transfer time")).split())
    assert texts[0][3:] == ["99", "-2.0", "[-3.0,", "-1.0]", "50"] and texts[1][-1] == "-"


def test_prediction_intervals_and_warm_up_are_printed() -> None:
    rows = [row("edge") | {"mean_latency_s_predicted_low": 0.11, "mean_latency_s_predicted_high": 0.14}, row("cnmt")]
    scenario = {"profile_uncertainty": {"profiles": 20, "confidence": 0.9}}
    text = printed([one | {"warm_up_requests": 91.25} for one in rows], scenario=scenario)
    assert "90 %" in text and "edge: mean 123 ms, 110 to 140" in text and "the first 91 of 1,000 requests" in text
    assert "warm-up" not in printed(rows)


def test_the_rows_of_a_run_are_in_the_order_of_its_objective(folder: Path, simnmt: Callable[..., Any]) -> None:
    arguments = ("run", "small.yaml", "--set", "objective=p95")
    rows = json.loads(simnmt(*arguments, "--json").out)["rows"]
    table = next(part for part in simnmt(*arguments).out.split("\n\n") if part.startswith("workload"))
    lines = [line.split()[2] for line in table.splitlines()[2 : 2 + len(rows)]]
    assert lines == [row["policy"] for row in sorted(rows, key=lambda row: row["p95_latency_s"])]
