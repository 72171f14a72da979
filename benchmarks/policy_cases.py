"""The deployments on which the policies beyond the paper are held against the paper's: what `benchmarks.policies` runs.

Each question has deployments made to favour the policy and others made to embarrass it. Times are those of the shipped
profiles, or of the same profiles slowed by a factor; RTT series that no recording offers are drawn here, from seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simnmt.base import shipped_files
from simnmt.network.series import RttSeries
from simnmt.network.series_csv import series_text, write_texts
from simnmt.profile.blocks import ExecutionFit
from simnmt.profile.device_profile import read_profile, write_profile
from simnmt.scenario.document import read_document
from simnmt.workload.length_table import LengthTable, read_table, write_table

Mapping = dict[str, Any]
LOADS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class Case:
    """A deployment and the policies that are compared on it."""

    name: str
    devices: Mapping
    networks: Mapping
    policies: Mapping
    lengths: Any = "@de-en-news"
    pairs: Sequence[tuple[str, str]] = (("queue-aware", "cnmt"),)
    """(policy, the one it is held against)."""
    arrivals: Callable[[float], Mapping] | None = None
    """What makes requests come at a mean rate; None: back to back."""
    loads: Sequence[float] = ()
    """Of the busiest box, under the first pair's second policy; empty where `rates_rps` says how fast requests come."""
    rates_rps: Sequence[float] = ()
    end_nodes: int = 4
    planes_off: tuple[float, ...] = ()
    """Factors on what the policies believe of each device's times; empty: as they measured them."""


def poisson(rate_rps: float) -> Mapping:
    return {"kind": "poisson", "rate_rps": rate_rps}


def bursts(rate_rps: float) -> Mapping:
    """Four times the mean rate for 5 s on average, a quarter of it for 20 s."""
    return {
        "kind": "on_off",
        "on_rate_rps": 4.0 * rate_rps,
        "off_rate_rps": 0.25 * rate_rps,
        "mean_on_s": 5.0,
        "mean_off_s": 20.0,
    }


def steps(rate_rps: float) -> Mapping:
    """2.2 times the mean rate for a minute, 0.4 times for two."""
    rush, calm = ({"for_s": seconds, "rate_rps": factor * rate_rps} for seconds, factor in ((60, 2.2), (120, 0.4)))
    return {"kind": "varying", "steps": [rush, calm]}


GATEWAY, SERVER = {"profile": "@tx2-bilstm"}, {"profile": "@titan-xp-bilstm"}
QUEUES = {"cnmt": {}, "queue-aware": {"kind": "cnmt", "sees_backlog": True}}


def constant(rtt_ms: float) -> Mapping:
    return {"n": {"rtt": {"constant_ms": rtt_ms}}}


def queues(folder: Path) -> Iterator[Case]:
    """C-NMT with an eye for queues over the load of the busiest box: at the gateway, at the server, elsewhere, among others."""
    cp1, cp2 = {"n": {"rtt": "@cp1"}}, {"n": {"rtt": "@cp2"}}
    slow = {"profile": slowed(folder, "titan-xp-bilstm", 3.0)}
    hardly_faster = {"profile": slowed(folder, "tx2-bilstm", 1.0 / 1.5)}
    slow_gateway = {"profile": slowed(folder, "tx2-bilstm", 5.0)}
    tiers = read_document(shipped_files.find("scenarios", "@tiers")).data
    many, roomy = {**GATEWAY, "count": 20}, {**GATEWAY, "count": 20, "workers": 50}
    open_loop: Mapping = {"arrivals": poisson, "loads": LOADS}

    def two(name: str, gateway: Mapping, cloud: Mapping, networks: Mapping, **keys: Any) -> Case:
        return Case(name, {"gateway": gateway, "cloud": cloud}, networks, **{"policies": QUEUES, **open_loop, **keys})

    yield two("gateway fills first (@load-sweep)", GATEWAY, SERVER, cp1)
    yield two("server fills first: a third as fast", GATEWAY, slow, constant(20))
    yield two("server hardly faster than the gateway", GATEWAY, hardly_faster, constant(20))
    shipped_tiers = {"devices": tiers["devices"], "networks": tiers["networks"], "policies": QUEUES, "end_nodes": 60}
    yield Case("@tiers: 3 gateways, 2 regional, 4 servers", **shipped_tiers, **open_loop)
    for balancer in ("round_robin", "least_work", "two_choices", "random"):
        servers = {**slow, "count": 4, "balancer": balancer}
        yield two(f"20 gateways, 4 slow servers, {balancer}", many, servers, cp2, end_nodes=200)
    yield two("20 gateways, 1 server", many, SERVER, cp2, end_nodes=200)
    yield two("20 gateways that never fill, 1 server", roomy, SERVER, constant(60), end_nodes=200)
    random = {**SERVER, "count": 16, "balancer": "random"}
    yield two("20 gateways that never fill, 16 random servers", roomy, random, constant(60), end_nodes=200)
    yield two("bursts, gateway fills first", GATEWAY, SERVER, cp1, arrivals=bursts)
    yield two("bursts, 20 gateways that never fill", roomy, SERVER, constant(60), end_nodes=200, arrivals=bursts)
    yield two("rush and calm, server fills first", GATEWAY, slow, constant(20), arrivals=steps)
    far = {**slow_gateway, "count": 20, "workers": 50}
    yield two("RTT 300 ms, 20 slow gateways that never fill", far, SERVER, constant(300), end_nodes=200)
    by_mean = {"naive": {}, "queue-aware": {"kind": "naive", "sees_backlog": True}}
    naive: Mapping = {"policies": by_mean, "pairs": (("queue-aware", "naive"),)}
    yield two("naive lengths, server fills first", GATEWAY, slow, constant(20), **naive)
    yield two("naive lengths, 20 gateways, 1 server", many, SERVER, cp2, end_nodes=200, **naive)
    for gateway_off, server_off in ((1.3, 0.7), (0.7, 1.3)):
        believed = f"times believed x {gateway_off} and x {server_off}"
        off = {"planes_off": (gateway_off, server_off)}
        yield two(f"{believed}, server fills first", GATEWAY, slow, constant(20), **off)
        yield two(f"{believed}, 20 gateways, 1 server", many, SERVER, cp2, end_nodes=200, **off)
        never = f"{believed}, 20 gateways that never fill, 1 server"
        yield two(never, roomy, SERVER, constant(60), end_nodes=200, **off)


