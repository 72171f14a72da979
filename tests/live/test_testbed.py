"""A whole testbed, in processes of its own: gateway, link and server run a cell with forced lengths, and with free ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra packages of simnmt[models] are not installed")

from simnmt.experiment.cases import Unit
from simnmt.experiment.inputs import read_inputs
from simnmt.live.cell_run import LiveTestbed
from simnmt.live.decider import live_unit
from simnmt.live.deployment import ReplayedRequests, replayed_requests
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.profile_file import write_profile
from simnmt.scenario.source import open_source
from tests.live.fake_engines import ARCHITECTURE

REQUESTS = 8


@pytest.fixture(scope="module")
def unit(make_profile: Callable[..., DeviceProfile], tmp_path_factory: pytest.TempPathFactory) -> Unit:
    """A tiny model in the place of the shipped scenario's: an engine that builds that one takes seconds to start."""
    profile = tmp_path_factory.mktemp("profiles") / "tiny.json"
    engine = {"backend": "torch", "compute_type": "float32", "device": "cpu", "threads": 1}
    write_profile(profile, make_profile(engine=engine | {"architecture": ARCHITECTURE.model_dump(mode="json")}))
    devices = [f"devices.{device}.profile={profile}" for device in ("gateway", "cloud")]
    overrides = [f"requests={REQUESTS}", "workloads.de-en.end_nodes=1", "fit.inferences=0", *devices]
    source = open_source("@live-smoke", overrides)
    return live_unit(read_inputs(source.scenario, Path.cwd(), source.document))


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveTestbed]:
    with LiveTestbed(tmp_path_factory.mktemp("testbed"), any_model=True) as started:
        yield started


def test_requests_go_through_the_link_to_the_server_with_the_lengths_that_were_forced(testbed: LiveTestbed, unit: Unit) -> None:
    requests = replayed_requests(unit)
    run = testbed.run(unit, "cloud", requests)
    assert run.valid.all()
    assert run.log.target.tolist() == [1] * REQUESTS
    assert run.log.tgt_len.tolist() == requests.tgt_len.tolist()
    assert run.log.src_len.tolist() == requests.src_len.tolist()
    assert run.link_s == pytest.approx(np.full(REQUESTS, 0.025), abs=1e-3)
    assert (run.overhead_s > 0.0).all(), "no request is faster than its link"
    assert run.decisions_identical
    assert requests.decoded(run.log) is requests, "forced lengths are known beforehand"


@pytest.mark.deep
def test_free_lengths_are_those_that_the_engine_decoded(testbed: LiveTestbed, unit: Unit) -> None:
    drawn = replayed_requests(unit)
    texts = ["ein Haus"] * (REQUESTS - 1) + ["ein sehr grosses Haus am See"]
    requests: ReplayedRequests = replace(drawn, texts=texts, forced=False)
    run = testbed.run(unit, "edge", requests)
    decoded = requests.decoded(run.log)
    assert decoded.src_len.tolist() == [3] * (REQUESTS - 1) + [7]
    assert decoded.tgt_len.tolist() == run.log.tgt_len.tolist()
    assert len(set(decoded.tgt_len[:-1].tolist())) == 1, "equal texts end alike"
    assert decoded.tgt_len.tolist() != drawn.tgt_len.tolist()
    assert run.decisions_identical
