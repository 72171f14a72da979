"""Random small scenarios for hypothesis: every kind of policy with every key, on targets of every kind in every discipline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Keys = dict[str, Any]
Draw = Callable[[st.SearchStrategy[Any]], Any]

TRANSFER_ESTIMATES = st.one_of(
    st.sampled_from(["last", "smoothed", "quantile"]),
    st.builds(lambda weight: {"kind": "smoothed", "weight": weight}, st.sampled_from([0.1, 0.5, 1.0])),
    st.builds(
        lambda quantile, window: {"kind": "quantile", "quantile": quantile, "window": window},
        st.sampled_from([0.0, 0.3, 1.0]),
        st.sampled_from([1, 5, 100]),
    ),
)
ESTIMATION = {
    "initial_transfer_ms": st.sampled_from([0.0, 40.0, 1000.0]),
    "transfer_estimate": TRANSFER_ESTIMATES,
    "sees_backlog": st.booleans(),
    "plan_state": st.sampled_from(["ignored", "known"]),
}
"""Keys of every policy that estimates."""
LENGTHS = st.one_of(
    st.fixed_dictionaries({}, optional={"len_slope": st.sampled_from([0.0, 0.8]), "len_offset": st.sampled_from([-3.0, 2.0])}),
    st.builds(lambda minimises: {"lengths": "distribution", "minimises": minimises}, st.sampled_from(["mean", "p95"])),
)
NAIVE = st.fixed_dictionaries({"kind": st.just("naive")}, optional=ESTIMATION | {"tgt_len": st.sampled_from([0.5, 20.0])})
CNMT = st.builds(
    lambda lengths, keys: lengths | keys,
    LENGTHS,
    st.fixed_dictionaries({"kind": st.just("cnmt")}, optional=ESTIMATION | {"batch": st.sampled_from(["plain", "reported"])}),
)
POLICIES = st.builds(
    lambda naive, first, second, fixed: {"oracle": {}, "naive": naive, "first": first, "second": second, **fixed},
    NAIVE,
    CNMT,
    CNMT,
    st.sampled_from([{}, {"edge": {}}, {"cloud": {}}]),
)
BATCHING = st.one_of(
    st.builds(lambda size: {"kind": "mini", "size": size}, st.integers(1, 8)),
    st.builds(
        lambda size, collect: {"kind": "maxi", "size": size, "collect": size + collect}, st.integers(1, 8), st.integers(0, 9)
    ),
    st.builds(
        lambda size, threshold: {"kind": "top_up", "size": size, "threshold": threshold, "refill": "free"},
        st.integers(1, 8),
        st.sampled_from(["half_empty", "immediate"]),
    ),
)
BALANCERS = st.sampled_from(["attached", "round_robin", "least_work", "two_choices", "random"])
OVERHEADS = st.none() | st.sampled_from([0.8, {"mean_ms": 5.0, "sd_ms": 3.0}])
LINKS = st.sampled_from([{"rtt": "@cp1"}, {"rtt": "@cp2", "uplink_mbps": 1, "downlink_mbps": 2}, {"rtt": {"constant_ms": 30}}])


def arrivals() -> st.SearchStrategy[Keys]:
    """Every discipline, from idle devices to overload."""
    clients = {"kind": st.just("clients"), "clients": st.integers(1, 30), "think_time": st.just({"mean_s": 1.0})}
    return st.one_of(
        st.just({"kind": "back_to_back"}),
        st.builds(lambda rate: {"kind": "poisson", "rate_rps": rate}, st.sampled_from([0.5, 5.0, 40.0, 500.0])),
        st.fixed_dictionaries(clients),
    )


@st.composite
def _devices(draw: Draw, kind: str, is_back_to_back: bool) -> Keys:
    cloud = {"profile": "@titan-xp-bilstm", "workers": draw(st.integers(1, 3)), "overhead": draw(OVERHEADS)}
    gateway: Keys = {"profile": "@tx2-bilstm"}
    if kind == "batches":
        cloud = {"profile": "@cpu2-gru", "overhead": draw(OVERHEADS)}
        gateway = {"profile": "@cpu1-gru"}
        if not is_back_to_back:
            cloud["batching"] = draw(BATCHING)
    if kind == "streams":
        times = {
            "engagement_gap_s": draw(st.sampled_from([1.0, 15.0])),
            "reclaimed_after_s": draw(st.sampled_from([20.0, 60.0])),
        }
        gateway = {
            "profile": "@cpu1-marian-sti",
            "sti": {"deadline_ms": 720, "preload_mb": 6, "cache_mb": 20, "cold_read_mb": 0} | times,
        }
        cloud = {"profile": "@cpu2-marian-int8", "overhead": draw(OVERHEADS)}
    devices = {"gateway": gateway | {"count": draw(st.integers(1, 4))}}
    if draw(st.booleans()):
        region = gateway if kind == "streams" else {"profile": gateway["profile"], "workers": draw(st.integers(1, 2))}
        devices["region"] = region | {"count": draw(st.integers(1, 3)), "balancer": draw(BALANCERS)}
    devices["cloud"] = cloud | {"count": draw(st.integers(1, 4)), "balancer": draw(BALANCERS)}
    return devices


@st.composite
def random_scenarios(draw: Draw) -> Keys:
    """Scenarios of one workload and one network, whose devices take requests one by one, batch, or stream their model."""
    kind = draw(st.sampled_from(["plain", "batches", "streams"]))
    comes = draw(arrivals())
    is_back_to_back = comes["kind"] == "back_to_back"
    lengths: Any = "@de-en-news" if kind != "streams" else {"table": "@en-zh-docs", "fertility": {"src": 1.58, "tgt": 0.78}}
    devices = draw(_devices(kind, is_back_to_back))
    hops: Keys = {"gateway": [{"rtt": {"constant_ms": 3}}, draw(LINKS)]} if draw(st.booleans()) else {}
    if "region" in devices:
        hops["region"] = draw(LINKS)
    clock = draw(st.sampled_from([None, "own"])) if is_back_to_back else None
    return {
        "version": 1,
        "name": "random",
        "seed": draw(st.integers(0, 2**32 - 1)),
        "replications": 1,
        "requests": draw(st.integers(1, 120)),
        "workloads": {"w": {"lengths": lengths, "arrivals": comes, "end_nodes": 4 * draw(st.integers(1, 3))}},
        "networks": {"n": draw(LINKS) | {"hops": hops} | ({} if clock is None else {"clock": clock})},
        "devices": devices,
        "policies": draw(POLICIES),
        "fit": {"inferences": 200},
        "gap_analysis": draw(st.booleans()),
        "foresee_misroutes": draw(st.booleans()),
    }
