"""Translation quality in runs: corpus scores of policies, their intervals and levels, and what is refused."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simnmt
from simnmt.base.errors import InputError
from simnmt.cli.run_text import format_result
from simnmt.experiment.draws import draw, learn_parts
from simnmt.experiment.units import run_unit
from simnmt.live.deployment import replayed_requests
from simnmt.nmt.scoring import load_metrics
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.device_profile import checked_profile, write_profile
from simnmt.report.study_pages import front_table
from simnmt.results.requests import DONE
from simnmt.scenario.errors import ScenarioError
from simnmt.scenario.varied_keys import parse_varied_key
from tests.profile.made_decoder import decoder_block
from tests.units import plan_of, unit_of
from tests.workload.scored_text import Text, made_text

Scenario = dict[str, Any]
TEXT = made_text(250)


@pytest.fixture
def scenario(make_scenario: Any, tmp_path: Path) -> Scenario:
    """A small scenario with a text that the gateway translates with the worse system, the cloud with the better one."""
    lengths = TEXT.write(tmp_path)
    keys = {"workloads": {"fr-en": {"lengths": lengths}}, "requests": 700, "replications": 2}
    quality = {"gateway": str(tmp_path / "small.parquet"), "cloud": {"scores": str(tmp_path / "big.parquet"), "model": "big"}}
    made: Scenario = make_scenario(**keys, quality=quality)
    return made


def without_quality(scenario: Scenario) -> Scenario:
    return {key: value for key, value in scenario.items() if key != "quality"}


def corpus_score(name: str, requests: Any, text: Text = TEXT) -> float:
    """The score by sacrebleu of the requests of a log."""
    outputs = [*text.outputs.values()]
    texts = [outputs[target][row] for target, row in zip(requests["target"], requests["text_row"], strict=True)]
    references = [text.references[row] for row in requests["text_row"]]
    return float(load_metrics()[name].corpus_score(texts, [references]).score)


def test_each_policy_has_the_corpus_scores_of_sacrebleu_of_its_requests(scenario: Scenario) -> None:
    result = simnmt.run(scenario, replications=1)
    requests = result.requests
    for _, row in result.rows.iterrows():
        of_policy = requests[requests["policy"] == row["policy"]]
        for name in ("chrf", "bleu"):
            assert row[name] == pytest.approx(corpus_score(name, of_policy), rel=1e-9)
            assert row[f"{name}_low"] < row[name] < row[f"{name}_high"]
    by_policy = result.rows.set_index("policy")["chrf"]
    assert by_policy["edge"] < by_policy["cnmt"] < by_policy["cloud"]
    for side, lines in (("src_len", TEXT.sources), ("tgt_len", TEXT.references)):
        assert requests[side].tolist() == [len(lines[row].split()) for row in requests["text_row"]]


def test_a_replay_sends_the_sentences_that_are_scored_and_lets_the_models_end_them(scenario: Scenario) -> None:
    unit = unit_of(plan_of(scenario))
    requests, rows = replayed_requests(unit), draw(unit, learn_parts(unit)).truth.text_row
    assert not requests.forced and rows is not None
    assert requests.texts == [TEXT.sources[row] for row in rows]
    assert replayed_requests(unit_of(plan_of(without_quality(scenario)))).forced


def test_profiles_may_count_in_another_unit_than_the_text(scenario: Scenario, make_profile: Any, tmp_path: Path) -> None:
    for name in ("gateway", "cloud"):
        profile = make_profile(
            (0.001, 0.004, 0.01), name=name, length_unit={"src": "piece", "tgt": "piece", "end_of_sentence": "both"}
        )
        write_profile(tmp_path / f"{name}.json", profile)
    scenario["workloads"]["fr-en"]["lengths"]["fertility"] = {"src": 1.3, "tgt": 1.6}
    result = simnmt.run(scenario, replications=1)
    requests = result.requests.query("policy == 'cnmt'")
    row = result.rows.set_index("policy").loc["cnmt"]
    assert row["chrf"] == pytest.approx(corpus_score("chrf", requests), rel=1e-9)
    words = np.array([len(TEXT.references[row].split()) for row in requests["text_row"]])
    assert np.abs(requests["tgt_len"] - 1 - 1.6 * words).max() < 1.0


def test_the_row_is_of_all_replications_and_its_interval_of_sentences(scenario: Scenario) -> None:
    """With ten times the requests, sentences are as many as before: the interval is hardly narrower."""
    widths = []
    for requests in (700, 7_000):
        row = simnmt.run(scenario, requests=requests).rows.set_index("policy").loc["cloud"]
        widths.append(row["chrf_high"] - row["chrf_low"])
    assert 0.5 * widths[0] < widths[1] < widths[0]
    text = format_result(simnmt.run(scenario))
    assert " chrF " in text and "its interval is over texts of as many sentences" in text
    notes = " ".join(simnmt.run(scenario).notes)
    assert "small on gateway, big on cloud" in notes and "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no" in notes
    assert "only latency is compared" not in notes


def test_nothing_else_changes_with_quality(scenario: Scenario) -> None:
    scored, plain = simnmt.run(scenario), simnmt.run(without_quality(scenario))
    assert "chrf" not in plain.rows and "text_row" not in plain.requests
    for ours, theirs in zip(scored.summary_rows, plain.summary_rows, strict=True):
        assert {
            key: value for key, value in ours.items() if key.removesuffix("_low").removesuffix("_high") not in ("chrf", "bleu")
        } == theirs
    assert scored.requests.drop(columns="text_row").equals(plain.requests)
    assert scored.comparisons == plain.comparisons


def test_no_request_is_of_a_sentence_for_fitting_and_all_requests_of_a_repeated_sentence_are_of_one(scenario: Scenario) -> None:
    seen = []
    for repeats in (None, {"zipf": 1.0, "over": 40}):
        scenario["workloads"]["fr-en"]["repeats"] = repeats
        unit = unit_of(plan_of(scenario | {"fit": {"share": 0.5, "inferences": 0}, "requests": 3_000}))
        drawn = draw(unit, learn_parts(unit))
        rows = drawn.truth.text_row
        assert rows is not None
        seen.append(set(rows.tolist()))
        if drawn.truth.sentence is not None:
            pairs = set(zip(drawn.truth.sentence.tolist(), rows.tolist(), strict=True))
            assert len(pairs) == len(set(drawn.truth.sentence.tolist()))
    assert len(seen[0]) == pytest.approx(124, abs=2) and seen[1] < seen[0]


def test_workloads_that_share_devices_are_scored_each_and_together(scenario: Scenario, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = made_text(120, seed=9)
    scores = {
        device: str(tmp_path / "other" / f"{system}.parquet") for device, system in (("gateway", "small"), ("cloud", "big"))
    }
    arrivals = {"kind": "poisson", "rate_rps": 1.0}
    scenario["workloads"] = {
        "fr-en": scenario["workloads"]["fr-en"] | {"arrivals": arrivals},
        "de-en": {"lengths": other.write(tmp_path / "other"), "arrivals": arrivals, "quality": scores},
    }
    result = simnmt.run(scenario, replications=1)
    requests = result.requests.query("policy == 'cnmt'")
    texts = {"fr-en": TEXT, "de-en": other}
    rows = result.rows.query("policy == 'cnmt'").set_index("workload")
    for name, text in texts.items():
        assert rows.loc[name, "chrf"] == pytest.approx(
            corpus_score("chrf", requests[requests["workload"] == name], text), rel=1e-9
        )
    together = Text(
        [], TEXT.references + other.references, {name: TEXT.outputs[name] + other.outputs[name] for name in other.outputs}
    )
    shifted = requests.assign(text_row=requests["text_row"] + 250 * (requests["workload"] == "de-en"))
    assert rows.loc["all", "chrf"] == pytest.approx(corpus_score("chrf", shifted, together), rel=1e-9)


def test_only_answered_requests_after_the_warm_up_count(scenario: Scenario) -> None:
    scenario["workloads"]["fr-en"]["arrivals"] = {"kind": "poisson", "rate_rps": 60.0}
    scenario["devices"]["cloud"]["max_waiting"] = 1
    keys = {"on_refusal": "pass_on", "policies": {"cloud": {}, "cnmt": {}}, "replications": 1, "warm_up_requests": 100}
    result = simnmt.run(scenario | keys)
    for _, row in result.rows.iterrows():
        requests = result.requests[result.requests["policy"] == row["policy"]].iloc[100:]
        answered = requests[requests["outcome"] == DONE]
        assert len(answered) < len(requests) or row["policy"] == "cnmt"
        assert row["chrf"] == pytest.approx(corpus_score("chrf", answered), rel=1e-9)


def test_sites_have_scores_of_their_own_requests(scenario: Scenario) -> None:
    scenario["workloads"]["fr-en"]["arrivals"] = {"kind": "poisson", "rate_rps": 1.0}
    result = simnmt.run(scenario | {"sites": {"near": {}, "far": {"count": 2}}, "replications": 1})
    requests = result.requests.query("policy == 'cnmt'")
    rows = result.rows.query("policy == 'cnmt'").set_index("site")
    for site in ("near", "far"):
        assert rows.loc[site, "chrf"] == pytest.approx(corpus_score("chrf", requests[requests["site"] == site]), rel=1e-9)
    assert rows.loc["all", "chrf"] == pytest.approx(corpus_score("chrf", requests), rel=1e-9)


def test_levels_of_quality_are_judged_by_the_interval_over_sentences(scenario: Scenario, tmp_path: Path) -> None:
    plain = simnmt.run(scenario).rows.set_index("policy")
    between = (plain.loc["edge", "chrf_high"] + plain.loc["cloud", "chrf_low"]) / 2
    result = simnmt.run(scenario | {"slo": {"chrf": between}})
    assert {"edge"} <= set(result.recommendations[0]["slo_missed_by"]) and "cloud" not in result.recommendations[0][
        "slo_missed_by"
    ]
    (missed,), (met,), (unsure,) = (
        result.assess(f"{policy}: chrf>={limit}")
        for policy, limit in (("edge", between), ("cloud", between), ("cloud", plain.loc["cloud", "chrf"] - 0.01))
    )
    assert (missed.met, met.met, met.sure, unsure.met, unsure.sure) == (False, True, True, True, False)
    assert (met.value, met.low, met.high) == tuple(plain.loc["cloud", ["chrf", "chrf_low", "chrf_high"]])
    assert str(met).startswith(f"chrf>={between:.15g}: cloud for fr-en on cp1: ") and "%: met" not in str(met)
    open_loop = deepcopy(scenario)
    open_loop["workloads"]["fr-en"]["arrivals"] = {"kind": "poisson", "rate_rps": 1.0}
    answer = simnmt.plan(open_loop | {"policies": {"edge": {}, "cloud": {}}}, [f"chrf>={between}", "p95_ms<=2000"])
    assert answer.best.policy == "cloud"
    by_policy = {row.policy: row for row in answer.rows}
    assert by_policy["edge"].rate_rps == 0.0 and "because of the translations by gateway" in by_policy["edge"].outcome.binding
    cheapest = simnmt.plan(open_loop, [f"chrf>={between}"], rate=5.0, vary=["devices.cloud.count=1:3"], minimise="servers")
    assert cheapest.is_met and cheapest.choice.policy != "edge"


def test_a_sweep_has_the_scores_of_each_point(scenario: Scenario, tmp_path: Path) -> None:
    (tmp_path / "scenario.json").write_text(json.dumps(scenario))
    files = ",".join(str(tmp_path / f"{system}.parquet") for system in ("small", "big"))
    result = simnmt.sweep(tmp_path / "scenario.json", grid=[f"quality.gateway={files}"], out=tmp_path / "swept", jobs=1)
    edge = [row for row in result.table.rows if row["policy"] == "edge"]
    assert edge[0]["chrf_low"] < edge[0]["chrf"] < edge[0]["chrf_high"] < edge[1]["chrf_low"]
    assert {"chrf", "bleu"} <= {known.name for known in result.table.metrics}
    first = replace(result.table, rows=[row for row in result.table.rows if row["point"] == 0])
    front = front_table(first).rows
    pairs = [(row["mean_ms"], row["chrf"]) for row in front]
    assert len(pairs) > 1 and pairs == sorted(pairs) and "oracle" not in {row["policy"] for row in front}
    for row in first.rows:
        if row["policy"] != "oracle":
            assert any(value <= row["mean_ms"] and chrf >= row["chrf"] for value, chrf in pairs)
    assert 'id="front"' in (tmp_path / "swept" / "sweep.html").read_text()


def test_the_same_seed_gives_the_same_bytes_on_any_number_of_processes(scenario: Scenario) -> None:
    one, two = simnmt.run(scenario), simnmt.run(scenario, jobs=2)
    assert one.document() == two.document()


def test_an_assertion_on_quality_needs_scores(scenario: Scenario) -> None:
    with pytest.raises(InputError, match=r"chrf>=50: chrf is not known: .*\(give quality: \{gateway: FILE, cloud: FILE\}"):
        simnmt.run(without_quality(scenario), assertions=["chrf>=50"])
    with pytest.raises(ScenarioError, match="shares devices with fr-en, but has no scores"):
        shared = {"fr-en": scenario["workloads"]["fr-en"], "other": {"lengths": "@de-en-news"}}
        arrivals = {"arrivals": {"kind": "poisson", "rate_rps": 1.0}}
        scored = {"quality": scenario["quality"]}
        simnmt.run(
            without_quality(scenario)
            | {"workloads": {"fr-en": shared["fr-en"] | arrivals | scored, "other": shared["other"] | arrivals}}
        )


def test_counts_of_sentences_sum_to_the_requests(scenario: Scenario) -> None:
    result = run_unit(unit_of(plan_of(scenario)))
    for counts in result.sentences.values():
        (of_text,) = counts.values()
        assert sum(times.sum() for _, times in of_text) == 700
        assert all(times.min(initial=1) > 0 for _, times in of_text), "only what was translated is stored"


def test_places_are_resampled_alike_in_groups_of_any_size(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    together = simnmt.run(scenario).summary_rows
    monkeypatch.setattr("simnmt.experiment.quality.PLACES_AT_A_TIME", 2)
    for ours, theirs in zip(simnmt.run(scenario).summary_rows, together, strict=True):
        for name in ("chrf", "chrf_low", "chrf_high", "bleu_low"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-12)


@pytest.fixture
def of_profiles(scenario: Scenario, make_profile: Any, tmp_path: Path) -> Scenario:
    """The scenario with scores of the gateway's profile, and of another one with which it translates as the cloud does."""
    variants = {"decoder": decoder_block((DecoderSettings(), DecoderSettings(beam=5)))}
    for name in ("gateway", "other"):
        content = make_profile(name=name).model_dump(mode="json", exclude_none=True)
        write_profile(tmp_path / f"{name}.json", checked_profile(content | variants))
    small, big = (str(tmp_path / f"{system}.parquet") for system in ("small", "big"))
    scenario["workloads"]["fr-en"]["arrivals"] = {"kind": "poisson", "rate_rps": 1.0}
    scenario["quality"] = {"gateway": [{"profile": str(tmp_path / "other.json"), "scores": big}, small], "cloud": big}
    return scenario | {"replications": 1}