TABLES = {
    "de-en-news": "bilstm",
    "de-en-tatoeba": "bilstm",
    "fr-en-mixed": "gru",
    "fr-en-news": "gru",
    "fr-en-docs": "gru",
    "en-zh-docs": "marian",
    "en-zh-flores": "marian",
}
"""Shipped tables of lengths, and the model whose devices the paper measured on that language pair."""


def lengths(folder: Path) -> Iterator[Case]:
    """The distribution of target lengths against the line, and the 95th percentile against the mean."""
    networks = {name: {"rtt": f"@{name}"} for name in ("cp1", "cp2")}
    spread = {name: {**link, "clock": "spread"} for name, link in networks.items()}
    capped = {"table": str(capped_table(folder, "de-en-news", 20))}
    tables = [(model, name, f"@{name}") for name, model in TABLES.items()]
    for model, name, table in [*tables, ("bilstm", "de-en-news cut off at 20 tokens", capped)]:
        devices = {
            "gateway": {"profile": f"@tx2-{model}", "outside_range_share": 1},
            "cloud": {"profile": f"@titan-xp-{model}", "outside_range_share": 1},
        }
        back_to_back: Mapping = {"kind": "cnmt"}
        yield _lengths_case(f"{name}, back to back", devices, spread, back_to_back, lengths=table)
        open_loop = {"kind": "cnmt", "sees_backlog": True}
        for network, link in networks.items():
            half = {"lengths": table, "arrivals": poisson, "loads": (0.5,)}
            yield _lengths_case(f"{name}, open loop, {network}", devices, {network: link}, open_loop, **half)


def _lengths_case(name: str, devices: Mapping, networks: Mapping, line: Mapping, **keys: Any) -> Case:
    """`line`: the policy with its lengths on a line, which the two others vary."""
    distribution = {**line, "lengths": "distribution"}
    policies = {"line": line, "distribution": distribution, "p95": {**distribution, "minimises": "p95"}}
    return Case(name, devices, networks, policies, pairs=(("distribution", "line"), ("p95", "distribution")), **keys)


