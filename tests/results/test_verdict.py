"""The sentence says what the numbers say."""

from __future__ import annotations

import re
from typing import Any

import pytest

from simnmt.results.stability import marked, with_stability
from simnmt.results.summary import Device, RunKey, comparisons, rows
from simnmt.results.verdict import Reason, Roles, verdict

ROLES = Roles("cnmt", ["edge", "cloud"], "oracle")
REASON = Reason(transfer_s=0.0801, kept="up to 17 tokens", best_offloaded_share=0.6, queues=False)


Record = dict[str, Any]


def judged(
    reason: Reason = REASON,
    roles: Roles = ROLES,
    oracle_share: float = 0.5,
    away: float = 0.38,
    loads: dict[str, float] | None = None,
    **totals_s: list[float],
) -> tuple[Record, list[Record]]:
    """The verdict on made-up totals per policy and replication, and the comparisons behind it.

    `loads`: of the gateway, by policy; requests come 20 a second.
    """
    runs = {
        RunKey("de-en", "cp1", policy, replication): {
            "total_latency_s": total_s,
            "mean_latency_s": total_s / 1_000,
            "offloaded_share": oracle_share if policy != "cnmt" else away,
            "offered_rps": 20.0,
            "gateway_share": 0.5,
            "gateway_load": (loads or {}).get(policy, 0.3),
            "gateway_busiest_load": (loads or {}).get(policy, 0.3),
        }
        for policy, replications in totals_s.items()
        for replication, total_s in enumerate(replications)
    }
    plain = roles.variants.values()
    compared = comparisons(runs, [name for name in totals_s if name != "cnmt" or name in plain])  # type: ignore[arg-type]
    table = with_stability(rows(runs, 6_000), runs, {"de-en": [Device("gateway", 1, 1)]})  # type: ignore[arg-type]
    pairs = marked(compared, table)
    return verdict("de-en", "cp1", table, pairs, roles, reason), pairs


def numbers(sentence: str) -> list[float]:
    """Change and interval as the sentence prints them, without the sign that its verb has."""
    found = re.search(r"([+-]?[\d.]+) % \[([+-]?[\d.]+), ([+-]?[\d.]+)\]", sentence)
    assert found is not None, sentence
    return [float(number) for number in found.groups()]


@pytest.mark.parametrize(
    ("cnmt", "says"),
    [
        ([80.0, 82.0, 81.0], "cnmt beats the better single device (cloud) by"),
        ([120.0, 122.0, 118.0], "cnmt loses to the better single device (cloud) by"),
    ],
)
def test_a_clear_outcome_is_said_with_its_interval(cnmt: list[float], says: str) -> None:
    record, pairs = judged(edge=[130.0, 131.0, 132.0], cloud=[100.0, 100.5, 99.5], cnmt=cnmt)
    (pair,) = [pair for pair in pairs if (pair["policy"], pair["baseline"]) == ("cnmt", "cloud")]
    assert says in record["sentence"]
    assert record["sentence"].startswith("de-en on cp1: ")
    size, smaller, larger = numbers(record["sentence"])
    assert size == round(abs(pair["change_percent"]), 2)
    assert [smaller, larger] == sorted(round(abs(pair[key]), 2) for key in ("low_percent", "high_percent"))
    assert smaller <= size <= larger
    for key in ("baseline", "change_percent", "low_percent", "high_percent"):
        assert record[key] == pair[key]


def test_the_baseline_is_the_better_single_device() -> None:
    assert judged(edge=[90.0], cloud=[100.0], cnmt=[80.0])[0]["baseline"] == "edge"
    assert judged(edge=[100.0], cloud=[90.0], cnmt=[80.0])[0]["baseline"] == "cloud"
    assert judged(oracle=[1.0], edge=[100.0], cloud=[90.0], cnmt=[80.0])[0]["baseline"] == "cloud"


def test_what_cannot_be_told_apart_is_said_to_be_so() -> None:
    record, _ = judged(edge=[130.0] * 3, cloud=[100.0] * 3, cnmt=[95.0, 106.0, 100.5])
    assert "cnmt and the better single device (cloud) cannot be told apart" in record["sentence"]
    assert "beats" not in record["sentence"]
    change, low, high = numbers(record["sentence"])
    assert low <= 0.0 <= high
    assert [change, low, high] == [round(record[key], 2) for key in ("change_percent", "low_percent", "high_percent")]


def test_what_is_the_same_in_every_replication_is_not_merely_indistinguishable() -> None:
    totals = [100.0, 101.0, 99.0]
    record, _ = judged(edge=[130.0] * 3, cloud=totals, cnmt=totals)
    assert "cnmt takes exactly as long as the better single device (cloud) in every replication; with" in record["sentence"]
    roles = Roles("cnmt", ["edge", "cloud"], None, {"queue": "cnmt"})
    beside, _ = judged(roles=roles, edge=[130.0] * 3, cloud=[110.0] * 3, cnmt=totals, queue=totals)
    assert beside["variants"] == "Beside cnmt: queue is exactly as fast in every replication."


