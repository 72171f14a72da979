"""Rows, regret and paired comparisons."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simnmt.results.metrics import Criteria, metric
from simnmt.results.places import ALL, Place
from simnmt.results.requests import RequestLog, Requests, Trail, Truth
from simnmt.results.summary import PARTS, Device, comparisons, measure, rows, with_deadlines_of_all

Runs = dict[tuple[str, str, str], list[dict[str, float | None]]]


def totals(**per_policy: list[float]) -> Runs:
    """Runs of one cell that differ in their total latency alone, per policy and replication."""
    return {
        Place(ALL, "w", "n", policy): [{"total_latency_s": total_s} for total_s in runs_of]
        for policy, runs_of in per_policy.items()
    }


DEVICES = (Device("gateway", 1, 1), Device("cloud", 2, 2))


def truth(requests: int = 4, transfer_s: tuple[float, ...] = (1.0, 1.0, 9.0, 1.0)) -> Truth:
    return Requests(
        node=np.arange(requests, dtype=np.int32),
        src_len=np.full(requests, 10),
        tgt_len=np.full(requests, 8),
        execution_s=(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.5, 0.5, 0.5, 0.5])),
        transfer_s=(np.zeros(requests), np.array(transfer_s)),
        rtt_time_s=np.arange(4.0),
    )


TRAIL = Trail(
    {
        "arrival_s": np.array([0.0, 1.0, 2.0, 3.0]),
        "target": np.array([0, 1, 1, 1], np.int8),
        "server": np.array([0, 0, 1, 1], np.int32),
        "queue_s": np.array([0.0, 0.25, 0.0, 2.0]),
        "estimate_s": np.full(4, 0.7),
        "estimate_age_s": np.array([0.0, 1.0, 1.5, 0.5]),
    },
    tgt_len_by_src_len=np.full((1, 11), np.nan),
)


def test_the_log_of_four_requests_by_hand() -> None:
    log = RequestLog.of(truth(), TRAIL)
    assert " ".join(log) == (
        "request_id node arrival_s src_len tgt_len tgt_len_predicted target server t_queue_s t_exe_s t_tx_s latency_s "
        "first_token_s rtt_time_s rtt_estimate_s rtt_estimate_age_s outcome energy_j"
    )
    assert log["t_exe_s"].tolist() == [1.0, 0.5, 0.5, 0.5]
    assert log["t_tx_s"].tolist() == [0.0, 1.0, 9.0, 1.0]
    assert log["latency_s"].tolist() == [1.0, 1.75, 9.5, 3.5]
    assert log["rtt_estimate_age_s"].tolist() == [0.0, 1.0, 1.5, 0.5]
    assert log["request_id"].tolist() == [0, 1, 2, 3]
    assert not log["outcome"].any()
    assert {name: str(log[name].dtype) for name in ("request_id", "node", "src_len", "tgt_len", "target", "outcome")} == {
        "request_id": "int32", "node": "int32", "src_len": "int32", "tgt_len": "int32", "target": "int8", "outcome": "int8",
    }  # fmt: skip
    corrected = replace(truth(transfer_s=(7.0,) * 4), rtt_time_s=np.full(4, 0.125))
    log = RequestLog.of(truth(), replace(TRAIL, truth=corrected))
    assert log["t_tx_s"].tolist() == [0.0, 7.0, 7.0, 7.0] and log["rtt_time_s"].tolist() == [0.125] * 4


def test_the_numbers_of_that_run() -> None:
    numbers = measure(RequestLog.of(truth(), TRAIL), np.array([0.0, 0.0, 7.5, 0.0]), DEVICES, "back_to_back")
    assert numbers == {
        "total_latency_s": 15.75, "mean_latency_s": 3.9375, "p50_latency_s": 2.625,
        "p90_latency_s": pytest.approx(7.7), "p95_latency_s": pytest.approx(8.6),
        "p99_latency_s": pytest.approx(9.32), "p999_latency_s": None, "offloaded_share": 0.75, "hit_share": None,
        "misrouted_share": 0.25, "mean_decision_regret_s": 1.875, "mean_queue_s": 0.5625, "mean_execution_s": 0.625,
        "mean_transfer_s": 2.75, "beyond_p95_queue_s": 0.0, "beyond_p95_execution_s": 0.5,
        "beyond_p95_transfer_s": 9.0, "mean_estimate_age_s": 0.75, "mean_energy_j": None, "offered_rps": None,
        "deadline_met_share": None, "goodput_rps": pytest.approx(4 / 11.5), "good_within_s": None,
        "gateway_share": 0.25, "gateway_load": None, "gateway_busiest_load": None, "cloud_share": 0.75,
        "cloud_load": None, "cloud_busiest_load": None, "makespan_s": 11.5,
        "throughput_rps": pytest.approx(4 / 11.5),
    }  # fmt: skip


def test_an_answer_within_the_deadline_is_good_and_shares_are_of_all_requests() -> None:
    log = {name: np.array(column) for name, column in RequestLog.of(truth(), TRAIL).items()}
    latency_s = sorted(log["latency_s"].tolist())
    criteria = Criteria((metric("p75_ms"),), deadline_s=latency_s[2], good_within_s=latency_s[1])
    numbers = measure(log, None, DEVICES, "back_to_back", criteria=criteria)
    assert numbers["deadline_met_share"] == 0.75
    assert numbers["goodput_rps"] == pytest.approx(2 / 11.5) and numbers["good_within_s"] == latency_s[1]
    assert numbers["p75_latency_s"] == pytest.approx(np.quantile(log["latency_s"], 0.75))
    with_lost = with_deadlines_of_all(numbers, 0.8)
    assert with_lost == numbers | {"deadline_met_share": pytest.approx(0.6)}


def test_without_the_warm_up_rates_begin_with_the_first_request_that_counts() -> None:
    log = RequestLog.of(truth(), TRAIL)
    whole, rest = log, RequestLog.of(truth(), TRAIL, slice(1, 4))
    start_s = float(whole["arrival_s"][1])
    numbers = measure(rest, np.zeros(3), DEVICES, "open", start_s=start_s)
    assert numbers["total_latency_s"] == whole["latency_s"][1:].sum()
    assert numbers["throughput_rps"] == pytest.approx(3 / (11.5 - start_s))
    assert numbers["offered_rps"] == pytest.approx(3 / (float(whole["arrival_s"].max()) - start_s))


def test_the_first_token_is_back_after_the_transfer_and_unknown_where_one_request_has_none() -> None:
    columns = {name: np.array(column) for name, column in RequestLog.of(truth(), TRAIL).items()}
    columns |= {"first_token_s": np.array([0.1, 0.2, 0.3, np.nan]), "tgt_len": np.array([5, 6, 7, 0])}
    batching = [replace(device, batch=4) for device in DEVICES]
    numbers = measure(columns, None, batching, "open")
    expected_s = np.append(columns["t_tx_s"][:3] + columns["first_token_s"][:3], columns["latency_s"][3])
    assert numbers["mean_first_token_s"] == pytest.approx(expected_s.mean())
    assert numbers["p95_first_token_s"] == pytest.approx(np.quantile(expected_s, 0.95))
    assert numbers["p999_first_token_s"] is None
    unknown = measure(columns | {"tgt_len": np.array([5, 6, 7, 1])}, None, batching, "open")
    assert unknown["mean_first_token_s"] is None and unknown["p95_first_token_s"] is None


def test_a_load_is_work_over_what_could_be_done_until_the_last_arrival() -> None:
    """One second at the gateway; in the cloud half a second on the one box, a whole one on the other, two workers each."""
    numbers = measure(RequestLog.of(truth(), TRAIL), np.zeros(4), DEVICES, "open")
    assert numbers["gateway_load"] == numbers["gateway_busiest_load"] == pytest.approx(1 / 3)
    assert numbers["cloud_load"] == pytest.approx(1.5 / (2 * 2 * 3))
    assert numbers["cloud_busiest_load"] == pytest.approx(1.0 / (2 * 3))
    assert numbers["offered_rps"] == pytest.approx(4 / 3)


def test_in_a_closed_loop_a_load_is_work_over_what_could_be_done_until_the_last_answer() -> None:
    """Clients that all ask at once issue their last request long before the work is done."""
    for arrival_s, makespan_s, offered_rps in ((TRAIL.arrival_s, 11.5, 4 / 3), (np.zeros(4), 9.5, None)):
        log = RequestLog.of(truth(), TRAIL.with_columns(arrival_s=arrival_s))
        numbers = measure(log, np.zeros(4), DEVICES, "closed")
        assert numbers["gateway_load"] == pytest.approx(1 / makespan_s)
        assert numbers["cloud_busiest_load"] == pytest.approx(1.0 / (2 * makespan_s))
        assert numbers["offered_rps"] == (offered_rps and pytest.approx(offered_rps))


def test_the_parts_of_the_slowest_add_up_to_their_latency() -> None:
    draw = np.random.default_rng(5)
    log = {
        "arrival_s": np.zeros(1_000), "target": np.zeros(1_000, np.int8), "server": np.zeros(1_000, np.int32),
        "rtt_estimate_age_s": np.zeros(1_000), "energy_j": np.zeros(1_000),
        **{part: draw.exponential(size=1_000) for part in PARTS.values()},
    }  # fmt: skip
    log["latency_s"] = sum(log[part] for part in PARTS.values())
    numbers = measure(log, np.zeros(1_000), DEVICES[:1], "open")
    slowest = np.sort(log["latency_s"])[-50:]
    assert sum(numbers[f"beyond_p95_{part}_s"] for part in PARTS) == pytest.approx(slowest.mean())
    assert sum(numbers[f"mean_{part}_s"] for part in PARTS) == pytest.approx(log["latency_s"].mean())


def test_regret_is_taken_within_a_replication_and_is_unknown_without_an_oracle() -> None:
    runs = totals(best=[10.0, 20.0], other=[13.0, 19.0])
    assert [row["regret_s"] for row in rows(runs, 1, oracle="best")] == [0.0, 1.0]
    row = rows(runs, 1)[0]
    assert (row["regret_s"], row["regret_s_low"], row["regret_s_high"]) == (None, None, None)


@pytest.mark.parametrize(
    ("other", "queues", "below_zero"),
    [
        ([10.0, 10.0, 13.0], False, False),
        ([10.0, 10.0, 13.0], True, True),
        # Back to back on the run's own clock a slow choice may dodge a peak and beat the oracle.
        ([9.0, 10.5, 10.2], False, True),
        ([10.1, 9.9, 10.0], False, True),
    ],
)
def test_the_interval_of_a_regret_goes_below_zero_only_where_requests_wait_or_the_oracle_was_beaten(
    other: list[float], queues: bool, below_zero: bool
) -> None:
    runs, load = totals(best=[10.0, 10.0, 10.0], other=other), {"cloud_busiest_load": 0.5} if queues else {}
    table = rows({place: [{**numbers, **load} for numbers in runs_of] for place, runs_of in runs.items()}, 1, oracle="best")
    row = next(row for row in table if row["policy"] == "other")
    assert row["regret_s_low"] < row["regret_s"] < row["regret_s_high"]
    assert (row["regret_s_low"] < 0.0) == below_zero and row["regret_s_high"] > 0.0


def test_rows_are_means_over_replications_in_the_order_of_the_runs() -> None:
    runs: Runs = {}
    for workload, network in (("b", "y"), ("b", "x"), ("a", "y")):
        for policy in ("second", "first"):
            runs[Place(ALL, workload, network, policy)] = [
                {"total_latency_s": 10.0 + number, "p999_latency_s": None, "makespan_s": 5.0} for number in range(3)
            ]
    table = rows(runs, 77)
    cells = [("b", "y"), ("b", "x"), ("a", "y")]
    assert [Place.of(row) for row in table] == [Place(ALL, *cell, policy) for cell in cells for policy in ("second", "first")]
    for row in table:
        assert row["requests"] == 77
        assert row["replications"] == 3
        assert row["total_latency_s"] == 11.0
        # On the logarithmic scale; 4.7645 is Student's quantile of 2 / (1 + 19 (1 / 11)^2 2 / 3) = 1.81 degrees of freedom.
        half = 4.7645 / np.sqrt(3) / 11.0
        bounds = (row["total_latency_s_low"], row["total_latency_s_high"])
        assert bounds == (pytest.approx(11 * np.exp(-half), rel=1e-3), pytest.approx(11 * np.exp(half), rel=1e-3))
        assert row["p999_latency_s"] is None
        assert "makespan_s_low" not in row
    row = rows(totals(a=[4.0]), 1)[0]
    assert (row["total_latency_s"], row["total_latency_s_low"], row["total_latency_s_high"]) == (4.0, None, None)


def test_comparisons_of_every_policy_with_every_other_baseline_are_paired_by_replication() -> None:
    """Always two percent faster, though the replications themselves differ by a factor of ten."""
    base = [100.0, 1_000.0, 400.0]
    table = comparisons(totals(base=base, ours=[98.0, 980.0, 392.0], twice=[200.0, 2_000.0, 800.0]), ["base", "twice"])
    pairs = {(row["policy"], row["baseline"]): row["change_percent"] for row in table}
    expected = {("base", "twice"): -50.0, ("ours", "base"): -2.0, ("ours", "twice"): -51.0, ("twice", "base"): 100.0}
    assert pairs == {pair: pytest.approx(change) for pair, change in expected.items()}
    pair = next(row for row in table if (row["policy"], row["baseline"]) == ("ours", "base"))
    assert pair["effect"] == "faster" and (pair["low_percent"], pair["high_percent"]) == pytest.approx((-2.0, -2.0))


@pytest.mark.parametrize(
    ("ours", "effect"),
    [
        ([90.0, 91.0, 89.0], "faster"),
        ([110.0, 111.0, 109.0], "slower"),
        ([90.0, 111.0, 101.0], "not distinguishable"),
        ([100.0, 100.0, 100.0], "same"),
        ([100.0, 100.0, 100.5], "not distinguishable"),
        ([90.0], "one replication"),
    ],
)
def test_effects_of_comparisons(ours: list[float], effect: str) -> None:
    (pair,) = comparisons(totals(base=[100.0] * len(ours), ours=ours), ["base"])
    assert pair["effect"] == effect
    assert pair["change_percent"] == pytest.approx(np.mean(ours) - 100.0)
    if effect == "one replication":
        assert pair["low_percent"] is None and pair["high_percent"] is None
    else:
        assert pair["low_percent"] <= pair["change_percent"] <= pair["high_percent"]
