"""What figures on rows show is what the rows say, and no mean where there is none."""

from __future__ import annotations

from typing import Any

from simnmt.report.figures import gaps, over_load, parts

ENDS = {"": 0.1, "_low": 0.05, "_high": None}


def test_parts_are_milliseconds_of_the_rows_and_unknown_where_no_row_is(result: Any) -> None:
    rows = [row for row in result.rows if row["network"] == "cp2"]
    drawn = parts(rows, ["cnmt", "nobody"])
    row = next(row for row in rows if row["policy"] == "cnmt")
    assert drawn["names"] == ["queue", "execution", "transfer"]
    for key, prefix in (("all", "mean"), ("p95", "beyond_p95"), ("p99", "beyond_p99")):
        assert drawn[key][0] == [float(f"{1e3 * row[f'{prefix}_{part}_s']:.5g}") for part in drawn["names"]]
        assert drawn[key][1] == [None, None, None]


def test_gaps_leave_out_the_policy_as_it_is() -> None:
    change = {"change_percent": -1.0, "low_percent": -2.0, "high_percent": 0.0}
    rows = [{"policy": "cnmt", "removed": removed, **change} for removed in ("nothing", "length regression", "everything")]
    drawn = gaps(rows)
    assert drawn is not None
    assert (drawn["policy"], drawn["removed"]) == ("cnmt", ["length regression", "everything"])
    assert drawn["low_percent"] == [-2.0, -2.0]
    assert gaps([]) is None


def test_over_the_load_an_unstable_policy_has_a_gap_in_its_line() -> None:
    rows = [
        {
            "workload": workload, "network": "n", "policy": policy,
            "unstable": "gateway: load 1.10" if (workload, policy) == ("late", "plain") else None,
            **{f"{name}_latency_s{end}": value for name in ("mean", "p95") for end, value in ENDS.items()},
        }
        for workload in ("early", "late")
        for policy in ("plain", "queue", "edge")
    ]  # fmt: skip
    points = [
        {"workload": workload, "load": load, "change_percent": -1.0, "low_percent": None, "high_percent": None}
        for workload, load in (("early", 0.5), ("late", 1.1))
    ]
    sweeps = [{"network": "n", "policy": policy, "baseline": "plain", "points": points} for policy in ("queue", "edge")]
    (drawn,) = over_load(rows, sweeps, {"plain": 4, "queue": 5, "edge": 0})
    assert (drawn["network"], drawn["plain"], drawn["load"]) == ("n", "plain", [0.5, 1.1])
    assert drawn["policies"] == ["plain", "queue", "edge"]
    assert drawn["mean"] == {
        "ms": [[100.0, None], [100.0, 100.0], [100.0, 100.0]],
        "_low": [[50.0, None], [50.0, 50.0], [50.0, 50.0]],
        "_high": [[None, None]] * 3,
    }
    assert [change["policy"] for change in drawn["changes"]] == [1, 2]
    assert drawn["unstable"][0] == [None, "gateway: load 1.10"]
    assert over_load(rows, [], {}) == []
