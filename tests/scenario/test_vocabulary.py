"""A device that restricts the vocabulary: shares drawn once a sentence, the mean kept, and what a reader is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simnmt
from simnmt.costs import checked_profile, write_profile
from simnmt.errors import InputError
from simnmt.results import RunResult
from tests.costs.made_decoder import decoder_block
from tests.costs.made_profile import whole_profile
from tests.costs.made_vocabulary import BY_SENTENCE, CLUSTERED, LISTED, S_PER_SHARE, restricted

SCENARIO = """\
version: 1
name: x
requests: 4000
replications: 1
fit: {inferences: 2000}
workloads:
  w: {lengths: "@de-en-news", arrivals: {kind: poisson, rate_rps: 4}}
networks: {n: {rtt: {constant_ms: 20}}}
devices:
  gateway: {profile: p.json, outside_range_share: 1, decoder: {vocabulary: clustered}}
  cloud: {profile: p.json, outside_range_share: 1, decoder: {vocabulary: candidates}}
policies: {edge: {}, cloud: {}, oracle: {}, cnmt: {}}
gap_analysis: true
"""
FULL = "devices.gateway.decoder=null"
BATCHED = "devices.cloud.batching={kind: top_up, size: 8}"


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., RunResult]:
    """Runs the scenario with these overrides, on profiles without a residual of their own."""
    whole = whole_profile()
    execution = whole["execution"] | {"residual_relative_sd": 0.0}
    (tmp_path / "s.yaml").write_text(SCENARIO, encoding="utf-8")

    def run_it(*overrides: str, alike: bool = True) -> RunResult:
        """`alike`: whether shares cost the same with lists as with clusters; else they hardly cost anything."""
        block: dict[str, Any] = decoder_block()
        block["variants"] += [*restricted(CLUSTERED), *restricted(LISTED, S_PER_SHARE if alike else 1e-9)]
        write_profile(tmp_path / "p.json", checked_profile(whole | {"decoder": block, "execution": execution}))
        return simnmt.run(tmp_path / "s.yaml", overrides=list(overrides))

    return run_it


def column(result: RunResult, policy: str, name: str) -> np.ndarray[Any, Any]:
    return np.array(result.cells[0].logs[policy][name])


def test_each_request_has_a_share_of_its_own_on_every_device_and_the_mean_is_kept(run: Callable[..., RunResult]) -> None:
    result = run()
    steps = column(result, "edge", "tgt_len")
    more_s = []
    for policy, settings in (("edge", CLUSTERED), ("cloud", LISTED)):
        block = decoder_block()
        block["variants"] += restricted(settings)
        moved, _ = checked_profile(whole_profile() | {"decoder": block}).with_decoder(settings)
        told_s = moved.plane.seconds(column(result, policy, "src_len"), steps)
        more_s.append((column(result, policy, "t_exe_s") - told_s) / steps)
    assert np.allclose(*more_s), "how much a sentence needs is its own, on both devices"
    spread = S_PER_SHARE * (max(BY_SENTENCE) - min(BY_SENTENCE))
    assert np.ptp(more_s[0]) == pytest.approx(spread, rel=0.02)
    assert abs(more_s[0].mean()) < 4 * more_s[0].std() / np.sqrt(len(steps))


def test_restricting_one_device_changes_no_draw_of_the_others(run: Callable[..., RunResult]) -> None:
    """Common random numbers: the shares have a stream of their own."""
    own, other = run(), run(FULL)
    for name in ("src_len", "tgt_len", "arrival_s", "t_exe_s"):
        assert np.array_equal(column(own, "cloud", name), column(other, "cloud", name)), name
    assert column(other, "edge", "t_exe_s").mean() > column(own, "edge", "t_exe_s").mean()


def test_an_oracle_sees_each_requests_share(run: Callable[..., RunResult]) -> None:
    """Told all it can be, C-NMT is the oracle: which device is faster hangs on what the very sentence needs."""
    result = run("workloads.w.arrivals={kind: back_to_back}", "networks.n.rtt={constant_ms: 0.2}", alike=False)
    edge_s, cloud_s, oracle_s = (column(result, name, "latency_s") for name in ("edge", "cloud", "oracle"))
    assert 0.02 < (cloud_s < edge_s).mean() < 0.5
    assert np.allclose(oracle_s, np.minimum(edge_s, cloud_s))
    (told,) = [row for row in result.gaps if row["removed"] == "everything"]
    assert told["total_latency_s"] == pytest.approx(oracle_s.sum())
    assert column(result, "cnmt", "latency_s").sum() > 1.0001 * oracle_s.sum()


def test_a_device_that_batches_takes_the_mean_at_its_batch(run: Callable[..., RunResult]) -> None:
    """XP-01: sentences share a step, and the union of what they need."""
    assert "as many sentences as decode together" in "\n".join(run(BATCHED).notes)


def test_notes_fits_and_page_tell_shares_and_that_it_is_not_exact(run: Callable[..., RunResult]) -> None:
    result = run()
    told = "\n".join(result.notes)
    assert (
        "gateway: decoder beam 1, clustered vocabulary: measured, 99 % of tokens as the exact decoder's, 93 % of sentences"
        in told
    )
    assert "5 % of 12,000 tokens active on average at batch 1, 12 % at batch 8" in told
    assert "drawn from those of single sentences, 1 to 10 %" in told
    row = next(row for row in result.fits if row.get("decoder"))
    assert row["decoder"]["active_share"]["1"] == pytest.approx(0.05)
    assert "clustered vocabulary: measured, 99 % of tokens" in result.cells[0].profile_names[0]


def test_a_vocabulary_that_does_not_exist_is_named_with_those_that_do(run: Callable[..., RunResult]) -> None:
    with pytest.raises(InputError, match=r"decoder.vocabulary: must be one of full, clustered, candidates, got"):
        run("devices.gateway.decoder={vocabulary: cluster}")
    with pytest.raises(InputError, match="candidates: 500 beside vocabulary: clustered contradict each other"):
        run("devices.gateway.decoder={vocabulary: clustered, candidates: 500}")
