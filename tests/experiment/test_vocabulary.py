"""A device that restricts the vocabulary: shares drawn once a sentence, the mean kept, and what a reader is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simnmt
from simnmt.base.errors import InputError
from simnmt.experiment.inputs import read_inputs
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.profile_file import checked_profile, read_profile, write_profile
from simnmt.profile.profile_variant import with_decoder
from simnmt.results import Run
from simnmt.scenario.source import open_source
from tests.profile.made_decoder import BY_SENTENCE, CLUSTERED, LISTED, S_PER_SHARE, decoder_block, restricted
from tests.profile.made_profile import whole_profile

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
BATCHED = "devices.cloud.batching={kind: top_up, size: 8, refill: free}"


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Run]:
    """Runs the scenario with these overrides, on profiles without a residual of their own."""
    whole = whole_profile()
    execution = whole["execution"] | {"residual_relative_sd": 0.0}
    (tmp_path / "s.yaml").write_text(SCENARIO, encoding="utf-8")

    def run_it(*overrides: str, alike: bool = True, by_sentence: Any = BY_SENTENCE) -> Run:
        """`alike`: whether shares cost the same with lists as with clusters; else they hardly cost anything."""
        block: dict[str, Any] = decoder_block()
        block["variants"] += [*restricted(CLUSTERED), *restricted(LISTED, S_PER_SHARE if alike else 1e-9, by_sentence)]
        write_profile(tmp_path / "p.json", checked_profile(whole | {"decoder": block, "execution": execution}))
        return simnmt.run(tmp_path / "s.yaml", overrides=list(overrides))

    return run_it


def step_s(folder: Path, batch: int, *overrides: str) -> float:
    """Of the cloud, one step of so many sentences and the gap after it, the mean over the first ten."""
    source = open_source(folder / "s.yaml", overrides)
    decoding = read_inputs(source.scenario, folder, source.document).cases["w"].targets[1].decoding
    assert decoding is not None
    return decoding.cost.steps_at(batch)(0, 9) / 10


def column(result: Run, policy: str, name: str) -> np.ndarray[Any, Any]:
    return np.array(result.cells[0].logs[policy][name])


def test_each_request_has_a_share_of_its_own_on_every_device_and_the_mean_is_kept(run: Callable[..., Run]) -> None:
    result = run()
    steps = column(result, "edge", "tgt_len")
    more_s, paces = [], []
    for policy, settings in (("edge", CLUSTERED), ("cloud", LISTED)):
        block = decoder_block()
        block["variants"] += restricted(settings)
        moved, choice = with_decoder(checked_profile(whole_profile() | {"decoder": block}), settings)
        told_s = moved.plane.seconds(column(result, policy, "src_len"), steps)
        more_s.append((column(result, policy, "t_exe_s") - told_s) / steps)
        paces.append(choice.pace)
    assert np.allclose(*more_s), "how much a sentence needs is its own, on both devices"
    assert paces[0] == pytest.approx(paces[1]) != 1.0, "the plane was not timed with the variants"
    spread = paces[0] * S_PER_SHARE * (max(BY_SENTENCE) - min(BY_SENTENCE))
    assert np.ptp(more_s[0]) == pytest.approx(spread, rel=0.02)
    assert abs(more_s[0].mean()) < 4 * more_s[0].std() / np.sqrt(len(steps))


def test_restricting_one_device_changes_no_draw_of_the_others(run: Callable[..., Run]) -> None:
    """Common random numbers: the shares have a stream of their own."""
    own, other = run(), run(FULL)
    for name in ("src_len", "tgt_len", "arrival_s", "t_exe_s"):
        assert np.array_equal(column(own, "cloud", name), column(other, "cloud", name)), name
    assert column(other, "edge", "t_exe_s").mean() > column(own, "edge", "t_exe_s").mean()


def test_an_oracle_sees_each_requests_share(run: Callable[..., Run]) -> None:
    """Told all it can be, C-NMT is the oracle: which device is faster hangs on what the very sentence needs."""
    result = run("workloads.w.arrivals={kind: back_to_back}", "networks.n.rtt={constant_ms: 0.2}", alike=False)
    edge_s, cloud_s, oracle_s = (column(result, name, "latency_s") for name in ("edge", "cloud", "oracle"))
    assert 0.02 < (cloud_s < edge_s).mean() < 0.5
    assert np.allclose(oracle_s, np.minimum(edge_s, cloud_s))
    (told,) = [row for row in result.gaps if row["removed"] == "everything"]
    assert told["total_latency_s"] == pytest.approx(oracle_s.sum())
    assert column(result, "cnmt", "latency_s").sum() > 1.0001 * oracle_s.sum()


def test_a_device_that_batches_takes_the_mean_at_its_batch(run: Callable[..., Run], tmp_path: Path) -> None:
    """XP-01: sentences share a step, and the union of what they need."""
    run(BATCHED, "requests=300")
    known = read_profile(tmp_path / "p.json").decoder
    assert known is not None
    for batch in (1, 8):
        ratio = known.steps(LISTED)[batch].step_s / known.steps(DecoderSettings())[batch].step_s
        restricted_s, full_s = (step_s(tmp_path, batch, BATCHED, *other) for other in ((), ("devices.cloud.decoder=null",)))
        assert restricted_s == pytest.approx(ratio * full_s), batch


@pytest.mark.parametrize("changed", [{"alike": False}, {"by_sentence": None}])
def test_no_request_of_a_device_that_batches_deviates(run: Callable[..., Run], changed: dict[str, Any]) -> None:
    """What sentences need each by itself moves their times where they are alone, and nowhere else."""
    few = ("requests=300", "gap_analysis=false")
    own, other = run(BATCHED, *few), run(BATCHED, *few, **changed)
    assert np.array_equal(column(own, "cloud", "t_exe_s"), column(other, "cloud", "t_exe_s"))
    alone, differing = run(*few), run(*few, **changed)
    assert not np.array_equal(column(alone, "cloud", "t_exe_s"), column(differing, "cloud", "t_exe_s"))


def test_a_vocabulary_that_does_not_exist_is_refused(run: Callable[..., Run]) -> None:
    with pytest.raises(InputError, match=r"decoder\.vocabulary"):
        run("devices.gateway.decoder={vocabulary: cluster}")
    with pytest.raises(InputError, match=r"devices\.gateway\.decoder"):
        run("devices.gateway.decoder={vocabulary: clustered, candidates: 500}")