def test_a_site_with_another_profile_has_the_scores_of_that_profile(of_profiles: Scenario, tmp_path: Path) -> None:
    far: Scenario = {"devices": {"gateway": {"profile": str(tmp_path / "other.json")}}}
    sites = {"sites": {"near": {}, "far": far, "bare": {"devices": {"gateway": None}}}}
    small_alone = {"gateway": of_profiles["quality"]["gateway"][1], "cloud": of_profiles["quality"]["cloud"]}
    what = r"sites\.far\.devices\.gateway\.profile: quality\.gateway has the scores of another profile \(give them by profile"
    with pytest.raises(ScenarioError, match=what):
        simnmt.run(of_profiles | sites | {"quality": small_alone})
    result = simnmt.run(of_profiles | sites)
    small, big = TEXT.outputs["small"], TEXT.outputs["big"]
    both = Text([], TEXT.references * 2, {"gateway": small + big, "cloud": big + big})
    requests = result.requests.query("policy == 'cnmt'")
    requests = requests.assign(text_row=requests["text_row"] + 250 * (requests["site"] == "far"))
    rows = result.rows.query("policy == 'cnmt'").set_index("site")
    for site in sites["sites"]:
        assert rows.loc[site, "chrf"] == pytest.approx(corpus_score("chrf", requests[requests["site"] == site], both), rel=1e-9)
    assert rows.loc["all", "chrf"] == pytest.approx(corpus_score("chrf", requests, both), rel=1e-9)
    assert (requests.query("site == 'far'")["target"] == 0).any()
    assert "(small on gateway, big on cloud, big on gateway at far; nrefs" in " ".join(result.notes)
    scores = of_profiles["quality"]["gateway"][:1]
    with pytest.raises(ScenarioError, match=r"devices\.gateway: no scores in quality\.gateway are of its profile and decoder"):
        simnmt.run(of_profiles | {"quality": of_profiles["quality"] | {"gateway": scores}})


