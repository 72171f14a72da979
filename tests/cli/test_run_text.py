"""What the command line prints of a run: no mean where there is none to be known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import simnmt as library
from simnmt.cli.run_text import format_result
from simnmt.results import Run
from tests.command_line import Outcome
from tests.refusals import assert_one_line


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


def test_the_recommendation_is_printed_before_the_table_and_marked_in_it() -> None:
    text = printed([row("edge"), row("cnmt")])
    assert text.index("deploy cnmt") < text.index("workload  network")
    assert cells_of(text, "cnmt")[3] == "<" and cells_of(text, "edge")[3] != "<"


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


def test_the_rows_of_a_run_are_in_the_order_of_its_objective(folder: Path, simnmt: Callable[..., Any]) -> None:
    arguments = ("run", "small.yaml", "--set", "objective=p95")
    rows = json.loads(simnmt(*arguments, "--json").out)["rows"]
    table = next(part for part in simnmt(*arguments).out.split("\n\n") if part.startswith("workload"))
    lines = [line.split()[2] for line in table.splitlines()[2 : 2 + len(rows)]]
    assert lines == [row["policy"] for row in sorted(rows, key=lambda row: row["p95_latency_s"])]


Command = Callable[..., Outcome]


def test_a_run_that_meets_what_is_asserted_says_so_and_ends_with_status_0(folder: Path, simnmt: Command) -> None:
    done = simnmt("run", "small.yaml", "--out", "run", "--assert", "p95_ms <= 1e6", "--assert", "edge: mean_ms<=1e6")
    assert done.status == 0
    first, second = [line for line in done.out.splitlines() if line.startswith("assert ")]
    assert first.startswith("assert p95_ms<=1000000: ") and " ms: met (" in first and "in 2 of 2 replications" in first
    assert second.startswith("assert mean_ms<=1000000: edge for news on office: ")


def test_a_missed_assertion_ends_with_status_3_and_leaves_the_whole_run(folder: Path, simnmt: Command) -> None:
    done = simnmt("run", "small.yaml", "--out", "run", "--assert", "p95_ms<=1", "--assert", "mean_ms<=1e6")
    assert (done.status, done.err) == (3, "")
    assert ["missed" in line for line in done.out.splitlines() if line.startswith("assert ")] == [True, False]
    run = library.load("run")
    assert not run.meets("p95_ms<=1") and run.meets("mean_ms<=1e6")
    again = simnmt("run", "run", "--out", "again", "--json", "--assert", "p95_ms<=1")
    assert again.status == 3
    (assertion,) = json.loads(again.out)["assertions"]
    assert (assertion["requirement"], assertion["met"], assertion["unit"]) == ("p95_ms<=1", False, "ms")
    assert assertion["value"] == pytest.approx(1e3 * run.best()["p95_latency_s"])
    assert (folder / "again" / "summary.json").read_bytes() == (folder / "run" / "summary.json").read_bytes()


@pytest.mark.parametrize(
    ("assertion", "complaint"),
    [
        ("p95_ms<300", "p95_ms has no limit <"),
        ("clout: p95_ms<=300", "unknown policy clout in 'clout: p95_ms<=300' (did you mean cloud?)"),
    ],
)
def test_an_assertion_that_cannot_be_judged_is_refused_before_the_run(
    folder: Path, simnmt: Command, assertion: str, complaint: str
) -> None:
    done = simnmt("run", "small.yaml", "--out", "run", "--assert", assertion)
    assert (done.status, done.out) == (2, "")
    assert_one_line(done.err)
    assert complaint in done.err
    assert not (folder / "run").exists()
