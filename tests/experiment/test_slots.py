"""Scenarios with devices that decode in slots: keys, refusals of what does not fit, results, sweeps and policies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simnmt
from simnmt.base.errors import InputError
from simnmt.base.shipped_files import find
from simnmt.profile import read_profile
from simnmt.profile.device_profile import DeviceProfile


def llama(**block: Any) -> DeviceProfile:
    """The shipped profile with another block."""
    profile = read_profile(find("calibration", "@llama-slots"))
    assert profile.slots is not None
    return profile.model_copy(update={"slots": profile.slots.model_copy(update=block)})


ALONE: dict[str, Any] = {"lengths": "@de-en-news", "end_nodes": 4}


def scenario(cloud: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    """A gateway, and a cloud with slots."""
    return {
        "version": 1,
        "name": "slots",
        "replications": 1,
        "requests": 600,
        "workloads": {"de-en": {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 14.0}, "end_nodes": 4}},
        "networks": {"cp2": {"rtt": "@cp2"}},
        "devices": {
            "gateway": {"profile": "@tx2-gru", "count": 4, "outside_range_share": 1.0},
            "cloud": {"profile": llama(), "outside_range_share": 1.0} | (cloud or {}),
        },
        "policies": {"cloud": {}, "cnmt": {"batch": "reported", "sees_backlog": True}},
    } | keys


def cloud_row(**arguments: Any) -> dict[str, Any]:
    return simnmt.run(scenario(**arguments)).summary_rows[0]


def test_a_profile_with_the_block_makes_slots_of_a_device() -> None:
    result = simnmt.run(scenario())
    row = result.summary_rows[0]
    assert 1.0 < row["cloud_mean_batch"] < 8.0
    assert 0.4 < row["cloud_load"] < 1.0
    assert 0.0 < row["mean_first_token_s"] < row["mean_latency_s"]
    assert any("decodes up to 8 requests together in slots" in note for note in result.notes)
    table = result.requests
    of_cloud = table[(table["policy"] == "cloud")]
    assert (of_cloud["first_token_s"] <= of_cloud["t_queue_s"] + of_cloud["t_exe_s"] + 1e-9).all()


@pytest.mark.parametrize(("limits", "is_slower"), [({"slots": 2}, True), ({"cached_prefix": 0}, True), ({"chunk": 999}, False)])
def test_keys_replace_single_limits(limits: dict[str, int], is_slower: bool) -> None:
    plain, changed = (cloud_row(cloud=cloud)["mean_latency_s"] for cloud in ({}, {"slots": limits}))
    assert (changed > 1.01 * plain) == is_slower


def test_costs_that_vanish_make_it_faster() -> None:
    plain_s = cloud_row()["mean_latency_s"]
    for block in ({"s_per_context_token": 0.0}, {"step_s": (0.004,) + (0.0078,) * 8}, {"s_per_prompt_token": 0.0}):
        assert cloud_row(cloud={"profile": llama(**block)})["mean_latency_s"] < plain_s


def test_requests_beyond_the_context_fall_back_or_are_passed_on() -> None:
    long = {"slots": {"context": 120}}
    row = cloud_row(cloud=long)
    assert row["fallback_share"] > 0.1
    assert row["answered_share"] == 1.0
    passed = cloud_row(cloud=long, on_refusal="pass_on")
    assert passed["refused_share"] == pytest.approx(row["fallback_share"])


def test_a_policy_that_hears_of_slots_does_better_than_one_that_does_not() -> None:
    policies = {"plain": {"kind": "cnmt"}, "reported": {"kind": "cnmt", "batch": "reported", "sees_backlog": True}}
    fast = llama(step_s=tuple(0.3 * step_s for step_s in llama().slots.step_s))  # type: ignore[union-attr]
    workloads = {"de-en": scenario()["workloads"]["de-en"] | {"arrivals": {"kind": "poisson", "rate_rps": 60.0}}}
    run = simnmt.run(scenario({"profile": fast}, policies=policies, workloads=workloads, requests=2_000))
    plain, reported = (row["mean_latency_s"] for row in run.summary_rows)
    assert reported < plain


def test_slots_are_swept_and_planned(tmp_path: Path) -> None:
    few: dict[str, Any] = {"requests": 400, "replications": 1}
    swept = simnmt.sweep("@llama-slots", grid=["devices.cloud.slots.slots=2,8"], out=tmp_path / "swept", **few)
    rows = [row for row in swept.table.rows if row["policy"] == "cloud"]
    assert rows[0]["mean_ms"] > rows[1]["mean_ms"]
    plan = simnmt.plan("@llama-slots", "p95_ms<=900", rate=16, vary=["devices.cloud.slots.slots=1:8"], **few)
    assert "devices.cloud.slots.slots=" in str(plan)
    alone = simnmt.run(scenario(), overrides=["devices.cloud.slots.slots=2"])
    assert any("decodes up to 2 requests together in slots" in note for note in alone.notes)


def test_back_to_back_a_request_takes_its_iterations_alone() -> None:
    workloads = {"de-en": {"lengths": "@de-en-news"}}
    result = simnmt.run(scenario(workloads=workloads, policies={"cloud": {}}, devices={"cloud": {"profile": llama()}}))
    table, slots = result.requests, llama().slots
    assert slots is not None
    prompt, output = slots.prompt.tokens(table["src_len"].to_numpy()), slots.output.tokens(table["tgt_len"].to_numpy())
    assert np.allclose(table["t_exe_s"], slots.cost.solo_s(prompt, output, slots.chunk, slots.cached_prefix))


@pytest.mark.parametrize(
    ("cloud", "keys", "message"),
    [
        ({"slots": {"slots": 9}}, {}, "profile llama-slots: 9 slots, but the profile has steps of up to 8"),
        ({"slots": {"chunk": 4}}, {}, r"chunk must be at least slots, 8 \(got 4\)"),
        ({"slots": {"context": 1}}, {}, r"context must be at least 2 \(got 1\)"),
        ({"profile": "@titan-xp-gru", "slots": {"slots": 2}}, {}, "profile titan-xp-gru has no costs of slots"),
        ({"batching": {"kind": "mini"}}, {}, "of an engine with slots, which batching does not fit"),
        ({"workers": 2}, {}, "of an engine with slots, which workers does not fit"),
        ({"slots": {"slots": 2}, "batching": {"kind": "mini"}}, {}, "not beside slots: cloud decodes in slots"),
        ({"execution": "slots"}, {}, "give slots in place of the execution kind slots"),
        ({"slots": {"context": 60}}, {"workloads": {"de-en": ALONE}}, "back to back none is refused"),
    ],
)
def test_what_does_not_fit_slots_is_refused_on_one_line(cloud: dict[str, Any], keys: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        simnmt.run(scenario(cloud, **keys))
    assert "\n" not in str(refused.value)


def test_classes_and_models_do_not_fit_slots() -> None:
    workload = scenario()["workloads"]["de-en"] | {"class": "fast"}
    with pytest.raises(InputError, match="classes: cloud decodes in slots"):
        simnmt.run(scenario(classes={"fast": {"priority": 0}}, workloads={"de-en": workload}, share_devices=True))
    with pytest.raises(InputError, match="of an engine with slots, which models does not fit"):
        simnmt.run(scenario(devices={"cloud": {"models": {"de-en": "@llama-slots"}, "outside_range_share": 1.0}}))


def test_lengths_that_count_ends_of_sentences_have_the_same_tokens() -> None:
    profile = llama()
    counted = profile.counted_in(profile.length_unit.model_copy(update={"end_of_sentence": "both"}))
    assert profile.slots is not None
    assert counted.slots is not None
    lengths = np.array([9, 30])
    assert counted.slots.prompt.tokens(lengths + 1).tolist() == profile.slots.prompt.tokens(lengths).tolist()
    assert counted.slots.output.tokens(lengths + 1).tolist() == profile.slots.output.tokens(lengths).tolist()
    assert counted.slots.kind == "synthetic"
