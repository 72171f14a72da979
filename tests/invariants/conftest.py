"""Whole scenarios for tests: three tiers, a cloud that batches, a gateway that streams, and a run for the session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import simnmt
from simnmt.profile.device_profile import DeviceProfile, write_profile
from tests.conftest import small_scenarios
from tests.experiment.streamed_profile import TEXT, streamed_profile, written
from tests.profile.made_profile import line_table

DISCIPLINES: dict[str, dict[str, Any]] = {
    "back to back": {"kind": "back_to_back"},
    "open loop": {"kind": "poisson", "rate_rps": 40.0},
    "closed loop": {"kind": "clients", "clients": 30, "think_time": {"mean_s": 0.5}},
}
"""Arrivals at three tiers."""
POISSON = {"de-en": {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 6.0}}}


@pytest.fixture(scope="session")
def paper(tmp_path_factory: pytest.TempPathFactory, make_profile: Callable[..., DeviceProfile]) -> simnmt.Run:
    """Back to back, the paper's protocol, in a run directory."""
    folder = tmp_path_factory.mktemp("small")
    return simnmt.run(small_scenarios(folder, make_profile)(), out=folder / "run")


REGION_PLANE = (0.0005, 0.004, 0.008)
"""Between the gateway's and the cloud's: seconds per source token, per target token, fixed."""


@pytest.fixture
def make_tiers(
    tmp_path: Path, make_profile: Callable[..., DeviceProfile], make_scenario: Callable[..., dict[str, Any]]
) -> Callable[..., dict[str, Any]]:
    """Builds twelve end nodes with links of their own, three gateways, two regional and four cloud boxes; 40 requests/s.

    Keywords replace top-level keys; `arrivals` and `end_nodes` those of the workload.
    """

    def make(
        arrivals: dict[str, Any] | None = None, end_nodes: int = 12, relative_sd: float = 0.1, **keys: Any
    ) -> dict[str, Any]:
        write_profile(tmp_path / "region.json", make_profile(REGION_PLANE, relative_sd, name="region"))
        workload = {
            "lengths": "@de-en-news",
            "end_nodes": end_nodes,
            "arrivals": arrivals or {"kind": "poisson", "rate_rps": 40.0},
        }
        hops = {
            "gateway": [{"rtt": {"constant_ms": 4}}, {"rtt": "@cp2", "rtt_mean_ms": 30}],
            "region": {"rtt": {"constant_ms": 60}},
        }
        profiles = {name: str(tmp_path / f"{name}.json") for name in ("gateway", "region", "cloud")}
        devices = {
            "gateway": {"profile": profiles["gateway"], "count": 3},
            "region": {"profile": profiles["region"], "count": 2, "workers": 2, "balancer": "least_work"},
            "cloud": {"profile": profiles["cloud"], "count": 2, "balancer": "two_choices"},
        }
        return make_scenario(relative_sd) | {
            "name": "tiers",
            "workloads": {"de-en": workload},
            "networks": {"cp1": {"rtt": "@cp1", "hops": hops}},
            "devices": devices,
        } | keys  # fmt: skip

    return make


STEP_S = line_table((1, 64), (0, 400), 0.0018, 0.0002).rows
ENCODE_S = line_table((1, 64), (1, 400), 0.004, 0.001, 0.0001, 0.0001).rows
"""One sentence alone takes exactly the cloud's plane; eight take 3.4 ms a step, where one takes 2."""


@pytest.fixture
def make_batched(
    tmp_path: Path, make_profile: Callable[..., DeviceProfile], make_scenario: Callable[..., dict[str, Any]]
) -> Callable[..., dict[str, Any]]:
    """Builds a gateway and a cloud that batches, asked for `rate_rps`; keywords replace top-level keys.

    `batching`: the cloud's; `arrivals`: in place of Poisson ones.
    """

    def make(
        batching: dict[str, Any] | None = None,
        rate_rps: float = 60.0,
        arrivals: dict[str, Any] | None = None,
        relative_sd: float = 0.1,
        **keys: Any,
    ) -> dict[str, Any]:
        scenario = make_scenario(relative_sd)
        measured = {"kind": "synthetic", "batch": (1, 64)}
        blocks = {
            "schema_version": 2,
            "step": measured | {"position": (0, 400), "seconds": STEP_S},
            "encoder": measured | {"src_len": (1, 400), "seconds": ENCODE_S},
            "overheads": {key: {"value": 0.0, "kind": "synthetic"} for key in ("refill_s_fixed", "refill_s_per_sentence")},
        }
        write_profile(tmp_path / "batched.json", make_profile((0.0002, 0.002, 0.005), relative_sd, name="batched", **blocks))
        cloud = {"profile": str(tmp_path / "batched.json"), "batching": batching or {"kind": "top_up", "size": 8}}
        return scenario | {
            "name": "batched",
            "workloads": {
                "de-en": {
                    "lengths": "@de-en-news",
                    "end_nodes": 4,
                    "arrivals": arrivals or {"kind": "poisson", "rate_rps": rate_rps},
                }
            },
            "devices": {"gateway": {**scenario["devices"]["gateway"], "count": 4}, "cloud": cloud},
        } | keys  # fmt: skip

    return make


@pytest.fixture
def make_streamed(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Builds engagements at a gateway that streams its model, beside a cloud; keywords replace top-level keys."""

    def make(**keys: Any) -> dict[str, Any]:
        scenario = YAML(typ="safe").load(TEXT)
        scenario["devices"]["gateway"]["profile"] = str(written(tmp_path, streamed_profile()))
        return scenario | keys

    return make
