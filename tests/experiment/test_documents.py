"""Documents in runs: how their sentences are drawn and decided on, and when a document is answered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simnmt
from simnmt.base.errors import InputError
from simnmt.cli.run_text import format_result
from simnmt.experiment.cases import mixed_unit
from simnmt.experiment.draws import draw, learn_parts
from simnmt.scenario.errors import ScenarioError
from simnmt.workload.arrivals import RandomStream
from tests.units import plan_of, unit_of
from tests.world.theory import m_g_1_wait, queue_of

GEOMETRIC = {"sentences": {"dist": "geometric", "mean": 6}}
FAULTS = {"rtt": {"constant_ms": 20}, "outages": {"mean_between_s": 20.0, "mean_duration_s": 2.0}}


def scenario(documents: Any = GEOMETRIC, *, network: Any = None, **keys: Any) -> dict[str, Any]:
    """Twenty end nodes with documents, behind links to a gateway, and a cloud."""
    arrivals = {"kind": "poisson", "rate_rps": 2.0}
    return {
        "version": 1,
        "name": "documents",
        "requests": 1_500,
        "replications": 2,
        "workloads": {"news": {"lengths": "@de-en-news", "arrivals": arrivals, "documents": documents, "end_nodes": 20}},
        "networks": {"n": network or {"rtt": "@cp1", "hops": {"gateway": {"rtt": {"constant_ms": 20}, "uplink_mbps": 0.05}}}},
        "devices": {"gateway": {"profile": "@tx2-gru"}, "cloud": {"profile": "@titan-xp-gru"}},
        "fit": {"inferences": 500},
        "policies": {"cloud": {}, "cnmt": {}, "seeing": {"kind": "cnmt", "sees_backlog": True}},
    } | keys


def of_sentences(document: np.ndarray, values: np.ndarray) -> list[np.ndarray]:
    return np.split(values, np.flatnonzero(np.diff(document)) + 1)


def test_sentences_of_a_document_are_neighbours_of_one_node_that_are_decided_on_together() -> None:
    drawn = draw(unit := unit_of(plan_of(scenario())), learn_parts(unit))
    document, requests = drawn.truth.document, drawn.requests
    assert (
        document is not None and requests.document is not None and drawn.issued_s is not None and requests.arrival_s is not None
    )
    assert len(np.unique(document)) == pytest.approx(1_500 / 6, rel=0.2)
    assert (np.diff(document) >= 0).all()
    for column in (drawn.issued_s, drawn.truth.node):
        assert column is not None
        assert all(len(np.unique(values)) == 1 for values in of_sentences(document, column))
    # Behind links of their own documents overtake each other, as wholes.
    decided = requests.document
    assert drawn.decided_order is not None and (np.diff(decided) < 0).any()
    assert np.count_nonzero(np.diff(decided)) == len(np.unique(decided)) - 1
    assert all(len(np.unique(values)) == 1 for values in of_sentences(decided, requests.arrival_s))
    # A longer run begins with the shorter one, and documents arrive when sentences would.
    longer = draw(unit := unit_of(plan_of(scenario(requests=3_000))), learn_parts(unit)).truth.document
    np.testing.assert_array_equal(longer[:1_500], document)
    alone = draw(unit := unit_of(plan_of(scenario(None))), learn_parts(unit)).issued_s
    np.testing.assert_array_equal(np.unique(drawn.issued_s), alone[: len(np.unique(document))])


def test_documents_of_workloads_that_share_devices_are_different_and_other_sentences_are_by_themselves() -> None:
    mix = scenario()
    mix["workloads"] |= {"two": mix["workloads"]["news"], "plain": mix["workloads"]["news"] | {"documents": None}}
    plan = plan_of(mix)
    template = replace(unit_of(plan_of(scenario())), scenario=plan.scenario)
    drawn = draw(unit := mixed_unit(plan, template), learn_parts(unit))
    document, part = drawn.truth.document, drawn.part
    assert document is not None and part is not None
    by_part = [document[part == number] for number in range(3)]
    assert len(np.unique(document)) == sum(len(np.unique(numbers)) for numbers in by_part)
    assert len(np.unique(by_part[2])) == len(by_part[2]) < len(by_part[0])
    assert np.count_nonzero(np.diff(document)) == len(np.unique(document)) - 1


def test_a_document_is_answered_when_its_last_sentence_is() -> None:
    result = simnmt.run(scenario(metrics=["document_p80_ms"], objective="document_p95", slo={"document_mean_ms": 1e6}))
    log = result.requests.query("policy == 'cnmt'")
    whole_s, first_s = log.groupby("document").latency_s.max(), log.groupby("document").latency_s.min()
    again = simnmt.run(scenario(metrics=["document_p80_ms"], replications=1))
    row = again.rows.set_index("policy").loc["cnmt"]
    assert row.mean_document_s == pytest.approx(whole_s.mean()) and row.p80_document_s == pytest.approx(whole_s.quantile(0.8))
    assert row.mean_first_sentence_s == pytest.approx(first_s.mean())
    assert row.mean_first_sentence_s < row.mean_latency_s < row.mean_document_s
    assert (row.answered_documents_share, row.sentences_per_document) == (1.0, pytest.approx(1_500 / len(whole_s)))
    text = format_result(result)
    assert "document p95 ms" in text and "p95 time to a whole document" in text
    assert result.meets("document_p95_ms<=1e6") and not result.meets("first_sentence_p95_ms<=0.001")
    assert "mean_document_s" not in simnmt.run(scenario(None, replications=1)).rows


def test_rows_count_the_documents_of_workloads_that_have_them() -> None:
    mix = scenario(replications=1, policies={"cloud": {}}, objective="document_p95")
    mix["workloads"]["plain"] = mix["workloads"]["news"] | {"documents": None}
    result = simnmt.run(mix, assertions=["news: document_p95_ms<=1e6"])
    rows, log = result.rows.set_index("workload"), result.requests
    whole_s = log[log["workload"] == "news"].groupby("document").latency_s.max()
    for name in ("news", "all"):
        assert rows.loc[name].mean_document_s == pytest.approx(whole_s.mean())
        assert rows.loc[name].sentences_per_document == pytest.approx((log["workload"] == "news").sum() / len(whole_s))
    missing = ["mean_document_s", "p95_first_sentence_s", "answered_documents_share", "sentences_per_document"]
    assert rows.loc["plain", missing].isna().all()
    assert result.meets("news: document_p95_ms<=1e6") and "document ms" in format_result(result)
    alone = simnmt.run(mix | {"share_devices": False, "objective": "mean"}).rows.set_index("workload")
    assert alone.loc["plain", missing].isna().all() and alone.loc["news", missing].notna().all()
    for changes, place in (
        ({"slo": {"document_p95_ms": 300}}, "slo.document_p95_ms: "),
        ({"share_devices": False}, "objective: "),
    ):
        with pytest.raises(ScenarioError, match=rf"^{place}.*workload plain has no documents \(.*limit news alone"):
            simnmt.run(mix | changes)
    mix["workloads"]["news"]["slo"] = {"document_p95_ms": 1e6}
    assert simnmt.run(mix).recommendations[0]["slo_met"]
    with pytest.raises(InputError, match="workload plain has no documents"):
        simnmt.run(mix, assertions=["document_p95_ms<=300"])


def test_a_decision_by_document_holds_for_all_of_its_sentences() -> None:
    shares = {}
    for decide_by in ("sentence", "document"):
        log = simnmt.run(scenario(decide_by=decide_by, replications=1)).requests
        shares[decide_by] = log.groupby(["policy", "document"]).target.nunique().eq(1).groupby("policy").mean()
    assert (shares["document"] == 1.0).all()
    assert shares["sentence"]["seeing"] < 0.9 and shares["sentence"]["cloud"] == 1.0


def test_a_document_without_an_answer_to_each_sentence_is_not_answered() -> None:
    result = simnmt.run(scenario(network=FAULTS, replications=1, policies={"cloud": {}}))
    log, row = result.requests, result.rows.iloc[0]
    is_answered = log.groupby("document").latency_s.agg(lambda latency_s: latency_s.notna().all())
    assert row.lost_share > 0.0 and row.answered_documents_share == pytest.approx(is_answered.mean())
    whole_s = log.groupby("document").latency_s.max()[is_answered]
    assert row.mean_document_s == pytest.approx(whole_s.mean())
    (assessment,) = result.assess("document_p95_ms<=1e6")
    assert assessment.lost and assessment.lost_share == pytest.approx(1.0 - is_answered.mean()), "more than a twentieth"


def test_the_capacity_for_documents_is_that_of_m_d_1_with_whole_documents() -> None:
    queue = queue_of(1, "constant", requests=20_000)
    queue["workloads"]["w"]["documents"] = {"sentences": 3}
    best = simnmt.plan(queue, f"document_mean_ms<={30.0 * (1.0 + m_g_1_wait(0.7, 0.0))}").best
    assert best.rate_rps == pytest.approx(70.0, rel=0.03)


def test_sizes_are_those_of_a_log_or_of_the_blank_lines_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "counts.csv").write_text("t_s,sentences\n0,3\n1,3\n2,9\n")
    (tmp_path / "ids.csv").write_text("t_s,file\n0,a\n0,b\n1,a\n2,c\n3,c\n3,c\n")
    lines = ["eins zwei drei", "eins zwei", "", "vier", "vier fünf sechs", "sieben acht", "neun", "", "", "zehn elf"] * 20
    for side in ("de", "en"):
        (tmp_path / f"text.{side}").write_text("\n".join(lines))
    forms: list[tuple[Any, dict[int, float]]] = [
        ({"recorded": str(tmp_path / "counts.csv"), "column": "sentences"}, {3: 2 / 3, 9: 1 / 3}),
        ({"recorded": str(tmp_path / "ids.csv"), "column": "file", "rows": "sentences"}, {1: 1 / 3, 2: 1 / 3, 3: 1 / 3}),
        ({"corpus": True}, {3: 19 / 41, 4: 20 / 41, 2: 1 / 41, 1: 1 / 41}),
        ({"sentences": {"dist": "randint", "low": 2, "high": 4}}, {2: 0.5, 3: 0.5}),
    ]
    for documents, shares in forms:
        one = scenario(documents, requests=20_000)
        if documents == {"corpus": True}:
            text = {"source": str(tmp_path / "text.de"), "target": str(tmp_path / "text.en")}
            one["workloads"]["news"]["lengths"] = text | {"src_unit": "word", "tgt_unit": "word"}
        case = unit_of(plan_of(one)).case
        assert not case.warnings, "blank lines are no pairs that were dropped"
        document = case.arrivals.documents(20_000, RandomStream(1, 0, "sizes"))
        assert document is not None
        sizes, counts = np.unique(np.bincount(document)[:-1], return_counts=True)
        assert dict(zip(sizes.tolist(), counts / counts.sum(), strict=True)) == pytest.approx(shares, abs=0.03)
        mean = sum(size * share for size, share in shares.items())
        assert case.arrivals.mean_rate_rps == pytest.approx(2.0 * mean)
    per_day = scenario()["workloads"]["news"] | {"arrivals": {"kind": "poisson", "characters_per_day": 8_640_000.0}}
    case = unit_of(plan_of(scenario(workloads={"news": per_day | {"characters_per_request": 50}}))).case
    assert case.arrivals.mean_rate_rps == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"documents": {"sentences": 0}}, "workloads.news.documents.sentences"),
        ({"documents": {"sentences": {"dist": "geometric", "mean": 0.5}}}, "workloads.news.documents.sentences.mean"),
        ({"documents": {"sentences": {"dist": "geometric"}}}, "workloads.news.documents.sentences"),
        ({"documents": {"sentences": {"dist": "quux", "mean": 3}}}, "documents.sentences.dist: scipy.stats has no discrete"),
        ({"documents": {"sentences": {"dist": "poisson", "mu": 3.0}}}, "workloads.news.documents.sentences.dist"),
        ({"documents": {"sentences": {"dist": "lognorm", "s": 1.0}}}, "workloads.news.documents.sentences.dist"),
        ({"documents": {"corpus": True}}, "workloads.news.documents.corpus"),
        ({"documents": {"recorded": "LOG", "column": "pages"}}, "LOG:1"),
        ({"documents": {"recorded": "LOG", "column": "file"}}, "LOG:2"),
        ({"arrivals": {"kind": "back_to_back"}}, "workloads.news.documents"),
        ({"arrivals": {"kind": "clients", "clients": 2, "think_time": {"mean_s": 1.0}}}, "workloads.news.documents"),
    ],
)
def test_documents_that_cannot_be_are_refused_with_their_place(changes: Any, place: str, tmp_path: Path) -> None:
    (log := tmp_path / "log.csv").write_text("t_s,file\n0,a\n1,b\n")
    if "recorded" in changes.get("documents", {}):
        changes["documents"]["recorded"] = str(log)
    one = scenario()
    one["workloads"]["news"] |= changes
    with pytest.raises(InputError) as refused:
        simnmt.run(one)
    assert place.replace("LOG", str(log)) in str(refused.value)


def test_decisions_by_document_and_metrics_of_documents_need_documents() -> None:
    with pytest.raises(ScenarioError, match="decide_by: "):
        simnmt.run(scenario(None, decide_by="document"))
    with pytest.raises(ScenarioError, match=r"slo\.document_p95_ms: "):
        simnmt.run(scenario(None, slo={"document_p95_ms": 300}))


def test_packed_requests_are_longer_and_are_no_documents() -> None:
    lines, requests = scenario(None), scenario(None)
    requests["workloads"]["news"]["lines_per_request"] = 3
    requests["devices"] = {name: device | {"outside_range_share": 1.0} for name, device in lines["devices"].items()}
    means = [draw(unit := unit_of(plan_of(given)), learn_parts(unit)).truth.src_len.mean() for given in (lines, requests)]
    assert means[1] == pytest.approx(3 * means[0], rel=0.1)
    both = scenario()
    both["workloads"]["news"]["lines_per_request"] = 3
    with pytest.raises(InputError, match="lines_per_request"):
        plan_of(both)
