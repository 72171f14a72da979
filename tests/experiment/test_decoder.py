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
from simnmt.profile.device_profile import checked_profile, read_profile, write_profile
from simnmt.profile.profile_variant import with_decoder
from simnmt.results import Run
from simnmt.scenario.source import open_source
from tests.profile.made_decoder import LISTED, decoder_block, restricted, stages_s, variant
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


RESTRICTED = "decoder: {vocabulary: candidates}"
WITH_LISTS = decoder_block() | {"variants": [*decoder_block()["variants"], *restricted(LISTED)]}


def test_a_sentence_alone_takes_the_mean_step_of_a_part_of_the_vocabulary(scenario: Callable[..., Path]) -> None:
    execution = EVERYTHING["execution"] | {"residual_relative_sd": 0.0}
    result = run(scenario(FUSED, RESTRICTED, decoder=WITH_LISTS, execution=execution))
    moved, _ = with_decoder(checked_profile(EVERYTHING | {"decoder": WITH_LISTS, "execution": execution}), LISTED)
    src_len, tgt_len, seconds = (result.cells[0].logs["cloud"][name] for name in ("src_len", "tgt_len", "t_exe_s"))
    assert np.allclose(seconds, moved.plane.seconds(src_len, tgt_len))
    assert moved.plane.s_per_tgt_token < EVERYTHING["execution"]["plane"]["s_per_tgt_token"]


def test_a_device_that_batches_takes_the_mean_at_its_batch(scenario: Callable[..., Path]) -> None:
    """XP-01: sentences share a step, and the union of what they need."""
    path = scenario(FUSED, RESTRICTED, decoder=WITH_LISTS)
    known = read_profile(path.parent / "p.json").decoder
    assert known is not None
    for batch in (1, 8):
        ratio = known.steps(LISTED)[batch].step_s / known.steps(DecoderSettings())[batch].step_s
        restricted_s, full_s = (step_s(path, batch, BATCHED, *other) for other in ((), (PLAIN_TOO,)))
        assert restricted_s == pytest.approx(ratio * full_s), batch


def step_s(path: Path, batch: int, *overrides: str) -> float:
    """Return the seconds of a step and its gap at the cloud, mean over the first ten."""
    decoding = plan_of(path, *overrides).cases["w"].targets[1].decoding
    assert decoding is not None
    return decoding.cost.steps_at(batch)(0, 9) / 10
