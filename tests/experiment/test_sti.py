"""A device that streams its model: wrong input is refused at its place, and the rest is planned once."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.base.errors import InputError
from simnmt.experiment.cases import RunPlan
from simnmt.experiment.draws import draw, learn
from simnmt.experiment.inputs import read_inputs
from simnmt.experiment.notes import warnings
from simnmt.experiment.policy_setup import UnitSetup
from simnmt.experiment.targets import StreamedDevice
from simnmt.scenario.source import open_source
from tests.experiment.streamed_profile import TEXT, streamed_profile, written
from tests.profile.made_sti import sti_block
from tests.units import unit_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("streamed")
    written(made, streamed_profile())
    return made


def plan_of(folder: Path, text: str = TEXT, *overrides: str) -> RunPlan:
    (folder / "s.yaml").write_text(text, encoding="utf-8")
    source = open_source(folder / "s.yaml", overrides)
    return read_inputs(source.scenario, folder, source.document)


def complaint(folder: Path, text: str, *overrides: str) -> str:
    with pytest.raises(InputError) as caught:
        plan_of(folder, text, *overrides)
    assert caught.value.exit_status == 2
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(f"{folder}/", "")


def test_a_classifier_in_a_translators_profile_is_no_translator(folder: Path) -> None:
    """Its requests would end with the encoder."""
    alone = sti_block(6, 8, 512, 2048, lengths=(16, 32, 64), bytes_per_s=30e6, importance=False)
    written(folder, streamed_profile(name="mixed", sti=alone))
    assert "mixed" in complaint(folder, TEXT, "devices.gateway.profile=mixed.json")


def test_a_profile_without_streaming_is_refused_at_its_place(folder: Path) -> None:
    text = TEXT.replace('profile: "phone.json"', 'profile: "@titan-xp-gru"')
    assert re.match(r"s\.yaml:16:\d+: devices\.gateway\.profile: ", complaint(folder, text))


def test_plans_are_made_once_for_the_lengths_that_cover_most_requests(folder: Path) -> None:
    """The plans are for the 95th percentile of either length, or for what is asked."""
    case = plan_of(folder).cases["w"]
    device = case.targets[0].streaming
    assert device is not None and case.targets[1].streaming is None and case.streams
    shorter = case.table.count[case.table.src_len < device.planned.src_len].sum()
    upto = case.table.count[case.table.src_len <= device.planned.src_len].sum()
    assert shorter < 0.95 * case.table.pairs <= upto
    assert device.streamed.deadline_steps == device.planned.tgt_len
    asked = (
        plan_of(folder, TEXT, "devices.gateway.sti.src_len=16", "devices.gateway.sti.tgt_len=12")
        .cases["w"]
        .targets[0]
        .streaming
    )
    assert asked is not None and (asked.planned.src_len, asked.planned.tgt_len) == (16, 12)


def changed(folder: Path, changes: str) -> StreamedDevice:
    plan = plan_of(folder, TEXT, f"devices.gateway.sti.changes={changes}")
    [device] = [device for device in (target.streaming for target in plan.cases["w"].targets) if device is not None]
    return device


def test_a_change_of_deadline_or_buffer_replans_once(folder: Path) -> None:
    """STI-18: plan count = 1 + number of changes; what is as before is no change."""
    assert changed(folder, "[]").planned.as_json()["plannings"] == 1
    device = changed(folder, "[{at_s: 100, deadline_ms: 600}, {at_s: 200, preload_mb: 4}, {at_s: 300, deadline_ms: 600}]")
    assert device.planned.as_json()["plannings"] == 3
    first, tighter, larger = (device.planned, *device.planned.changes)
    assert [change.at_s for change in device.streamed.changes] == [100.0, 200.0]
    assert (tighter.deadline_s, tighter.preload_bytes) == (0.6, 2_000_000)
    assert (larger.deadline_s, larger.preload_bytes) == (0.6, 4_000_000)
    shards = [sum(count for _, count in phase.states[0].bits) for phase in (first, tighter, larger)]
    assert shards[0] > shards[1] == shards[2], "a tighter deadline computes less; the buffer decides bits alone"
    assert all(len(change.streamed.states) == len(device.streamed.states) for change in device.streamed.changes)
    assert device.streamed.changes[1].fill_bytes > 0, "4 MB hold more than 2"


def of_profile(folder: Path, *overrides: str, **block: Any) -> StreamedDevice:
    """The device of a profile whose block `sti` holds these values."""
    profile = streamed_profile()
    assert profile.sti is not None
    changed = written(folder, profile.model_copy(update={"name": "other", "sti": profile.sti.model_copy(update=block)}))
    device = plan_of(folder, TEXT, f"devices.gateway.profile={changed.name}", *overrides).cases["w"].targets[0].streaming
    assert device is not None
    return device


def test_a_cold_start_reads_the_resident_weights_first(folder: Path) -> None:
    """12 MB at the profile's 30 MB/s: of the profile, of the scenario, or not known and then counted as nothing."""
    plain = plan_of(folder).cases["w"].targets[0].streaming
    assert plain is not None
    of_block = of_profile(folder, resident_bytes=12_000_000)
    message = of_profile(folder, "devices.gateway.sti.cold_read_mb=12")
    stays = of_profile(folder, "devices.gateway.sti.cold_read_mb=0", resident_bytes=12_000_000)
    sti = streamed_profile().sti
    assert sti is not None
    more_s = sti.io.s_fixed + 12e6 / sti.io.bytes_per_s
    assert more_s == pytest.approx(0.4, rel=0.1)
    assert of_block.planned.states == message.planned.states and stays.planned.states == plain.planned.states
    (cold, *turns), (without, *others) = of_block.planned.states, plain.planned.states
    assert turns == others
    assert cold.read_bytes == without.read_bytes + 12_000_000
    assert cold.latency_s == pytest.approx(without.latency_s + more_s)
    assert of_block.streamed.states[0].read_s == pytest.approx(plain.streamed.states[0].read_s + more_s)
    assert of_block.streamed.cold_read_bytes == 12_000_000