def test_one_replication_claims_no_interval() -> None:
    record, _ = judged(edge=[130.0], cloud=[100.0], cnmt=[90.0])
    assert "beats the better single device (cloud) by 10.00 % [one replication: no interval]" in record["sentence"]
    assert record["low_percent"] is None and record["high_percent"] is None
    record, _ = judged(edge=[130.0], cloud=[100.0], cnmt=[110.0])
    assert "loses to the better single device (cloud) by 10.00 %" in record["sentence"]


def test_a_tie_in_one_replication_is_no_defeat() -> None:
    record, _ = judged(edge=[130.0], cloud=[100.0], cnmt=[100.0])
    assert "cnmt takes exactly as long as the better single device (cloud) [one" in record["sentence"]


def test_a_win_is_given_its_reason() -> None:
    sentence = judged(oracle=[80.0], edge=[130.0], cloud=[100.0], cnmt=[90.0])[0]["sentence"]
    assert sentence.endswith(
        ", because with a transfer of 80 ms it mostly keeps sentences of up to 17 tokens at the gateway and sends 38 % away, "
        "where the oracle sends 50 %."
    )


@pytest.mark.parametrize("cnmt", [[110.0], [100.0], [95.0, 106.0, 100.5]])
def test_what_is_no_win_is_described_and_not_reasoned(cnmt: list[float]) -> None:
    single = len(cnmt)
    sentence = judged(oracle=[80.0] * single, edge=[130.0] * single, cloud=[100.0] * single, cnmt=cnmt)[0]["sentence"]
    assert "because" not in sentence
    assert "; with a transfer of 80 ms it mostly keeps" in sentence


@pytest.mark.parametrize(("away", "says"), [(0.0, "it sends nothing away, where"), (1.0, "it sends everything away, where")])
def test_a_policy_that_always_does_the_same_is_said_to(away: float, says: str) -> None:
    """However the rule looks at the mean transfer time: a wrong first estimate can lock it for good."""
    sentence = judged(away=away, oracle=[80.0], edge=[100.0], cloud=[130.0], cnmt=[100.0])[0]["sentence"]
    assert says in sentence
    assert "mostly keeps" not in sentence


def test_an_unstable_policy_has_no_mean_and_what_is_known_is_said_instead() -> None:
    """300 s of 20 requests a second at load 1.25: 16 could be served, the last waits 300 * 0.25 s, 60 s come at 240."""
    loads = {"cnmt": 1.25, "edge": 2.0}
    record, _ = judged(loads=loads, edge=[130.0], cloud=[100.0], cnmt=[900.0])
    assert record["sentence"] == (
        "de-en on cp1: cnmt is unstable: load 1.25 at the gateway, which is asked for more than it can do, so there is no "
        "mean to be known. Known is that as cnmt shares them out it can take 16 requests a second, where 20 come; a wait there "
        "grows by 0.25 s each second, to 60 s after 4 min and to 75 s by the time the last request of this run comes, 5 min "
        "after its beginning. The single device cloud is stable, with 100 ms on average."
    )
    assert record["unstable"] == "gateway: load 1.25"
    assert "unstable" not in judged(loads={"cnmt": 0.99}, edge=[130.0], cloud=[100.0], cnmt=[90.0])[0]["sentence"]


def test_a_policy_that_is_unstable_in_some_replications_is_said_to_be() -> None:
    runs = {
        RunKey("w", "n", "edge", replication): {
            "total_latency_s": 90.0, "mean_latency_s": 0.09, "offloaded_share": 0.5, "offered_rps": 20.0,
            "gateway_share": 1.0, "gateway_load": load, "gateway_busiest_load": load,
        }
        for replication, load in enumerate((0.7, 0.8, 1.1))
    }  # fmt: skip
    table = with_stability(rows(runs, 6_000), runs, {"w": [Device("gateway", 1, 1)]})
    sentence = verdict("w", "n", table, [], Roles("edge", [], None), REASON)["sentence"]
    assert sentence.startswith("w on n: edge is unstable in 1 of 3 replications: load 1.10 at the gateway")
    assert "a wait there grows by 0.1 s each second" in sentence


def test_a_stable_policy_beside_unstable_single_devices_is_not_compared_with_their_means() -> None:
    record, _ = judged(loads={"edge": 3.0, "cloud": 1.5}, edge=[130.0], cloud=[100.0], cnmt=[90.0])
    assert record["sentence"].startswith(
        "de-en on cp1: cnmt is stable and takes 90 ms on average, where no single device holds: edge (gateway: load 3.00), "
        "cloud (gateway: load 1.50); with a transfer of 80 ms it mostly keeps"
    )
    assert "Of these, cloud is unstable: load 1.50" in record["sentence"]
    assert "beats" not in record["sentence"]


def test_a_single_device_that_holds_is_the_better_one_however_short_the_run() -> None:
    """In a short run an overloaded device may have the smaller total."""
    record, _ = judged(loads={"edge": 1.2}, edge=[90.0], cloud=[100.0], cnmt=[80.0])
    assert record["baseline"] == "cloud"
    assert "no single device holds" not in record["sentence"]


