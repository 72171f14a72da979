"""From which load on one policy is faster is said as the comparisons have it, and not beyond them."""

from __future__ import annotations

from typing import Any

import pytest

from simnmt.experiment.comparisons import load_sweep

Change = tuple[float, float | None, float | None]


def verdict_of(change: Change) -> str:
    _, low, high = change
    if low is None or high is None:
        return "one replication"
    return "faster" if high < 0 else "slower" if low > 0 else "not distinguishable"


def swept(changes: dict[float, Change], unstable: dict[float, list[str]] | None = None) -> Any:
    """The sweep of made-up changes by load, the workloads in no order."""
    loads = sorted(changes, key=lambda load: -abs(load - 0.5))
    rows = [
        {
            "workload": f"load {load}", "network": "n", "policy": policy, "cloud_busiest_load": 0.05,
            "gateway_busiest_load": load if policy == "plain" else 0.1,
            "unstable": "gateway" if policy in (unstable or {}).get(load, []) else None,
        }
        for load in loads
        for policy in ("plain", "queue")
    ]  # fmt: skip
    pairs = [
        {
            "workload": f"load {load}", "network": "n", "policy": "queue", "baseline": "plain",
            "verdict": verdict_of(changes[load]),
            **dict(zip(("change_percent", "low_percent", "high_percent"), changes[load], strict=True)),
        }
        for load in loads
    ]  # fmt: skip
    return load_sweep(rows, pairs, [f"load {load}" for load in loads], "n", "queue", "plain")


SAME, FASTER, SLOWER = (0.1, -0.5, 0.7), (-3.0, -4.0, -2.0), (2.0, 1.0, 3.0)


def test_faster_from_a_load_on() -> None:
    sweep = swept({0.2: SAME, 0.4: FASTER, 0.6: (-9.0, -10.0, -8.0), 0.9: (-50.0, -60.0, -40.0)})
    assert [point["load"] for point in sweep["points"]] == [0.2, 0.4, 0.6, 0.9]
    assert (sweep["never_slower"], sweep["faster_from"]) == (True, 0.4)
    assert sweep["sentence"] == (
        "n, load 0.20 to 0.90 under plain: queue is never slower than plain beyond the interval; faster from load 0.40 on "
        "(-3.0 % [-4.0, -2.0] at load 0.40, -50 % [-60, -40] at load 0.90)."
    )


def test_faster_everywhere() -> None:
    sweep = swept({0.2: FASTER, 0.9: FASTER})
    assert (sweep["never_slower"], sweep["faster_from"]) == (True, 0.2)
    assert "faster at every load (-3.0 % [-4.0, -2.0] at load 0.20, " in sweep["sentence"]


def test_a_load_at_which_it_is_slower_is_named() -> None:
    sweep = swept({0.2: SLOWER, 0.4: SAME, 0.9: FASTER})
    assert (sweep["never_slower"], sweep["faster_from"]) == (False, 0.9)
    assert "queue is slower than plain at load 0.20 (+2.0 % [+1.0, +3.0]); faster from load 0.90 on (" in sweep["sentence"]
    assert "never" not in sweep["sentence"]


def test_a_gain_that_does_not_last_is_no_from_on() -> None:
    sweep = swept({0.2: FASTER, 0.4: FASTER, 0.9: SAME})
    assert (sweep["never_slower"], sweep["faster_from"]) == (True, None)
    assert sweep["sentence"].endswith("0.40 (-3.0 % [-4.0, -2.0]), and not at the greatest load.")


def test_a_gain_with_a_gap_in_it_says_so() -> None:
    sweep = swept({0.2: FASTER, 0.4: SAME, 0.6: FASTER, 0.9: FASTER})
    assert sweep["faster_from"] == 0.6
    assert "faster from load 0.60 on" in sweep["sentence"]
    assert sweep["sentence"].endswith(", and at load 0.20 (-3.0 % [-4.0, -2.0]) below that.")


def test_nothing_gained_is_nothing_said_to_be_gained() -> None:
    sweep = swept({0.2: SAME, 0.9: SAME})
    assert (sweep["never_slower"], sweep["faster_from"]) == (True, None)
    assert sweep["sentence"].endswith("nowhere faster beyond the interval.")
    everywhere = swept(dict.fromkeys((0.1, 0.2, 0.3, 0.4, 0.5), SLOWER))
    assert "and 2 more" in everywhere["sentence"]


def test_one_replication_claims_nothing() -> None:
    sweep = swept({0.2: (-1.0, None, None), 0.9: (-40.0, None, None)})
    assert (sweep["never_slower"], sweep["faster_from"]) == (None, None)
    assert "with one replication this may be chance" in sweep["sentence"]
    assert "never slower" not in sweep["sentence"]


def test_loads_without_a_steady_state_are_named_with_whose_it_is() -> None:
    sweep = swept({0.2: SAME, 0.9: FASTER, 1.1: FASTER, 1.4: FASTER}, {1.1: ["plain"], 1.4: ["plain", "queue"]})
    assert sweep["sentence"].endswith(
        " At load 1.10 plain is unstable: the change there depends on how long the run lasts."
        " At load 1.40 both plain and queue are unstable: the change there depends on how long the run lasts."
    )
    assert [point["unstable"] for point in sweep["points"]] == [[], [], ["plain"], ["plain", "queue"]]


def test_what_was_not_run_or_has_no_load_is_refused() -> None:
    with pytest.raises(KeyError):
        load_sweep([], [], ["w"], "n", "queue", "plain")
