"""How the decoder of a device is written and restricts its vocabulary: times, shared draws, and the words of the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simnmt
from simnmt.base.errors import InputError
from simnmt.experiment.cases import RunPlan
from simnmt.experiment.inputs import read_inputs
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.profile_file import checked_profile, read_profile, write_profile
from simnmt.profile.profile_variant import with_decoder
from simnmt.results import Run
from simnmt.scenario.source import open_source
from tests.profile.made_decoder import BY_SENTENCE, CLUSTERED, LISTED, S_PER_SHARE, decoder_block, restricted, stages_s, variant
from tests.profile.made_profile import whole_profile

SCENARIO = """\
version: 1
name: x
requests: 200
replications: 1
fit: {inferences: 200}
workloads:
  w: {lengths: "@de-en-news", arrivals: {kind: poisson, rate_rps: 20}}
networks: {n: {rtt: {constant_ms: 20}}}
devices:
  gateway: {profile: "PROFILE", outside_range_share: 1}
  cloud: {profile: "PROFILE", outside_range_share: 1, decoder: {fused: true}}
policies: {edge: {}, cloud: {}, cnmt: {}}
"""
EVERYTHING = whole_profile()
FUSED = "decoder: {fused: true}"
BATCHED = "devices.cloud.batching={kind: top_up, size: 8, refill: free}"
OF_BEAM_5: dict[str, Any] = {name: EVERYTHING[name] | {"beam": 5} for name in ("engine", "step")}
OF_BEAM_5["decoder"] = {
    "kind": "measured",
    "base": DecoderSettings(beam=5).model_dump(),
    "variants": [variant(DecoderSettings(beam=5, fused=fused), times=0.1) for fused in (False, True)],
}
PLAIN_TOO = "devices.cloud.decoder=null"


@pytest.fixture
def scenario(tmp_path: Path) -> Callable[..., Path]:
    """Writes the scenario with some of its text replaced, and its profile."""

    def write(before: str = "", after: str = "", **blocks: Any) -> Path:
        content = EVERYTHING | {"decoder": decoder_block()} | blocks
        write_profile(tmp_path / "p.json", checked_profile({key: value for key, value in content.items() if value is not None}))
        assert before in SCENARIO
        (tmp_path / "s.yaml").write_text(SCENARIO.replace(before, after).replace("PROFILE", "p.json"), encoding="utf-8")
        return tmp_path / "s.yaml"

    return write


def plan_of(path: Path, *overrides: str) -> RunPlan:
    source = open_source(path, overrides)
    return read_inputs(source.scenario, path.parent, source.document)


def run(path: Path, *overrides: str) -> Run:
    return simnmt.run(path, overrides=list(overrides))


def notes(result: Run) -> str:
    return "\n".join(result.notes)


def execution_s(result: Run, policy: str) -> np.ndarray[Any, Any]:
    return np.array(result.cells[0].logs[policy]["t_exe_s"])


def test_of_two_devices_of_one_profile_the_fused_one_is_cheaper_in_the_world(scenario: Callable[..., Path]) -> None:
    """FNI-16: in single sentences by the ratio of a step for each target token, and in batches too."""
    path = scenario()
    gateway, cloud = plan_of(path).cases["w"].profiles
    ratio = sum(stages_s(DecoderSettings(fused=True))) / sum(stages_s(DecoderSettings()))
    assert cloud.plane.s_per_tgt_token == pytest.approx(ratio * gateway.plane.s_per_tgt_token)
    gateway_batched, cloud_batched = (
        target.decoding for target in plan_of(path, BATCHED, BATCHED.replace("cloud", "gateway")).cases["w"].targets
    )
    assert gateway_batched is not None
    assert cloud_batched is not None
    assert cloud_batched.cost.steps_at(8)(4, 4) == pytest.approx(ratio * gateway_batched.cost.steps_at(8)(4, 4))
    for batching in ([], [BATCHED]):
        plain, fused = (execution_s(run(path, *batching, *less), "cloud").mean() for less in ([PLAIN_TOO], []))
        assert fused < plain


def test_a_variant_changes_no_draw_of_a_run(scenario: Callable[..., Path]) -> None:
    """Common random numbers: the same requests at the same moments, and each one's residual a factor on its plane."""
    path = scenario()
    fused, plain = run(path), run(path, PLAIN_TOO)
    for policy in ("edge", "cloud"):
        log, plain_log = fused.cells[0].logs[policy], plain.cells[0].logs[policy]
        for column in ("src_len", "tgt_len", "arrival_s"):
            assert np.array_equal(log[column], plain_log[column])
    assert np.array_equal(execution_s(fused, "edge"), execution_s(plain, "edge"))
    lengths = np.array(fused.cells[0].logs["cloud"]["src_len"]), np.array(fused.cells[0].logs["cloud"]["tgt_len"])
    by_case = [plan_of(path, *less).cases["w"].profiles[1].plane.seconds(*lengths) for less in ([], [PLAIN_TOO])]
    assert execution_s(fused, "cloud") / by_case[0] == pytest.approx(execution_s(plain, "cloud") / by_case[1])


