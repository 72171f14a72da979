"""Metrics and requirements: reading them, and judging a run by them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from simnmt.base.errors import InputError
from simnmt.results.metrics import Assessment, Requirement, metric
from simnmt.results.places import ALL, Place
from simnmt.results.run import Run


@pytest.mark.parametrize(
    ("text", "column", "comparison", "limit"),
    [
        ("p95_ms<=300", "p95_latency_s", "<=", 300.0),
        (" mean_ms  <= 12.5 ", "mean_latency_s", "<=", 12.5),
        ("p99.9_ms≤1e3", "p999_latency_s", "<=", 1000.0),
        ("p50_ms<=1", "p50_latency_s", "<=", 1.0),
        ("deadline_met_share>=98.7654321%", "deadline_met_share", ">=", 0.987654321),
        ("goodput_rps>=1234567.8", "goodput_rps", ">=", 1234567.8),
        ("first_token_p95_ms<=80", "p95_first_token_s", "<=", 80.0),
        ("first_token_ms<=80", "mean_first_token_s", "<=", 80.0),
        (" stable ", "stable", ">=", 1.0),
    ],
)
def test_a_requirement_is_read_from_metric_comparison_and_limit(text: str, column: str, comparison: str, limit: float) -> None:
    requirement = Requirement.parse(text)
    assert (requirement.metric.column, requirement.comparison, requirement.limit) == (column, comparison, limit)
    assert Requirement.parse(str(requirement)) == requirement


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "p95_ms",
            "p95_ms<300",
            "p95_ms<=300ms",
            "p95_ms<=nan",
            "p95_ms<=0",
            "p95_ms<=-3",
            "p95_sm<=300",
            "p999_ms<=300",
            "p49_ms<=300",
        ),
        *("p99.95_ms<=300", "p100_ms<=300", "p95_ms>=300", "energy_j≥2", "goodput_rps<=20", "deadline_met_share<=50%"),
        *("deadline_met_share>=1.5", "goodput_rps>=fast", "stable>=0.5", "stable<=1"),
    ],
)
def test_a_text_that_is_no_requirement_is_refused_with_its_metric(text: str) -> None:
    with pytest.raises(InputError) as refused:
        Requirement.parse(text)
    assert "e-12" not in str(refused.value)
    assert text.strip("<>=%0123456789≥") in str(refused.value) or text[:6] in str(refused.value)


def test_high_percentiles_need_ten_requests_beyond_them() -> None:
    assert [metric(f"p{q}_ms").least_requests for q in ("99", "99.5", "99.9")] == [1, 2_000, 10_000]
    metric("p99.9_ms").check_requests(10_000)
    with pytest.raises(InputError, match=r"p99\.9_ms"):
        metric("p99.9_ms").check_requests(9_999)


def assessed(text: str, values: list[float | None], **row: Any) -> Assessment:
    requirement = Requirement.parse(text)
    return requirement.assess({"requests": 100, **row}, {requirement.metric.column: values})


def test_the_assessment_states_value_headroom_and_how_many_replications_meet_the_limit() -> None:
    assessment = assessed("p95_ms<=250", [0.2, 0.22, 0.18, 0.26])
    assert assessment.value == pytest.approx(215.0)
    assert assessment.met and assessment.met_share == 0.75
    assert assessment.headroom == pytest.approx(35.0 / 250.0)
    assert assessment.low is not None and assessment.high is not None and assessment.low < 215.0 < 250.0 < assessment.high
    assert not assessment.sure
    least = assessed("goodput_rps>=25", [20.0, 22.0, 18.0, 26.0])
    assert not least.met and least.met_share == 0.25 and least.headroom == pytest.approx(-3.5 / 25.0)


def test_intervals_end_at_the_most_and_decide_whether_the_outcome_is_sure() -> None:
    assessment = assessed("deadline_met_share>=0.9", [1.0, 0.98, 0.9, 1.0])
    assert assessment.high == 1.0 and assessment.low is not None and assessment.low < 0.97
    assert assessed("mean_ms<=300", [0.2, 0.21, 0.19]).sure
    single = assessed("mean_ms<=300", [0.2])
    assert (single.met, single.low, single.high, single.sure) == (True, None, None, False)
    unstable = assessed("mean_ms<=300", [0.2, 0.2], unstable="cloud: load 1.30")
    assert not unstable.met and unstable.met_share == 0.0


def test_a_metric_that_a_run_lacks_is_refused() -> None:
    for values in ([], [0.2, None]):
        with pytest.raises(InputError, match="p97_ms"):
            assessed("p97_ms<=3", values)


def row(policy: str, network: str = "n", **columns: Any) -> dict[str, Any]:
    return {**Place(ALL, "w", network, policy)._asdict(), "requests": 100, **columns}


ROWS = [row("edge"), row("cloud"), row("edge", "far"), row("cloud", "far", unstable="cloud: load 1.30")]
RECOMMENDED = [Place(ALL, "w", network, policy)._asdict() for network, policy in (("n", "cloud"), ("far", "edge"))]
MEANS_S = {("n", "edge"): 0.3, ("n", "cloud"): 0.1, ("far", "edge"): 0.2, ("far", "cloud"): 0.1}
REPLICATED = {Place(ALL, "w", *place): {"mean_latency_s": [mean_s, mean_s]} for place, mean_s in MEANS_S.items()}


def met(text: str, recommended: Any = RECOMMENDED, **place: str) -> list[tuple[str, str, bool]]:
    placed = Run("r", 1, ROWS, recommendations=recommended, replicated=REPLICATED).assess(text, **place)
    return [(one.network, one.policy, one.met) for one in placed]


def test_an_assertion_judges_the_recommended_policy_of_every_place_or_the_named_one() -> None:
    assert met("mean_ms<=150") == [("n", "cloud", True), ("far", "edge", False)]
    assert met("edge: mean_ms<=250") == [("n", "edge", False), ("far", "edge", True)]
    assert met("cloud:mean_ms<=250") == [("n", "cloud", True), ("far", "cloud", False)]
    assert met("mean_ms<=150", network="far") == [("far", "edge", False)]


def test_an_assertion_on_a_missing_policy_or_place_is_refused() -> None:
    with pytest.raises(InputError, match="clod"):
        met("clod: mean_ms<=1")
    with pytest.raises(InputError, match="mars"):
        met("mean_ms<=1", network="mars")
    with pytest.raises(InputError, match="w on n"):
        met("mean_ms<=1", [RECOMMENDED[0] | {"policy": None}])


@pytest.mark.parametrize(
    ("text", "lost_share", "is_met"),
    [
        ("p95_ms<=300", 0.0, True),
        ("p95_ms<=300", 0.03, True),
        ("p95_ms<=120", 0.03, False),
        ("p95_ms<=300", 0.06, False),
        ("mean_ms<=300", 0.001, False),
        ("deadline_met_share>=0.5", 0.3, True),
    ],
)
def test_a_lost_request_counts_as_infinitely_late(text: str, lost_share: float, is_met: bool) -> None:
    row = {"requests": 1_000, "replications": 1, "lost_share": lost_share}
    columns = {"mean_latency_s": [0.05], "p95_latency_s": [0.1], "p99_latency_s": [0.2], "deadline_met_share": [0.7]}
    assessment = Requirement.parse(text).assess(row, columns)
    assert assessment.met == is_met
    assert Assessment.of_json(json.loads(json.dumps(assessment.as_json()))) == assessment