def test_where_nothing_holds_that_is_said() -> None:
    sentence = judged(loads=dict.fromkeys(("edge", "cloud", "cnmt"), 2.0), edge=[9.0], cloud=[8.0], cnmt=[7.0])[0]["sentence"]
    assert sentence.endswith("No single device holds either: edge (gateway: load 2.00), cloud (gateway: load 2.00).")


def test_a_policy_called_as_its_device_is_named_once() -> None:
    loads = {"gateway": 1.5, "edge": 2.0, "cnmt": 2.0}
    both = Roles("cnmt", ["edge", "gateway"], None)
    assert judged(roles=both, loads=loads, edge=[9.0], gateway=[8.0], cnmt=[7.0])[0]["sentence"].endswith(
        " No single device holds either: edge (gateway: load 2.00), gateway (load 1.50)."
    )
    alone = Roles("cnmt", ["gateway"], None)
    assert judged(roles=alone, loads=loads, gateway=[8.0], cnmt=[7.0])[0]["sentence"].endswith(
        " The single device gateway does not hold either (load 1.50)."
    )


def test_what_goes_beyond_the_paper_is_held_against_the_plain_policy() -> None:
    roles = Roles("cnmt", ["edge", "cloud"], None, {"queue": "cnmt", "probing": "cnmt"})
    record, _ = judged(
        roles=roles, edge=[130.0] * 3, cloud=[99.0, 100.0, 101.0], cnmt=[90.0, 91.0, 92.0], queue=[81.0, 81.9, 82.8],
        probing=[90.0, 91.5, 91.6],
    )  # fmt: skip
    assert record["variants"].startswith(
        "Beside cnmt: queue is faster (-10.00 % [-10.00, -10.00]), probing cannot be told apart (+0.04"
    )
    assert judged(edge=[130.0], cloud=[100.0], cnmt=[90.0])[0]["variants"] == ""
    unstable, _ = judged(
        roles=roles, loads={"cnmt": 1.5}, edge=[130.0], cloud=[100.0], cnmt=[90.0], queue=[81.0], probing=[99.0]
    )
    assert unstable["variants"] == (
        "Beside cnmt: queue is stable, as cnmt is not (-10.00 % in this run), probing is stable, as cnmt is not (+10.00 % in "
        "this run)."
    )
    neither, _ = judged(roles=roles, loads={"cnmt": 1.5, "queue": 1.2}, edge=[1.0], cloud=[1.0], cnmt=[90.0], queue=[81.0])
    assert neither["variants"] == "Beside cnmt: queue is unstable, too (-10.00 % in this run)."


@pytest.mark.parametrize(("oracle_share", "trivial"), [(0.0, True), (0.19, True), (0.2, False), (0.8, False), (0.81, True)])
def test_the_choice_is_nearly_trivial_where_the_oracle_hardly_ever_chooses_otherwise(
    oracle_share: float, trivial: bool
) -> None:
    """By what the oracle does, queues and all, not by what would be fastest alone: that is 60 % here throughout."""
    record, _ = judged(oracle_share=oracle_share, oracle=[70.0], edge=[130.0], cloud=[100.0], cnmt=[90.0])
    assert record["trivial"] is trivial
    assert record["oracle_offloaded_share"] == oracle_share


def test_without_an_oracle_what_is_truly_faster_decides_about_that() -> None:
    shares = (0.1, 0.5, 0.9)
    roles = Roles("cnmt", ["edge", "cloud"], None)
    reasons = [Reason(0.08, "", share, queues=False) for share in shares]
    found = [judged(reason, roles, edge=[130.0], cloud=[100.0], cnmt=[90.0])[0] for reason in reasons]
    assert [record["trivial"] for record in found] == [True, False, True]
    assert [record["oracle_offloaded_share"] for record in found] == list(shares)
    assert found[0]["sentence"].endswith("sends 38 % away, where the cloud is truly faster for 10 %.")
    queues = judged(Reason(0.08, "", 0.6, queues=True), roles, edge=[130.0], cloud=[100.0], cnmt=[90.0])[0]
    assert queues["sentence"].endswith("where the cloud, queues left out, is truly faster for 60 %.")


def test_with_more_than_two_devices_another_one_may_be_faster() -> None:
    reason = Reason(0.08, "", 0.6, queues=False, devices=("end_node", "gateway", "cloud"))
    sentence = judged(reason, Roles("cnmt", ["edge", "cloud"], None), edge=[130.0], cloud=[100.0], cnmt=[90.0])[0]["sentence"]
    assert sentence.endswith("sends 38 % away, where another device is truly faster for 60 %.")


def test_with_no_single_device_there_is_nothing_to_compare_with() -> None:
    record, _ = judged(roles=Roles("cnmt", [], None), cnmt=[90.0, 92.0])
    assert record["sentence"] == "de-en on cp1: cnmt takes 91.0 ms on average; nothing to compare with."
    assert record["baseline"] is None and record["change_percent"] is None
