"""Top-up against mini-batching on a live server: requests a second at the same 95th percentile, live and predicted (FNI-14):

    python -m benchmarks.live_topup PROFILE [--size 8] [--p95 6] [--rounds 3] [--requests 300] [--json]

Both batch the sentences of the OpenSubtitles mix for one engine on one core, with lengths forced; PROFILE has its costs of
batches. The limit is `--p95` times what the mean sentence takes alone. For each batcher the longest wait is tuned in the
simulation, and the greatest rate at which the simulated p95 keeps the limit is found by bisection. Around it the live p95 is
measured at three rates, the batchers taking turns, and the rate at which it meets the limit is interpolated. Live latencies are
less the time outside of queue and execution, which the profile does not have. The ratio of the two rates is to be predicted
within 8 %.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.batching import Batching, half_empty, mini, top_up
from simnmt.devices.batch import decode_all
from simnmt.live.engine_process import EngineSettings
from simnmt.live.front import FrontSettings
from simnmt.live.server import ServerSettings
from simnmt.live.testbed import EndService, Node, ServeModel
from simnmt.profile.batch_cost import DecodingCost
from simnmt.profile.profile_file import read_profile
from simnmt.service.client import TranslationClient
from simnmt.service.load import Load, LoadLog, send_load
from simnmt.service.precise_timers import reduce_timer_slack, run_precisely
from simnmt.workload.lognormal_lengths import OPENSUBTITLES

WAITS_IN_STEPS = (0.0, 2.0, 5.0, 10.0, 20.0)
"""Longest waits that are tried, as multiples of a decode step of one sentence."""
AROUND = (0.85, 1.0, 1.15)
"""Live rates over the simulated one."""
SIMULATED = 6_000
"""Requests of each simulation of the search."""
Column = NDArray[np.float64]


@dataclass(frozen=True)
class Requests:
    """Sentences in order of their arrival at a rate of one a second; shape (requests,)."""

    src_len: NDArray[np.int64]
    tgt_len: NDArray[np.int64]
    arrival_s: Column

    @classmethod
    def drawn(cls, count: int, seed: int) -> Requests:
        """Draw sentences of the mix with Poisson arrivals."""
        generator = np.random.default_rng(seed)
        src_len, tgt_len = OPENSUBTITLES.draw(generator, count)
        return cls(src_len, tgt_len, np.cumsum(generator.exponential(1.0, count)))


def simulated_p95_s(batching: Batching, cost: DecodingCost, requests: Requests, rate_rps: float) -> float:
    """Return the 95th percentile of queue and execution, seconds; the first tenth does not count."""
    arrival_s = requests.arrival_s / rate_rps
    finish_s = decode_all(batching, cost, requests.src_len, requests.tgt_len, arrival_s).finish_s
    return p95(finish_s - arrival_s)


def p95(latency_s: Column) -> float:
    """Return the 95th percentile without the first tenth, when the server fills."""
    return float(np.quantile(latency_s[len(latency_s) // 10 :], 0.95))


def simulated_rate_rps(batching: Batching, cost: DecodingCost, requests: Requests, limit_s: float, most_rps: float) -> float:
    """Return the greatest rate at which the simulated p95 keeps the limit; 0 if none does."""
    low, high = 0.0, most_rps
    for _ in range(12):
        rate_rps = (low + high) / 2.0
        low, high = (rate_rps, high) if simulated_p95_s(batching, cost, requests, rate_rps) <= limit_s else (low, rate_rps)
    return low


Plan = tuple[Batching, float, int]
"""Batching, requests a second, and seed of the requests."""


def live_runs(model: str, compute_type: str, plans: Sequence[Plan], count: int) -> list[LoadLog]:
    """Run each plan once on a server with a core of its own; the engine stays loaded."""
    logs = []
    engine = EngineSettings(model, compute_type=compute_type, threads=1, cpus=(1,))
    front = FrontSettings(forced_lengths=True, deadline_s=120.0, waiting=100_000)
    with tempfile.TemporaryDirectory() as folder, Node((1,)) as node:
        for number, (batching, rate_rps, seed) in enumerate(plans):
            requests = Requests.drawn(count, seed)
            settings = ServerSettings(replace(engine, batching=batching), front)
            url = node.ask(ServeModel(settings, Path(folder) / f"{number}.jsonl"))
            texts = [" ".join(["wort"] * max(length - 1, 1)) for length in requests.src_len.tolist()]
            load = Load(texts, "de", "en", requests.tgt_len.tolist(), (requests.arrival_s / rate_rps).tolist())
            logs.append(run_precisely(_send(load, url)))
            node.ask(EndService())
            print(f"  {number + 1} of {len(plans)}: {rate_rps:.1f} requests/s", file=sys.stderr)
    return logs


async def _send(load: Load, url: str) -> LoadLog:
    reduce_timer_slack()
    async with TranslationClient(url, connections=1_000, timeout_s=180.0) as client:
        warm_up = replace(load, texts=load.texts[:3], offsets_s=None)
        await send_load(warm_up, client, timeout_s=180.0)
        return await send_load(load, client, timeout_s=180.0)


def rate_at(limit_s: float, rates_rps: Sequence[float], p95s_s: Sequence[float]) -> float:
    """Return the rate at which p95 meets the limit: by the line of log p95 over the rates, through all measurements."""
    slope, offset = np.polyfit(rates_rps, np.log(p95s_s), 1)
    return float((log(limit_s) - offset) / slope)


def main() -> None:
    """Print rates and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", type=Path, help="measured with one thread, with costs of steps")
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--p95", type=float, default=6.0, help="limit, as a multiple of the mean sentence's time alone")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    profile = read_profile(given.profile)
    assert profile.engine is not None
    cost, sample = profile.decoding_cost, Requests.drawn(SIMULATED, given.seed + 1_000)
    alone_s = float(cost.solo_s(sample.src_len, sample.tgt_len).mean())
    step_s = float(cost.solo_s(np.array([10]), np.array([11]))[0] - cost.solo_s(np.array([10]), np.array([10]))[0])
    limit_s, most_rps = given.p95 * alone_s, 2.0 * given.size / alone_s
    kinds = {"mini": partial(mini, given.size), "top-up": partial(top_up, given.size, half_empty(given.size))}
    found: dict[str, Any] = {"limit_s": limit_s, "alone_s": alone_s, "batchers": {}}
    tuned: dict[str, tuple[Batching, float]] = {}
    for name, kind in kinds.items():
        tried = [(kind(longest_wait_s=steps * step_s), steps * step_s) for steps in WAITS_IN_STEPS]
        rates = [simulated_rate_rps(batching, cost, sample, limit_s, most_rps) for batching, _ in tried]
        best = int(np.argmax(rates))
        tuned[name] = tried[best][0], rates[best]
        found["batchers"][name] = {"longest_wait_s": tried[best][1], "simulated_rps": rates[best], "simulated_by_wait": rates}
    plans = [
        (batching, around * rate_rps, given.seed + turn)
        for turn in range(given.rounds)
        for around in AROUND
        for batching, rate_rps in tuned.values()
    ]
    logs = live_runs(profile.model.name, profile.engine.compute_type, plans, given.requests)
    for place, (name, (batching, _)) in enumerate(tuned.items()):
        own = list(zip(plans, logs, strict=True))[place :: len(tuned)]
        rates_rps = [rate_rps for (_, rate_rps, _), _ in own]
        live_s = [p95((log_.queue_s + log_.execution_s)[log_.answered]) for _, log_ in own]
        paired = [  # the very same requests
            simulated_p95_s(batching, cost, Requests.drawn(given.requests, seed), rate_rps) for (_, rate_rps, seed), _ in own
        ]
        of_batcher = found["batchers"][name]
        of_batcher |= {
            "rates_rps": rates_rps,
            "live_p95_s": live_s,
            "simulated_p95_s": paired,
            "answered": float(np.mean([log_.answered.mean() for _, log_ in own])),
            "live_rps": rate_at(limit_s, rates_rps, live_s),
            "same_requests_simulated_rps": rate_at(limit_s, rates_rps, paired),
            "p95_error": exp(float(np.mean(np.log(paired) - np.log(live_s)))) - 1.0,
        }
    of = found["batchers"]
    for key in ("live_rps", "same_requests_simulated_rps", "simulated_rps"):
        found[f"top-up over mini, {key}"] = of["top-up"][key] / of["mini"][key]
    found["error of the ratio"] = (
        found["top-up over mini, same_requests_simulated_rps"] / found["top-up over mini, live_rps"] - 1.0
    )
    print(json.dumps(found, indent=1) if given.json else _text(found))


def _text(found: dict[str, Any]) -> str:
    limit_ms, alone_ms = 1e3 * found["limit_s"], 1e3 * found["alone_s"]
    lines = [f"p95 of queue and execution at most {limit_ms:.0f} ms; a mean sentence alone {alone_ms:.1f} ms"]
    for name, part in found["batchers"].items():
        lines.append(
            f"{name:<7} longest wait {1e3 * part['longest_wait_s']:.1f} ms: live {part['live_rps']:.1f} requests/s, simulated "
            f"{part['same_requests_simulated_rps']:.1f} (long run {part['simulated_rps']:.1f}); simulated p95 "
            f"{100 * part['p95_error']:+.1f} % off; answered {100 * part['answered']:.1f} %"
        )
    lines += [f"{key}: {value:.3f}" for key, value in found.items() if isinstance(value, float) and " " in key]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
