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


@pytest.mark.parametrize(
    ("changes", "never_slower", "faster_from", "said"),
    [
        ({0.2: SAME, 0.4: FASTER, 0.6: (-9.0, -10.0, -8.0), 0.9: FASTER}, True, 0.4, "faster from load 0.40 on"),
        ({0.2: FASTER, 0.9: FASTER}, True, 0.2, "faster from load 0.20 on"),
        ({0.2: SLOWER, 0.4: SAME, 0.9: FASTER}, False, 0.9, "slower at load 0.20; faster from load 0.90 on"),
        ({0.2: FASTER, 0.4: FASTER, 0.9: SAME}, True, None, "not faster beyond the interval at the greatest load"),
        ({0.2: FASTER, 0.4: SAME, 0.6: FASTER, 0.9: FASTER}, True, 0.6, "faster from load 0.60 on"),
        ({0.2: (-1.0, None, None), 0.9: (-40.0, None, None)}, None, None, "this may be chance"),
    ],
)
def test_a_sweep_claims_what_its_comparisons_have(
    changes: dict[float, Change], never_slower: bool | None, faster_from: float | None, said: str
) -> None:
    sweep = swept(changes)
    assert [point["load"] for point in sweep["points"]] == sorted(changes)
    assert (sweep["never_slower"], sweep["faster_from"]) == (never_slower, faster_from)
    assert said in sweep["sentence"]


def test_loads_without_a_steady_state_are_named() -> None:
    sweep = swept({0.2: SAME, 0.9: FASTER, 1.1: FASTER, 1.4: FASTER}, {1.1: ["plain"], 1.4: ["plain", "queue"]})
    assert sweep["sentence"].endswith("at load 1.10 and 1.40.")
    assert [point["unstable"] for point in sweep["points"]] == [[], [], ["plain"], ["plain", "queue"]]


def test_what_was_not_run_or_has_no_load_is_refused() -> None:
    with pytest.raises(KeyError):
        load_sweep([], [], ["w"], "n", "queue", "plain")
