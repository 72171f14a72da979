"""What the command line prints of a run: no mean where there is none to be known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simnmt.cli.tables import format_result
from simnmt.results import RunResult


def row(policy: str, unstable: str | None = None, replications: int = 3, overloaded: int = 3) -> dict[str, Any]:
    return {
        "workload": "w", "network": "n", "policy": policy, "replications": replications, "requests": 1_000,
        "total_latency_s": 12_345.6, **{f"{name}_latency_s": 0.1234 for name in ("mean", "p50", "p95", "p99")},
        "offloaded_share": 0.5, "misrouted_share": 0.1, "unstable": unstable, "unstable_device": unstable and "cloud",
        "unstable_replications": unstable and overloaded, "backlog_growth": unstable and 0.3,
    }  # fmt: skip


def printed(rows: list[dict[str, Any]], **parts: Any) -> str:
    comparisons = [
        {
            "workload": "w", "network": "n", "policy": mine["policy"], "baseline": "edge", "change_percent": -9.0,
            "low_percent": -10.0, "high_percent": -8.0, "verdict": "faster", "unstable": "policy" if mine["unstable"] else None,
        }
        for mine in rows
        if mine["policy"] != "edge"
    ]  # fmt: skip
    parts.setdefault("recommendations", [recommendation()])
    verdict = {
        "workload": "w",
        "network": "n",
        "sentence": "w on n: so it is.",
        "caution": "",
        "short_reason": "",
        "variants": parts.pop("variants", ""),
    }
    verdicts = parts.pop("verdicts", [verdict])
    return format_result(RunResult("r", 1, rows, comparisons, verdicts, [], [], **parts))


def recommendation(**changed: Any) -> dict[str, Any]:
    return {
        "workload": "w", "network": "n", "objective": "p95", "policy": "cnmt", "runner_up": "edge", "margin": -0.08,
        "margin_low": -0.1, "margin_high": -0.06, "indistinguishable": ["naive"], "as_good": [], "objective_value": 0.1234,
        "objective_value_low": 0.1198, "objective_value_high": 0.1267, "above_oracle": 0.02, "above_oracle_low": 0.01,
        "above_oracle_high": 0.035, "unstable": None, "slo_met": None,
    } | changed  # fmt: skip


def test_an_unstable_policy_is_called_that_in_place_of_its_mean_and_quantiles() -> None:
    lines = printed([row("edge"), row("cnmt", "cloud: load 1.30")]).splitlines()
    assert next(line for line in lines if line.split()[2:3] == ["edge"]).split()[3:8] == [
        "12,346",
        "123",
        "123",
        "123",
        "123",
    ]
    cnmt = next(line for line in lines if line.split()[2:3] == ["cnmt"])
    assert cnmt.split() == ["w", "n", "cnmt", "12,346*", "unstable", "(cloud", "1.30)", "50.0", "10.0", "-9.0*"]
    assert "* with an unstable policy: a number of this run, which depends on how long it lasts" in lines


def test_the_goodput_is_printed_where_an_answer_can_be_late_and_another_objective_has_a_column() -> None:
    rows = [row(name) | {"goodput_rps": 7.5, "good_within_s": 0.25, "p90_latency_s": 0.0987} for name in ("edge", "cnmt")]
    lines = printed(rows, recommendations=[recommendation(objective="p90")]).splitlines()
    head = next(line for line in lines if line.startswith("workload"))
    assert "p99 ms  p90 ms  offloaded %  misrouted %  goodput /s" in head
    cells = next(line for line in lines if line.split()[2:3] == ["edge"]).split()
    assert cells[3:11] == ["12,346", "123", "123", "123", "123", "98.7", "50.0", "10.0"] and cells[11] == "7.5"
    assert "goodput: answers within 250 ms, a second" in lines
    assert "goodput" not in printed([one | {"good_within_s": None} for one in rows])


def test_the_warm_up_is_printed_below_the_table() -> None:
    rows = [row(name) | {"warm_up_requests": 91.25} for name in ("edge", "cnmt")]
    text = printed(rows, scenario={"warm_up": "mser5"})
    assert "w on n: the first 91 of 1,000 requests are warm-up, chosen by MSER-5" in text
    assert "as warm_up states" in printed(rows, scenario={"warm_up": {"requests": 91}})
    assert "warm-up" not in printed([row("edge"), row("cnmt")])


def test_replications_that_alone_are_unstable_are_counted() -> None:
    assert "unstable (cloud 1.30 in 1 of 3)" in printed([row("cnmt", "cloud: load 1.30 in 1 of 3 replications", overloaded=1)])


def test_what_is_stable_has_no_marks() -> None:
    text = printed([row("edge"), row("cnmt")])
    assert "*" not in text
    assert "unstable" not in text
    assert text.split("\n\n")[1] == "w on n: so it is."


def test_what_a_change_is_a_mean_of_is_said_where_there_are_several_replications() -> None:
    said = "vs: change of the total time, the ratio of the means over the replications"
    assert said in printed([row("edge"), row("cnmt")]).splitlines()
    assert said not in printed([row("edge", replications=1), row("cnmt", replications=1)])


def test_no_share_is_printed_of_a_gap_that_no_words_find() -> None:
    change = {"workload": "w", "network": "n", "policy": "cnmt", "total_latency_s": 99.0, "replications": 2}
    gaps = [
        {**change, "removed": removed, "change_percent": percent, "low_percent": percent - 9, "high_percent": percent + 9,
         "share_of_gap_percent": share}
        for removed, percent, share in (("nothing", 0.0, 0.0), ("stale transfer time", -2.0, 50.0), ("everything", -4.0, 100.0))
    ]  # fmt: skip
    text = printed([row("cnmt")], gaps=gaps)
    assert "there is no gap that could be told from chance" in text
    assert next(line for line in text.splitlines() if line.startswith("stale transfer time")).split()[-1] == "-"


def test_the_recommendation_is_printed_before_the_table_and_marked_in_it() -> None:
    lines = printed([row("edge"), row("cnmt")]).splitlines()
    marked = next(line for line in lines if line.startswith("w  ") and "cnmt <" in line)
    assert lines.index("w on n: so it is.") < lines.index(marked)
    assert "< recommended" in lines


def test_many_cells_are_printed_as_one_table_of_recommendations() -> None:
    many = [recommendation(network=f"n{number}") for number in range(5)]
    many[1] |= {"policy": "edge", "runner_up": None, "margin": None, "margin_low": None, "margin_high": None, "slo_met": False}
    lines = printed([row("edge"), row("cnmt")], recommendations=many).splitlines()
    assert not any("so it is" in line for line in lines)
    head = next(line for line in lines if "deploy" in line and line.startswith("workload"))
    assert "p95 latency ms" in head
    first = next(line for line in lines if line.startswith("w ") and " n0 " in line)
    assert first.split() == ["w", "n0", "cnmt", "naive", "123.4", "-8.0", "[-10.0,", "-6.0]", "edge", "+2.0"]
    assert any(line.split()[:3] == ["w", "n1", "edge!"] for line in lines) and "! misses the service level" in lines


def test_totals_and_latencies_have_the_digits_of_their_intervals() -> None:
    values_s = {"total": (7_850.46, 7_830.1, 7_865.5), "mean": (0.06842, 0.0669, 0.07), "p50": (0.071149, 0.071102, 0.071188),
                "p95": (0.13398, 0.11918, 0.15191)}  # fmt: skip
    ends = {
        f"{name}_latency_s{end}": value
        for name, values in values_s.items()
        for end, value in zip(("", "_low", "_high"), values, strict=True)
    }
    lines = printed([row("edge") | ends | {"p99_latency_s": 0.19876}]).splitlines()
    edge = next(line for line in lines if line.split()[2:3] == ["edge"])
    assert edge.split()[3:8] == ["7,850", "68.4", "71.15", "134", "199"], "p99 has no interval, so three digits"
    gap = {"workload": "w", "network": "n", "policy": "cnmt", "removed": "everything", "replications": 5,
           "total_latency_s": 99.87, "total_latency_s_low": 71.2, "total_latency_s_high": 130.0, "change_percent": -2.0,
           "low_percent": -3.0, "high_percent": -1.0, "share_of_gap_percent": 100.0}  # fmt: skip
    text = printed([row("cnmt")], gaps=[gap])
    assert next(line for line in text.splitlines() if line.startswith("everything")).split()[1] == "100"


def test_many_cells_have_their_reasons_below_the_table_and_shared_ones_once() -> None:
    many = [recommendation(network=f"n{number}") for number in range(5)]
    reasons = ["cloud is far"] * 3 + ["cloud is near"] * 2
    caution = "The interval of a change of p99 from 100 requests is not reliable: it takes 2000 requests or more."
    verdicts = [
        {"workload": "w", "network": f"n{number}", "sentence": "so it is.", "caution": caution, "short_reason": reason}
        for number, reason in enumerate(reasons)
    ]
    text = printed([row("edge"), row("cnmt")], recommendations=many, verdicts=verdicts)
    assert (
        f"{caution}\nThe reasons, in full in summary.json (verdicts):\n"
        "w on n0, w on n1 and w on n2: cloud is far\nw on n3 and w on n4: cloud is near\n"
    ) in text
    alike = [verdict | {"short_reason": "cloud is far"} for verdict in verdicts]
    text = printed([row("edge"), row("cnmt")], recommendations=many, verdicts=alike)
    assert "\nThe reason everywhere: cloud is far.\n" in text


def test_the_confidence_of_prediction_intervals_is_printed() -> None:
    rows = [row("edge") | {"mean_latency_s_predicted_low": 0.11, "mean_latency_s_predicted_high": 0.14}, row("cnmt")]
    lines = printed(rows, scenario={"profile_uncertainty": {"profiles": 20, "confidence": 0.9}}).splitlines()
    assert "Prediction intervals of 90 % (calibration and replications):" in lines


def test_variants_loads_and_gaps_are_printed() -> None:
    change = {"workload": "w", "network": "n", "policy": "cnmt", "total_latency_s": 99.0, "replications": 2}
    gaps = [
        {**change, "removed": removed, "change_percent": percent, "low_percent": percent - 1, "high_percent": percent + 1,
         "share_of_gap_percent": share}
        for removed, percent, share in (("nothing", 0.0, 0.0), ("stale transfer time", -2.0, 50.0), ("everything", -4.0, 100.0))
    ]  # fmt: skip
    text = printed(
        [row("cnmt")], variants="Beside cnmt: queue is faster.", load_sweeps=[{"sentence": "n, load 0.2 to 0.9."}], gaps=gaps
    )
    assert "n, load 0.2 to 0.9.\n\nw on n: so it is.\nBeside cnmt: queue is faster.\n\nworkload" in text
    lines = text[text.index("What wrong beliefs") :].splitlines()
    assert lines[0] == "What wrong beliefs cost, w on n:"
    assert lines[4].split() == ["stale", "transfer", "time", "99", "-2.0", "[-3.0,", "-1.0]", "50"]
    assert "With the present transfer time alone, it would be 2.0 % faster [1.0, 3.0], 50 % of the gap." in lines


def test_the_rows_of_a_run_are_in_the_order_of_its_objective(folder: Path, simnmt: Callable[..., Any]) -> None:
    arguments = ("run", "small.yaml", "--set", "objective=p95")
    rows = json.loads(simnmt(*arguments, "--json").out)["rows"]
    lines = simnmt(*arguments).out.split("\n\n")[-3].splitlines()[2:]
    assert [line.split()[2] for line in lines] == [row["policy"] for row in sorted(rows, key=lambda row: row["p95_latency_s"])]
