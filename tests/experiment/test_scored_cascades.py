"""Cascades and routes on scored texts: the share that is deferred, and the quality that it buys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simnmt
from simnmt.base.errors import InputError
from simnmt.experiment.draws import draw, learn_parts
from simnmt.workload.quality import text_hash
from tests.experiment.test_quality import TEXT, corpus_score
from tests.units import plan_of, unit_of
from tests.workload.scored_text import Text

SIGNALS = ("oracle", "ridge", "src_len", "random")


def scenario(make_scenario: Any, folder: Path, text: Text = TEXT, **policies: Any) -> dict[str, Any]:
    workloads = {"fr-en": {"lengths": text.write(folder), "arrivals": {"kind": "poisson", "rate_rps": 4.0}}}
    quality = {device: str(folder / f"{system}.parquet") for device, system in (("gateway", "small"), ("cloud", "big"))}
    made: dict[str, Any] = make_scenario(
        workloads=workloads, quality=quality, requests=3_000, replications=1, fit={"share": 0.5, "inferences": 200}
    )
    return made | {"policies": {"edge": {}, "cloud": {}, **policies}}


def test_deferral_by_the_true_gain_buys_more_quality_than_at_random(make_scenario: Any, tmp_path: Path) -> None:
    policies = {signal: {"kind": "cascade", "signal": signal, "budget": 0.4} for signal in SIGNALS}
    result = simnmt.run(scenario(make_scenario, tmp_path, **policies))
    rows = result.rows.set_index("policy")
    chrf, shares = rows["chrf"], rows["offloaded_share"]
    assert chrf["edge"] < chrf["random"] < chrf["oracle"] < chrf["cloud"]
    assert chrf["src_len"] > chrf["random"], "a corpus counts a sentence by its length"
    assert np.allclose(shares[[*SIGNALS]], 0.4, atol=0.12), "a quantile over 125 sentences"
    assert shares.between(0.0, 1.0).all() and rows.loc["ridge", "mean_latency_s"] > rows.loc["edge", "mean_latency_s"]
    for policy in ("oracle", "src_len"):
        assert chrf[policy] == pytest.approx(corpus_score("chrf", result.requests.query(f"policy == '{policy}'")), rel=1e-9)


def test_a_price_of_nothing_is_the_edge_and_a_high_one_defers_what_gains(make_scenario: Any, tmp_path: Path) -> None:
    prices = {f"price {price:g}": {"kind": "cascade", "signal": "oracle", "seconds_per_point": price} for price in (0.0, 1e6)}
    rows = simnmt.run(scenario(make_scenario, tmp_path, **prices)).rows.set_index("policy")
    assert rows.loc["price 0", "offloaded_share"] == 0.0
    assert rows.loc["price 1e+06", "chrf"] > rows.loc["cloud", "chrf"], "it keeps what the cloud translates worse"


def test_gains_are_fitted_on_sentences_that_no_request_uses(make_scenario: Any, tmp_path: Path) -> None:
    route = {"route": {"kind": "route", "signal": "src_len", "budget": 0.5}}
    unit = unit_of(plan_of(scenario(make_scenario, tmp_path, **route)))
    (learnt,) = learn_parts(unit)
    drawn = draw(unit, [learnt])
    gains: Any = learnt.gains
    assert len(gains.fit) == pytest.approx(124, abs=3)
    assert not {*gains.fit.tolist()} & {*drawn.requests.text_row.tolist()}


def test_no_line_of_a_request_is_in_the_fit_as_a_repeated_line(make_scenario: Any, tmp_path: Path) -> None:
    def with_repeats(lines: list[str]) -> list[str]:
        return lines + lines[:150]

    outputs = {system: with_repeats(texts) for system, texts in TEXT.outputs.items()}
    text = Text(with_repeats(TEXT.sources), with_repeats(TEXT.references), outputs)
    route = {"route": {"kind": "route", "signal": "src_len", "budget": 0.5}}
    (learnt,) = learn_parts(unit_of(plan_of(scenario(make_scenario, tmp_path, text, **route))))
    assert learnt.gains is not None and learnt.sentences is not None
    fitted, drawn = ({text_hash(text.sources[row]) for row in rows} for rows in (learnt.gains.fit, learnt.sentences))
    assert len(fitted) > 50 and not fitted & drawn


@pytest.mark.parametrize("names", [("here", "there"), ("there", "here")])
def test_a_site_that_overrides_the_policy_leaves_it_to_the_others(
    make_scenario: Any, tmp_path: Path, names: tuple[str, str]
) -> None:
    sites = {"here": {}, "there": {"policies": {"cascade": {"kind": "edge"}}}}
    keys = scenario(make_scenario, tmp_path, cascade={"kind": "cascade", "signal": "src_len", "budget": 0.4})
    result = simnmt.run(keys | {"sites": {name: sites[name] for name in names}})
    shares = {row["site"]: row["offloaded_share"] for row in result.summary_rows if row["policy"] == "cascade"}
    assert shares["there"] == 0.0 and shares["here"] == pytest.approx(0.4, abs=0.12)


def test_a_threshold_beyond_all_gains_is_refused_on_one_line(make_scenario: Any, tmp_path: Path) -> None:
    far = {"far": {"kind": "cascade", "signal": "src_len", "threshold": 90.0}}
    with pytest.raises(InputError, match="threshold 90 is outside the gains that src_len predicts"):
        simnmt.run(scenario(make_scenario, tmp_path, **far))
