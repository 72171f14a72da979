"""Common inputs: one C-NMT world as plain columns, so that every model simulates the very same requests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simnmt.base.arrays import Floats
from simnmt.base.random_streams import draw


@dataclass(frozen=True, slots=True)
class WorldInputs:
    """What a model may know of a world of one gateway, one link, one cloud; columns have shape (requests,).

    What a model makes of them, open loop. Request i arrives at `arrival_s[i]` and stays on the gateway when
    `local_predicted_s[i] <= remote_predicted_s[i] + estimate_s`, a tie staying local (CNMT-09).
    `estimate_s` is the transfer time of the response received last, (received - sent) - (finished - reached
    the server), and `initial_transfer_s` before any (CNMT-11). The gateway is one first-come-first-served
    server. A request sent away reaches the cloud `uplink_s[i]` later, waits there for one of the workers in
    order of (time of reaching it, request), and is answered `downlink_s[i]` after its service. Back to
    back, request i + 1 is issued when request i completes, and `arrival_s` is not read.
    """

    arrival_s: Floats
    """Moments of arrival at the gateway, sorted."""
    gateway_s: Floats
    """True execution time on the gateway."""
    cloud_s: Floats
    """True execution time on the cloud server."""
    uplink_s: Floats
    downlink_s: Floats
    local_predicted_s: Floats
    """Execution time that the policy expects of the gateway."""
    remote_predicted_s: Floats
    """Execution time that the policy expects of the cloud server, transfer apart."""
    initial_transfer_s: float = 0.05

    @property
    def requests(self) -> int:
        """Number of requests."""
        return len(self.arrival_s)


GATEWAY_PLANE = (1.4 * 0.0004, 1.4 * 0.003, 1.4 * 0.005)
"""Seconds per source token, per target token, fixed: CNMT-09's on a slower device, to open the choice."""
CLOUD_PLANE = (0.0001, 0.001, 0.004)
"""Seconds per source token, per target token, fixed (CNMT-09)."""
MEAN_SRC_LEN = 20.0
LEN_SLOPE, LEN_OFFSET = 0.8, 1.0
MEAN_RTT_S = 0.05
BITS_PER_TOKEN = 16
BANDWIDTH_BPS = 100e6

_PILOT = 65_536


def cnmt_inputs(requests: int, load: float = 0.6, seed: int = 1) -> WorldInputs:
    """A synthetic world that sends about 60 % away and, open loop, offers its busier server a load of `load`.

    The load is that with one cloud worker, set from a pilot of other draws (within 3 % at 20,000 requests):
    so a longer world begins with the shorter one.
    """
    pilot = _columns(_PILOT, seed, replication=1)
    present_transfer_s = pilot["uplink_s"] + pilot["downlink_s"]
    local = pilot["local_predicted_s"] <= pilot["remote_predicted_s"] + present_transfer_s
    gateway_work_s = np.where(local, pilot["gateway_s"], 0.0).mean()
    cloud_work_s = np.where(local, 0.0, pilot["cloud_s"]).mean()
    mean_gap_s = max(gateway_work_s, cloud_work_s) / load
    gap_s = mean_gap_s * draw(seed, 0, "benchmark arrivals", requests, np.random.Generator.standard_exponential)
    return WorldInputs(arrival_s=np.cumsum(gap_s), **_columns(requests, seed, replication=0))


def _columns(requests: int, seed: int, replication: int) -> dict[str, Floats]:
    """Every column that does not depend on the load."""

    def lognormal(name: str, sigma: float) -> Floats:
        """Factors of mean one, `sigma` being about their relative spread."""
        normal = draw(seed, replication, f"benchmark {name}", requests, np.random.Generator.standard_normal)
        return np.exp(sigma * normal - sigma**2 / 2)

    src_len = np.clip(np.rint(MEAN_SRC_LEN * lognormal("source length", 0.6)), 1, 200)
    expected_tgt_len = np.maximum(LEN_SLOPE * src_len + LEN_OFFSET, 1.0)
    tgt_len = np.clip(np.rint(expected_tgt_len * lognormal("target length", 0.2)), 1, 200)
    # The slow part of the RTT runs over the requests, not over a clock: no load and no policy moves it.
    turn = 2 * np.pi * np.arange(requests)
    slow = 1.0 + 0.15 * np.sin(turn / 2_000) + 0.1 * np.sin(turn / 311)
    rtt_s = MEAN_RTT_S * slow * lognormal("rtt", 0.05)
    return {
        "gateway_s": _plane_s(GATEWAY_PLANE, src_len, tgt_len) * lognormal("gateway", 0.1),
        "cloud_s": _plane_s(CLOUD_PLANE, src_len, tgt_len) * lognormal("cloud", 0.05),
        "uplink_s": rtt_s / 2 + BITS_PER_TOKEN * src_len / BANDWIDTH_BPS,
        "downlink_s": rtt_s / 2 + BITS_PER_TOKEN * tgt_len / BANDWIDTH_BPS,
        "local_predicted_s": _plane_s(GATEWAY_PLANE, src_len, expected_tgt_len),
        "remote_predicted_s": _plane_s(CLOUD_PLANE, src_len, expected_tgt_len),
    }


def _plane_s(plane: tuple[float, float, float], src_len: Floats, tgt_len: Floats) -> Floats:
    """Execution time by CNMT-05."""
    s_per_src_token, s_per_tgt_token, s_fixed = plane
    return s_per_src_token * src_len + s_per_tgt_token * tgt_len + s_fixed
