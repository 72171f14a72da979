"""What makes a profile doubtful, computed in one place."""

from __future__ import annotations

import re
from typing import Any

import pytest

from simnmt.calibrate.profile_assembly import with_batches_at_pace
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.device_profile import checked_profile
from simnmt.profile.doubts import Doubt, profile_doubts
from simnmt.profile.profile_summary import as_json, facts, title
from tests.profile.made_decoder import decoder_block
from tests.profile.made_profile import whole_profile

QUIET = {"load_average": 0.1, "busy": False, "others_cpus": 0.0, "drift": 0.01, "disturbed_cells": 0, "disturbed": []}


def good_profile() -> dict[str, Any]:
    """Content of a profile whose plane and steps agree, measured on a quiet box."""
    measured = checked_profile(whole_profile() | {"conditions": QUIET})
    return with_batches_at_pace(measured).model_dump(mode="json")


def doubts(**blocks: Any) -> list[tuple[str, tuple[str, ...], str]]:
    """Doubts of a whole profile with these top-level blocks replaced."""
    profile = checked_profile(good_profile() | blocks)
    return [(doubt.source, doubt.cost_models, doubt.message) for doubt in profile_doubts(profile)]


def erring(block: str, error: float) -> dict[str, Any]:
    return {block: good_profile()[block] | {"heldout_error": error}}


def test_a_busy_box_casts_doubt_on_all_that_was_measured_then() -> None:
    [(source, cost_models, message)] = doubts(conditions=QUIET | {"busy": True, "others_cpus": 1.5})
    assert source == "conditions" and {"execution", "step", "encoder"} <= set(cost_models)
    assert message.startswith("the box was busy: other programs used 1.5 CPUs before or after measuring execution, step")


@pytest.mark.parametrize(("calibrated", "chosen", "doubtful"), [(6, None, 0), (6, 6, 0), (6, 5, 1), (1, 5, 1), (6, 1, 0)])
def test_a_beam_is_doubtful_unless_its_steps_beyond_the_best_output_were_counted(
    calibrated: int, chosen: int | None, doubtful: int
) -> None:
    engine = {"backend": "torch", "compute_type": "float32", "device": "cpu", "beam": calibrated}
    counted = {"kind": "measured", "steps_per_token": 1.3} if calibrated > 1 else None
    profile = checked_profile(good_profile() | {"engine": engine, "beam_overrun": counted})
    messages = [doubt.message for doubt in profile_doubts(profile, ["execution"], beam=chosen)]
    assert len(messages) == doubtful
    assert all(f"calibrate a trained model with --beam {chosen} " in message for message in messages)


def test_a_later_session_replaces_the_doubts_of_what_it_measured() -> None:
    busy = QUIET | {"busy": True, "others_cpus": 2.0}
    again = QUIET | {"parts": ["step", "overheads"]}
    [(_, cost_models, _)] = doubts(conditions=busy | {"later": [again]})
    assert not {"step", "encoder", "overheads"} & set(cost_models) and "execution" in cost_models
    [(_, cost_models, message)] = doubts(conditions=QUIET | {"later": [busy | {"parts": ["energy"]}]})
    assert cost_models == ("energy",) and "measuring energy (" in message


def test_disturbed_cells_are_counted_for_the_cost_models_that_they_belong_to() -> None:
    cells = ["execution 2+2", "step 20+64 x3", "step 20+64 x8"]
    spoilt = QUIET | {"disturbed_cells": 3, "disturbed": cells, "drift": 0.3}
    [(_, cost_models, message)] = doubts(conditions=spoilt | {"later": [QUIET | {"parts": ["execution"]}]})
    assert cost_models == ("step",)
    assert message.startswith("2 cells of step stayed disturbed: the reference cell moved by up to 30 %")


@pytest.mark.parametrize("block", ["step", "encoder"])
def test_a_heldout_error_above_a_tenth_is_doubtful_for_every_cost_model(block: str) -> None:
    assert doubts(**erring(block, 0.1)) == []
    assert doubts(**erring(block, 0.245)) == [
        (block, (block,), f"{block}: a held-out error of 24.5 %, above 10 % (measure again)")
    ]


def test_plane_and_steps_that_disagree_on_a_sentence_alone_are_doubtful() -> None:
    """XP-01: 2 % on the mean over a shipped length table."""
    step = good_profile()["step"]
    slower = step | {"seconds": [[1.2 * seconds for seconds in step["seconds"][0]], *step["seconds"][1:]]}
    [(source, cost_models, message)] = doubts(step=slower)
    assert source == "step" and cost_models == ("step", "encoder")
    assert re.match(r"a sentence alone takes \+\d+\.\d % by steps against the plane, beyond 2 %", message)


def test_a_mean_far_above_the_least_times_is_doubtful() -> None:
    def of_fit(**fit: float) -> list[Doubt]:
        execution = good_profile()["execution"]
        return profile_doubts(checked_profile(good_profile() | {"execution": execution | {"fit": execution["fit"] | fit}}))

    assert of_fit(level=1.09, disturbed_share=0.1) == []
    [busy] = of_fit(level=1.33, disturbed_share=0.0)
    assert busy.message.startswith("the mean of the executions lies 33 % above their undisturbed time")
    assert "25 % less time" in busy.effect
    [disturbed] = of_fit(level=1.02, disturbed_share=0.3)
    assert "30 % of the executions were disturbed" in disturbed.message


def test_doubts_follow_the_lines_that_they_concern() -> None:
    content = good_profile() | {"conditions": QUIET | {"busy": True, "others_cpus": 1.0}} | erring("step", 0.3)
    profile = checked_profile(content)
    lines = facts(profile)
    names = [name for name, _ in lines]
    of_step = next(at for at, (name, text) in enumerate(lines) if name == "warning" and text.startswith("step: "))
    assert names[of_step - 1].startswith("decode step")
    assert names[names.index("conditions") + 1] == "warning"
    assert title(profile).endswith("measured, 2 warnings")
    assert [warning["source"] for warning in as_json(profile)["warnings"]] == ["conditions", "step"]


def test_weights_that_16_bit_products_clip_cast_doubt_where_these_are_used() -> None:
    engine = good_profile()["engine"] | {"backend": "sharp", "clipped_weights": 3, "product_weights": 12_000}
    rounding = decoder_block([DecoderSettings(gemm="float32"), DecoderSettings(gemm="int16")])
    assert doubts(engine=engine) == [], "products of float32 clip nothing"
    for blocks, cost_models in (
        ({"engine": engine | {"compute_type": "int16"}}, ("execution", "decoder")),
        ({"engine": engine, "decoder": rounding}, ("decoder",)),
    ):
        [(source, concerned, message)] = [doubt for doubt in doubts(**blocks) if "clip" in doubt[2]]
        assert (source, concerned) == ("decoder", cost_models)
        assert message.startswith("3 of 12,000 weights (0.025 %) lie beyond [-1, 1], where 16-bit products clip them")
    assert doubts(engine=engine | {"compute_type": "int16", "clipped_weights": 0}) == []


@pytest.mark.parametrize(("weights", "effects"), [("checkpoint", 0), ("random", 1)])
def test_loads_of_no_file_are_doubtful(weights: str, effects: int) -> None:
    content = good_profile()
    profile = checked_profile(content | {"engine": content["engine"] | {"weights": weights}})
    assert len([doubt.effect for doubt in profile_doubts(profile, ["model_memory"])]) == effects
    assert profile_doubts(profile, ["execution"]) == []
