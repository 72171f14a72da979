"""Block `sti` of a profile: what it refuses, and the costs that planners and worlds take from it (STI-07 to STI-09)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simnmt.profile.device_profile import DeviceProfile, checked_profile, read_profile, write_profile
from simnmt.profile.profile_summary import as_json, facts
from tests.profile.made_profile import whole_profile
from tests.profile.made_sti import sti_block

WHOLE = whole_profile()


@pytest.fixture
def streamed() -> Callable[..., DeviceProfile]:
    def make(place: tuple[Any, ...] = (), value: object = None, **options: Any) -> DeviceProfile:
        content = WHOLE | {"sti": sti_block(**options)}
        if place:
            content = copy.deepcopy(content)
            block: Any = content["sti"]
            for key in place[:-1]:
                block = block[key]
            block[place[-1]] = value
        return checked_profile(content)

    return make


def test_a_planner_gets_the_disk_the_layers_and_the_order_of_the_shards(streamed: Callable[..., DeviceProfile]) -> None:
    cost = streamed(bytes_per_s=80e6).sti_cost
    assert (cost.geometry.layers, cost.geometry.heads, cost.geometry.weights_per_shard) == (12, 12, 589_824)
    assert cost.t_io(2) == pytest.approx(1e-4 + (147_456 + 16) / 80e6)
    assert cost.t_io(32) == pytest.approx(1e-4 + 2_359_296 / 80e6)
    assert cost.t_comp(16, 3) == pytest.approx(0.004 + 3 * 0.0012)
    assert cost.t_comp(17, 3) == cost.t_comp(32, 3) == pytest.approx(0.004 + 3 * 0.0024)
    assert cost.importance is not None
    assert cost.importance[:2] == ((0, 1), (11, 11))
    assert len(cost.importance) == 144
    assert cost.decoder is None
    assert (cost.t_embed(16), cost.t_embed(64), cost.head_s, cost.slowing(1)) == pytest.approx((0.0004, 0.0008, 0.0006, 1.0))


def test_an_encoder_decoder_gives_the_costs_of_both_halves(streamed: Callable[..., DeviceProfile]) -> None:
    profile = streamed(layers=6, heads=8, width=512, ffn=2048, decoder_layers=6, importance=False)
    decoder = profile.sti_cost.decoder
    assert decoder is not None
    assert decoder.geometry.layers == 6
    assert decoder.geometry.weights_per_shard == 8 * 512 * 512 // 8 + 2 * 512 * 2048 // 8
    assert decoder.step_s[2] == pytest.approx(0.0007)
    assert decoder.io_s[32] > profile.sti_cost.t_io(32)
    assert (profile.sti_cost.t_embed(9), profile.sti_cost.head_s, decoder.once_s) == (0.0004, 0.002, ())
    once = streamed(
        ("decoder", "once_s"), [0.001, 0.0015], layers=2, heads=2, width=8, ffn=16, decoder_layers=3, importance=False
    )
    assert [once.sti_cost.once_s(width) for width in (1, 2)] == [0.001, 0.0015]


def test_more_bits_never_load_faster_even_if_a_busy_disk_measured_so(streamed: Callable[..., DeviceProfile]) -> None:
    """STI-07: T_io does not fall with the bits; the samples stay as they were measured."""
    read = sti_block()["io"]["reads"][1]
    profile = streamed(("io", "reads", 1), {"bits": 3, "bytes": read["bytes"], "min_s": 0.0001, "median_s": 0.0001})
    assert profile.sti is not None
    assert profile.sti.io.reads[1].median_s == 0.0001
    assert profile.sti_cost.t_io(3) == profile.sti_cost.t_io(2)


def test_the_block_is_written_read_back_and_summarised(streamed: Callable[..., DeviceProfile], tmp_path: Path) -> None:
    profile = streamed(layers=6, heads=8, width=512, ffn=2048, decoder_layers=6)
    write_profile(tmp_path / "p.json", profile)
    assert read_profile(tmp_path / "p.json") == profile
    lines = dict(facts(profile))
    assert lines["sti"].startswith("synthetic; made up; 6 layers of 8 shards, 512 x 2048")
    assert "2 bits" in lines["sti read"] and "2 % held out" in lines["sti layer"]
    assert lines["sti importance"].startswith("made.tsv; 100 examples")
    assert as_json(profile)["heldout_error"]["sti"] == 0.02


def test_a_table_that_whole_submodels_contradict_is_warned_of(streamed: Callable[..., DeviceProfile]) -> None:
    assert "sti" not in str([message for what, message in facts(streamed()) if what == "warning"])
    message = str([message for what, message in facts(streamed(("compute", "heldout_error"), 0.25)) if what == "warning"])
    assert "a held-out error of 25 % on whole submodels" in message
    measured = streamed().model_copy(update={"sti": streamed(("io", "r2"), 0.5).sti.model_copy(update={"kind": "measured"})})
    assert "R2 of reads by bits 0.50" in str(facts(measured))