@pytest.mark.parametrize("slowed", [1.0, 1.3])
def test_the_times_that_are_predicted_layer_by_layer_are_those_of_the_world(folder: Path, slowed: float) -> None:
    """The picture's pipelines and the world's columns: embedding, what a decoder pays once, choosing words, slower reads."""
    sti = streamed_profile().sti
    assert sti is not None and sti.decoder is not None
    device = of_profile(
        folder,
        compute=sti.compute.model_copy(update={"slowed_by_reads": (slowed,) * 8}),
        decoder=sti.decoder.model_copy(update={"once_s": tuple(0.002 + 0.0001 * m for m in range(8))}),
        resident_bytes=3_000_000,
    )
    planned, streamed = device.planned, device.streamed
    in_memory_s = streamed.compute.in_memory_s(planned.src_len, planned.tgt_len)
    assert streamed.compute.once_s > 0.0 and streamed.compute.head_s > 0.0 and planned.states[0].before_s > 0.0
    for planned_state, state in zip(planned.states, streamed.states, strict=True):
        alone_s = float(state.alone_s(streamed.compute, planned.src_len, planned.tgt_len))
        assert planned_state.latency_s == pytest.approx(alone_s)
        assert planned_state.stall_s == pytest.approx(alone_s - in_memory_s, abs=1e-12)
    assert planned.states[0].stall_s > 0.0
    assert in_memory_s <= planned.deadline_s


def test_a_deadline_that_nothing_meets_is_planned_as_small_as_can_be_and_warned_of(folder: Path) -> None:
    plan = plan_of(folder, TEXT, "devices.gateway.sti.deadline_ms=1")
    device = plan.cases["w"].targets[0].streaming
    assert device is not None
    assert (device.planned.states[0].layers, device.planned.states[0].slices) == (1, 1)
    assert len(warnings(plan, [])) == 1
    assert warnings(plan_of(folder, TEXT, "devices.gateway.sti.preload_mb=20"), []) == [], "a cold start is late"


def test_a_streamed_device_is_learnt_as_planned_not_by_the_plane_of_the_whole_model(folder: Path) -> None:
    """Half the layers take about half; the profile's own plane, of 12 ms a token, is not asked, with a fit or without."""
    wide, narrow = (
        plan_of(folder, TEXT, "fit.inferences=0", f"devices.gateway.sti.deadline_ms={deadline}") for deadline in (5000, 450)
    )
    planes = [learn(unit_of(plan)).planes[0] for plan in (wide, narrow)]
    assert planes[1].s_per_tgt_token < 0.9 * planes[0].s_per_tgt_token
    fitted = learn(unit_of(plan_of(folder, TEXT, "fit.inferences=5000", "devices.gateway.sti.deadline_ms=5000")))
    assert fitted.planes[0].s_per_tgt_token == pytest.approx(planes[0].s_per_tgt_token, rel=0.05)
    assert planes[0].s_per_tgt_token < 0.012


def test_a_policy_that_knows_the_state_adds_its_reads_and_nothing_of_the_error_of_the_plane(folder: Path) -> None:
    """A plane that is wrong by half stays wrong by half; told the true times, computing is scaled by each request's own
    residual, in the state as in the plane (XP-04)."""
    plan = plan_of(folder, TEXT.replace("cache_mb: 20", "cache_mb: 1000"), "devices.gateway.sti.preload_mb=1000")
    streamed = plan.cases["w"].targets[0].streamed
    assert streamed is not None
    unit = unit_of(plan)
    learnt = learn(unit)
    plane = learnt.planes[0]
    wrong = replace(plane, s_per_src_token=1.5 * plane.s_per_src_token, s_per_tgt_token=1.5 * plane.s_per_tgt_token)
    learnt = replace(learnt, planes=(wrong, *learnt.planes[1:]))
    drawn = draw(unit, [learnt])
    block = next(iter(drawn.requests.blocks(1_000)))
    beyond_s = {}
    for truths in (frozenset(), frozenset({"times"})):
        (setup,) = UnitSetup.of(unit, drawn, "knowing", truths).setups
        assert setup.plan_beyond_for is not None
        beyond_s[truths], other = setup.plan_beyond_for(block)
        assert other is None
        cold, *warm = map(np.array, beyond_s[truths])
        assert (cold > 0.0).all() and not np.array(warm).any(), "with all in memory nothing is added, to the bit"
    residual = block.execution_s[0] / streamed.compute.in_memory_s(block.src_len, block.tgt_len)
    np.testing.assert_allclose(
        beyond_s[frozenset({"times"})], streamed.beyond_s(block.src_len, residual), rtol=1e-9, atol=1e-12
    )
    np.testing.assert_array_equal(beyond_s[frozenset()], streamed.beyond_s(block.src_len))
    assert not np.array_equal(beyond_s[frozenset()], beyond_s[frozenset({"times"})])