def smoothing(folder: Path) -> Iterator[Case]:
    """Smoothed transfer times against the last measured one, back to back, a sample for every request or so."""
    random, samples = np.random.default_rng(1), 20_000
    jitter, steady = {sd: 80.0 - sd + random.exponential(sd, samples) for sd in (10, 30)}, random.normal(0.0, 1.0, samples)
    levels_ms = [40.0, 60.0, 80.0, 100.0, 120.0]
    level = {of: np.repeat(random.choice(levels_ms, samples // of), of) for of in (400, 40)}
    made = {
        "jitter of 10 ms": jitter[10],
        "jitter of 30 ms": jitter[30],
        "jitter of 30 ms on levels of 400 requests": level[400] - 80.0 + jitter[30],
        "levels of 400 requests": level[400] + steady,
        "levels of 40 requests": level[40] + steady,
    }
    # Spread: a sample of jitter, or of a level, for as many requests as it was made for.
    spread = {"clock": "spread"}
    networks = {name: {"rtt": series(folder, name, rtt_ms, 1.0), **spread} for name, rtt_ms in made.items()}
    networks |= {"@cp1": {"rtt": "@cp1", **spread}, "@cp2": {"rtt": "@cp2", **spread}}
    weights = (0.5, 0.25, 0.125)
    policies: Mapping = {"last": {"kind": "cnmt"}}
    policies |= {f"weight {w}": {"kind": "cnmt", "transfer_estimate": {"kind": "smoothed", "weight": w}} for w in weights}
    pairs = [(name, "last") for name in list(policies)[1:]]
    yield Case("back to back", {"gateway": GATEWAY, "cloud": SERVER}, networks, policies, pairs=pairs)


def overheads(folder: Path) -> Iterator[Case]:
    """Estimates that resist outliers, where the remote overhead has a tail (docs/reference/policies.md)."""
    estimates: Mapping = {
        "smoothed": "smoothed",
        "quantile": "quantile",
        "median": {"kind": "quantile", "quantile": 0.5},
        "queue-aware": "last",
        "queue-aware quantile": "quantile",
    }
    policies: Mapping = {"oracle": {}, "last": {"kind": "cnmt"}}
    policies |= {
        name: {"kind": "cnmt", "transfer_estimate": estimate, "sees_backlog": name.startswith("queue-aware")}
        for name, estimate in estimates.items()
    }
    pairs = [(policy, "last") for policy in policies if policy != "last"]
    # Four-word queries: for them these two devices are equally fast at 10 ms.
    lengths: Mapping = {
        "lognormal": {"src_mean": 4.0, "src_sd": 3.0, "sentences": 20_000},
        "fertility": {"src": 1.0, "tgt": 1.0},
    }
    tails: dict[str, Any] = {
        "constant": 1.3,
        "sd 1.3 ms": {"mean_ms": 1.3, "sd_ms": 1.3},
        "sd 4 ms": {"mean_ms": 1.3, "sd_ms": 4.0},
        "one in 100 stalls for 50 ms on average": {"quantiles_ms": [0.8] * 100 + [99.2]},
    }
    network = {"n": {"rtt": {"constant_ms": 9.6}}}
    gateway: Mapping = {**GATEWAY, "overhead": {"mean_ms": 0.8, "sd_ms": 0.3}}
    for name, overhead in tails.items():
        devices = {"gateway": gateway, "cloud": {**SERVER, "overhead": overhead}}
        yield Case(f"{name}, back to back", devices, network, policies, lengths, pairs)
        yield Case(f"{name}, open loop", devices, network, policies, lengths, pairs, arrivals=poisson, rates_rps=(10.0, 40.0))
    # News, with a gateway that is as fast for them: the share that is sent away moves by 5 % per ms of the estimate.
    fast: Mapping = {**gateway, "profile": slowed(folder, "tx2-bilstm", 0.3)}
    devices = {"gateway": fast, "cloud": {**SERVER, "overhead": tails["sd 4 ms"]}}
    yield Case("news, sd 4 ms, back to back", devices, network, policies, pairs=pairs)
    yield Case("news, sd 4 ms, open loop", devices, network, policies, pairs=pairs, arrivals=poisson, rates_rps=(13.3, 26.7))
    level_ms = np.random.default_rng(1).choice([6.0, 8.0, 10.0, 12.0, 14.0], 20_000 // 40)
    steps = {"n": {"rtt": series(folder, "RTT steps every 40 requests", np.repeat(level_ms, 40), 1.0), "clock": "spread"}}
    devices = {"gateway": gateway, "cloud": {**SERVER, "overhead": tails["constant"]}}
    yield Case("constant, RTT steps of 2 ms and more every 40 requests", devices, steps, policies, lengths, pairs)


QUESTIONS: dict[str, Callable[[Path], Iterator[Case]]] = {
    "queues": queues,
    "lengths": lengths,
    "smoothing": smoothing,
    "overheads": overheads,
}


def slowed(folder: Path, name: str, factor: float) -> str:
    """A shipped profile with all its times multiplied."""
    profile = read_profile(shipped_files.find("calibration", f"@{name}"))
    plane = profile.execution.plane.times(factor)
    path = folder / f"{name} times {factor:g}.json"
    execution = profile.execution.model_copy(update={"plane": plane, "kind": "synthetic", "fit": ExecutionFit()})
    write_profile(path, profile.model_copy(update={"name": path.stem, "execution": execution}))
    return str(path)


def capped_table(folder: Path, name: str, most: int) -> Path:
    """A shipped table of a service that stops each translation after so many tokens: a line that bends."""
    table = read_table(shipped_files.find("traces/lengths", f"@{name}"))
    short = np.minimum(table.tgt_len, most)
    units = table.src_unit, table.tgt_unit
    path = folder / f"{name} capped at {most}.csv"
    write_table(path, LengthTable.of_pairs(path.stem, table.source, *units, table.src_len, short, table.count))
    return path


def series(folder: Path, name: str, rtt_ms: Any, step_s: float) -> str:
    """An RTT series in a file, a sample each `step_s`."""
    rtt_s = np.asarray(rtt_ms, np.float64) / 1e3
    path = folder / f"{name}.csv"
    made = RttSeries(name, "synthetic", "made up", np.arange(len(rtt_s)) * step_s, rtt_s)
    write_texts({path: series_text(made, decimals=3)})
    return str(path)
