"""A deployment of three tiers for the tests of whole scenarios."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simnmt.costs import DeviceProfile, write_profile

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
