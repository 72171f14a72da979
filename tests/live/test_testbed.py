"""A whole testbed, in processes of its own: gateway, link and server run a cell with forced lengths, and with free ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra packages of simnmt[models] are not installed")

from simnmt.experiment.cases import Unit
from simnmt.experiment.inputs import read_inputs
from simnmt.live import cell_run
from simnmt.live.cell_run import LiveTestbed
from simnmt.live.decider import live_unit
from simnmt.live.deployment import ReplayedRequests, engine_settings, replayed_requests
from simnmt.live.engine_process import EngineSettings, ServedModel
from simnmt.nmt.engine import DecodeRequest, Hypothesis
from simnmt.nmt.whole_batch_decoder import WholeBatchDecoder
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.profile_file import write_profile
from simnmt.scenario.source import open_source
from tests.campaigns.harness import deep
from tests.live.fake_engines import ARCHITECTURE, STEP_S, block

REQUESTS = 8
Loader = Callable[[EngineSettings], ServedModel]


def load_forced(settings: EngineSettings) -> ServedModel:
    """A model that sleeps as long as the forced lengths take; its process imports no torch."""

    def decode(requests: Sequence[DecodeRequest]) -> list[Hypothesis]:
        lengths = [request.forced_len for request in requests]
        time.sleep(STEP_S * max(lengths))
        return [Hypothesis((1,) * length, None, length) for length in lengths]

    return ServedModel(partial(WholeBatchDecoder, decode), block(settings), lambda: STEP_S)


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


@pytest.fixture
def testbed(tmp_path: Path) -> Iterator[LiveTestbed]:
    with LiveTestbed(tmp_path, any_model=True) as started:
        yield started


@pytest.mark.parametrize("loader", [load_forced, deep(None)], ids=["paced", "torch"])
def test_requests_go_through_the_link_to_the_server_with_the_lengths_that_were_forced(
    testbed: LiveTestbed, unit: Unit, monkeypatch: pytest.MonkeyPatch, loader: Loader | None
) -> None:
    """With engines that sleep, and with those of the scenario, whose processes import torch."""
    monkeypatch.setattr(
        cell_run, "engine_settings", lambda *given, **more: replace(engine_settings(*given, **more), loader=loader)
    )
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
