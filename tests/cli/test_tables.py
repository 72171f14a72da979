"""What the command line prints of a run: no mean where there is none to be known."""

from __future__ import annotations

from typing import Any

from simnmt.cli.tables import run_tables
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
    verdicts = [{"sentence": "w on n: so it is.", "variants": parts.pop("variants", "")}]
    return run_tables(RunResult("r", 1, rows, comparisons, verdicts, [], [], **parts))


def test_an_unstable_policy_is_called_that_in_place_of_its_mean_and_quantiles() -> None:
    lines = printed([row("edge"), row("cnmt", "cloud: load 1.30")]).splitlines()
    assert next(line for line in lines if line.split()[2:3] == ["edge"]).split()[3:8] == [
        "12,345.6",
        "123.4",
        "123.4",
        "123.4",
        "123.4",
    ]
    cnmt = next(line for line in lines if line.split()[2:3] == ["cnmt"])
    assert cnmt.split() == ["w", "n", "cnmt", "12,345.6*", "unstable", "(cloud", "1.30)", "50.0", "10.0", "-9.00*"]
    assert "* with an unstable policy: a number of this run, which depends on how long it lasts" in lines


def test_replications_that_alone_are_unstable_are_counted() -> None:
    assert "unstable (cloud 1.30 in 1 of 3)" in printed([row("cnmt", "cloud: load 1.30 in 1 of 3 replications", overloaded=1)])


def test_what_is_stable_has_no_marks() -> None:
    text = printed([row("edge"), row("cnmt")])
    assert "*" not in text
    assert "unstable" not in text
    assert text.endswith("\n\nw on n: so it is.")


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


def test_variants_loads_and_gaps_follow_the_verdicts() -> None:
    change = {"workload": "w", "network": "n", "policy": "cnmt", "total_latency_s": 99.0, "replications": 2}
    gaps = [
        {**change, "removed": removed, "change_percent": percent, "low_percent": percent - 1, "high_percent": percent + 1,
         "share_of_gap_percent": share}
        for removed, percent, share in (("nothing", 0.0, 0.0), ("stale transfer time", -2.0, 50.0), ("everything", -4.0, 100.0))
    ]  # fmt: skip
    text = printed(
        [row("cnmt")], variants="Beside cnmt: queue is faster.", load_sweeps=[{"sentence": "n, load 0.2 to 0.9."}], gaps=gaps
    )
    head, _, rest = text.partition("w on n: so it is.\nBeside cnmt: queue is faster.\nn, load 0.2 to 0.9.\n\n")
    assert head
    lines = rest.splitlines()
    assert lines[0] == "What wrong beliefs cost, w on n:"
    assert lines[4].split() == ["stale", "transfer", "time", "99.0", "-2.00", "[-3.00,", "-1.00]", "50"]
    assert "Told the present transfer time alone, it would be 2.00 % faster [1.00, 3.00], 50 % of the gap." in lines
