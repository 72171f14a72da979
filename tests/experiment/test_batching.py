"""The batching of a scenario: wrong input is refused at its place, and costs of refills are those of the profile."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from simnmt.base import shipped_files
from simnmt.base.errors import InputError
from simnmt.batching import Batching, maxi, mini, top_up
from simnmt.experiment.cases import RunPlan
from simnmt.experiment.inputs import read_inputs
from simnmt.experiment.targets import Decoding, saturated_s
from simnmt.profile.cost import CostTable, DecodingCost
from simnmt.scenario.source import open_source

GOOD = """\
version: 1
name: x
requests: 100
workloads:
  w: {lengths: "@de-en-news", arrivals: {kind: poisson, rate_rps: 3}}
networks: {n: {rtt: "@cp1"}}
devices:
  gateway: {profile: "@cpu1-gru"}
  cloud:
    profile: "@cpu1-gru"
    batching: {kind: top_up, size: 32}
policies: {cnmt: {}}
"""
BATCHING = "batching: {kind: top_up, size: 32}"


def plan_of(tmp_path: Path, text: str = GOOD, *overrides: str) -> RunPlan:
    (tmp_path / "s.yaml").write_text(text, encoding="utf-8")
    source = open_source(tmp_path / "s.yaml", overrides)
    return read_inputs(source.scenario, tmp_path, source.document)


def complaint(tmp_path: Path, text: str, *overrides: str) -> str:
    with pytest.raises(InputError) as caught:
        plan_of(tmp_path, text, *overrides)
    assert caught.value.exit_status == 2
    message = str(caught.value)
    assert "\n" not in message
    return message.removeprefix(f"{tmp_path}/")


CASES = {
    "a threshold that no batch is above": (BATCHING, "batching: {kind: top_up, threshold: 32}", 11, "batching"),
    "a collection that fills no batch": (
        BATCHING,
        "batching: {kind: maxi, size: 32, collect: 31}",
        11,
        "batching",
    ),
    "a kind misspelt": (BATCHING, "batching: {kind: topup, size: 32}", 11, "batching.kind"),
    "a key misspelt": (BATCHING, "batching: {kind: mini, sise: 32}", 11, "batching.sise"),
    "batches beyond what was measured": ("size: 32", "size: 9999", 11, "batching.size"),
    "workers beside batches": (BATCHING, f"{BATCHING}\n    workers: 2", 12, "workers"),
    "a profile without steps": ('profile: "@cpu1-gru"\n    b', 'profile: "@titan-xp-gru"\n    b', 10, "profile"),
}


@pytest.mark.parametrize(("before", "after", "line", "key"), CASES.values(), ids=CASES.keys())
def test_wrong_batching_is_refused_at_its_place(tmp_path: Path, before: str, after: str, line: int, key: str) -> None:
    assert before in GOOD
    assert re.match(rf"s\.yaml:{line}:\d+: devices\.cloud\.{key}: ", complaint(tmp_path, GOOD.replace(before, after)))


FREE = "devices.cloud.batching.refill=free"
UNMEASURED = GOOD.replace('profile: "@cpu1-gru"\n    b', 'profile: "bare.json"\n    b')


@pytest.fixture
def bare_profile(tmp_path: Path) -> None:
    """A profile whose calibration was from before refills were timed: one cost is null, the other is not there."""
    content = json.loads(shipped_files.find("calibration", "@cpu1-gru").read_text(encoding="utf-8"))
    content["overheads"]["refill_s_fixed"]["value"] = None
    del content["overheads"]["refill_s_per_sentence"]
    (tmp_path / "bare.json").write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.usefixtures("bare_profile")
def test_refilling_is_refused_where_its_costs_were_not_measured(tmp_path: Path) -> None:
    assert complaint(tmp_path, UNMEASURED).startswith("s.yaml:11:15: devices.cloud.batching: ")


@pytest.mark.usefixtures("bare_profile")
@pytest.mark.parametrize("batching", ["{kind: mini}", "{kind: maxi}", "{kind: top_up, threshold: 0}"])
def test_batches_that_are_never_refilled_need_no_such_costs(tmp_path: Path, batching: str) -> None:
    plan_of(tmp_path, UNMEASURED, f"devices.cloud.batching={batching}")


@pytest.mark.parametrize("text", [GOOD, UNMEASURED], ids=["measured", "not measured"])
@pytest.mark.usefixtures("bare_profile")
def test_refills_are_free_where_the_scenario_says_so(tmp_path: Path, text: str) -> None:
    plan = plan_of(tmp_path, text, FREE)
    decoding = plan.cases["w"].targets[1].decoding
    assert decoding is not None
    assert decoding.cost.refill_s(5) == 0.0
    measured = plan_of(tmp_path).cases["w"].targets[1].decoding
    assert measured is not None and measured.cost.refill_s(5) > 1e-4


STEP = CostTable.of((1, 64), (0, 200), 0.01)
NO_COST = CostTable.of((1, 64), (1, 200), 0.0)


def seconds(batching: Batching, sentences: int, length: int = 10) -> float:
    """Of sentences that are all alike; a step takes 10 ms whoever is in it."""
    lengths = np.full(sentences, length)
    return saturated_s(Decoding(batching, DecodingCost(STEP, NO_COST)), lengths, lengths)


@pytest.mark.parametrize("batching", [mini(8), maxi(8, 16), top_up(8, 4), top_up(8, 7)])
@pytest.mark.parametrize("sentences", [1, 3, 8, 13, 1_900, 2_500])
def test_however_few_there_are_the_batch_is_full(batching: Batching, sentences: int) -> None:
    """Eight together take ten steps of 10 ms: an eighth of that each, even of three that never fill a batch by themselves."""
    assert seconds(batching, sentences) == pytest.approx(sentences * 0.1 / 8)