def test_the_reader_is_told_what_is_measured_and_exact(scenario: Callable[..., Path], tmp_path: Path) -> None:
    """XP-03: in the notes, in the fits and in the names of profiles, also of a run that is repeated from its directory."""
    simnmt.run(scenario(), out=tmp_path / "run")
    measured = run(tmp_path / "run")
    assert any("w, cloud: decoder beam 1, fused: measured, exact" in note for note in measured.notes)
    assert measured.cells[0].profile_names[1].endswith("decoder beam 1, fused: measured, exact")
    (fit,) = [fit for fit in measured.fits if fit["of"] == "execution time on the cloud"]
    assert (fit["decoder"]["how"], fit["decoder"]["exact"]) == ("measured", True)
    block = {"kind": "measured", "base": DecoderSettings().model_dump()}
    block["variants"] = [variant(DecoderSettings()), variant(DecoderSettings(gemm="int16"), agreement=0.9995)]
    rounded = run(scenario(FUSED, "decoder: {gemm: int16}", decoder=block), BATCHED.replace("8", "1"))
    assert any("99.95 % of tokens" in note for note in rounded.notes)
    assert rounded.cells[0].profile_kinds == ("measured", "measured")


CASES = {
    "an option misspelt": ("decoder: {fuse: true}", {}, "devices.cloud.decoder.fuse"),
    "no beam where the profile's is not 1": (FUSED, OF_BEAM_5, "devices.cloud.decoder"),
    "a beam that was not measured": ("decoder: {beam: 4}", {}, "devices.cloud.decoder"),
    "a profile that knows no variants": (FUSED, {"decoder": None}, "devices.cloud.decoder"),
}


@pytest.mark.parametrize(("after", "blocks", "key"), CASES.values(), ids=CASES.keys())
def test_a_decoder_that_cannot_be_had_is_refused_in_its_place(
    scenario: Callable[..., Path], after: str, blocks: dict[str, Any], key: str
) -> None:
    path = scenario(FUSED, after, **blocks)
    with pytest.raises(InputError) as refused:
        plan_of(path)
    assert re.match(rf".*/s\.yaml:11:\d+: {key}: ", str(refused.value))


RESTRICTED = """\
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


@pytest.fixture
def run_restricted(tmp_path: Path) -> Callable[..., Run]:
    """Runs the scenario with these overrides, on profiles without a residual of their own."""
    whole = whole_profile()
    execution = whole["execution"] | {"residual_relative_sd": 0.0}
    (tmp_path / "s.yaml").write_text(RESTRICTED, encoding="utf-8")

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


def test_each_request_has_a_share_of_its_own_on_every_device_and_the_mean_is_kept(run_restricted: Callable[..., Run]) -> None:
    result = run_restricted()
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


def test_an_oracle_sees_each_requests_share(run_restricted: Callable[..., Run]) -> None:
    """Told all it can be, C-NMT is the oracle: which device is faster hangs on what the very sentence needs."""
    result = run_restricted("workloads.w.arrivals={kind: back_to_back}", "networks.n.rtt={constant_ms: 0.2}", alike=False)
    edge_s, cloud_s, oracle_s = (column(result, name, "latency_s") for name in ("edge", "cloud", "oracle"))
    assert 0.02 < (cloud_s < edge_s).mean() < 0.5
    assert np.allclose(oracle_s, np.minimum(edge_s, cloud_s))
    (without_gap,) = [row for row in result.gaps if row["removed"] == "everything"]
    assert without_gap["total_latency_s"] == pytest.approx(oracle_s.sum())
    assert column(result, "cnmt", "latency_s").sum() > 1.0001 * oracle_s.sum()


def test_a_device_that_batches_takes_the_mean_at_its_batch(run_restricted: Callable[..., Run], tmp_path: Path) -> None:
    """XP-01: sentences share a step, and the union of what they need."""
    run_restricted(BATCHED, "requests=300")
    known = read_profile(tmp_path / "p.json").decoder
    assert known is not None
    for batch in (1, 8):
        ratio = known.steps(LISTED)[batch].step_s / known.steps(DecoderSettings())[batch].step_s
        restricted_s, full_s = (step_s(tmp_path, batch, BATCHED, *other) for other in ((), ("devices.cloud.decoder=null",)))
        assert restricted_s == pytest.approx(ratio * full_s), batch


@pytest.mark.parametrize("changed", [{"alike": False}, {"by_sentence": None}])
def test_no_request_of_a_device_that_batches_deviates(run_restricted: Callable[..., Run], changed: dict[str, Any]) -> None:
    """What sentences need each by itself moves their times where they are alone, and nowhere else."""
    few = ("requests=300", "gap_analysis=false")
    batched, changed_batched = run_restricted(BATCHED, *few), run_restricted(BATCHED, *few, **changed)
    assert np.array_equal(column(batched, "cloud", "t_exe_s"), column(changed_batched, "cloud", "t_exe_s"))
    alone, differing = run_restricted(*few), run_restricted(*few, **changed)
    assert not np.array_equal(column(alone, "cloud", "t_exe_s"), column(differing, "cloud", "t_exe_s"))