def test_swept_profiles_and_decoders_have_scores_of_their_own(of_profiles: Scenario, tmp_path: Path) -> None:
    path, (of_other, small) = tmp_path / "scenario.json", of_profiles["quality"]["gateway"]
    profiles = f"devices.gateway.profile={tmp_path / 'gateway.json'},{tmp_path / 'other.json'}"
    decoders = "devices.gateway.decoder={beam: 1},{beam: 5}"
    by_decoder = [{"decoder": {"beam": 5}, "scores": of_other["scores"]}, small]
    for grid, part, stated in ((profiles, "profile", [of_other, small]), (decoders, "decoder", by_decoder)):
        for wrong in (small, by_decoder if part == "profile" else [of_other, small]):
            path.write_text(json.dumps(of_profiles | {"quality": of_profiles["quality"] | {"gateway": wrong}}))
            what = rf"--grid devices\.gateway\.{part}=.*: quality\.gateway has the scores of another {part} \(give them by"
            with pytest.raises(ScenarioError, match=what):
                simnmt.sweep(path, grid=[parse_varied_key(grid, "--grid")], out=tmp_path / "refused", jobs=1)
            with pytest.raises(ScenarioError, match=f"has the scores of another {part}"):
                simnmt.plan(path, "chrf>=50", rate=1.0, vary=[grid])
        path.write_text(json.dumps(of_profiles | {"quality": of_profiles["quality"] | {"gateway": stated}}))
        result = simnmt.sweep(path, grid=[grid], out=tmp_path / part, jobs=1)
        edge, better = (row for row in result.table.rows if row["policy"] == "edge")
        cloud = next(row for row in result.table.rows if row["policy"] == "cloud")
        assert edge["chrf"] < better["chrf"] == cloud["chrf"]
    answer = simnmt.plan(path, f"chrf>={better['chrf'] - 0.1}", rate=1.0, vary=[decoders])
    assert answer.choice.choice["devices.gateway.decoder"] == {"beam": 5} or answer.choice.policy == "cloud"


def test_a_sweep_of_workloads_of_which_one_is_scored_has_its_page(of_profiles: Scenario, tmp_path: Path) -> None:
    workloads = of_profiles["workloads"]
    workloads["fr-en"]["quality"] = of_profiles.pop("quality")
    workloads["plain"] = {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 1.0}}
    (tmp_path / "scenario.json").write_text(json.dumps(of_profiles | {"share_devices": False}))
    simnmt.sweep(tmp_path / "scenario.json", grid=["devices.cloud.count=1,2"], out=tmp_path / "swept", jobs=1)
    assert "plain on cp1" in (tmp_path / "swept" / "sweep.html").read_text()
